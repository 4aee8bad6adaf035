"""Each kind of configured upstream becomes its connector, with its credentials (UP-1)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.service import KEY, FileServer, running_service
from tests.support.supervised import connected
from wicketgate.access.identity import Identity
from wicketgate.config.runtime import call_policies, runtime_policies
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstreams import UpstreamMaker, fetching_program
from wicketgate.net import Outgoing
from wicketgate.ports import CallContext, Upstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "session")
DOCUMENT = {"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "a"}}}}


@asynccontextmanager
async def configured(**settings: Any) -> AsyncIterator[Upstream]:
    upstream = UpstreamMaker(Outgoing()).upstream(UpstreamSettings(name="shop", **settings))
    async with connected(upstream):
        yield upstream


@requirement("UP-22")
async def test_an_mcp_server_over_http_is_called_with_a_requested_token() -> None:
    def token(seen: Seen) -> Reply:
        given.append(KEY if given else "not-the-key")
        return Reply(json.dumps({"access_token": given[-1], "token_type": "Bearer"}).encode())

    given: list[str] = []
    async with HttpService(token) as token_server, running_service(upstreams=[FileServer()]) as service:
        oauth = {"token_url": token_server.url, "client_id": "gw", "client_secret": "s"}
        async with configured(url=f"{service.url}/mcp", oauth=oauth) as upstream:
            tools = [tool["name"] for tool in await upstream.list_tools()]
            assert "tool_browse" in tools
            found = await upstream.call_tool("tool_browse", {"path": "/"}, CONTEXT, 10)
            assert found["content"][0]["text"].startswith("/")
    assert given == ["not-the-key", KEY], "the first is refused with 401, and another is asked for"


@requirement("UP-22")
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_services_credential_is_not_sent_to_a_different_server_that_has_its_document(elsewhere: bool) -> None:
    document = Reply(json.dumps(DOCUMENT).encode())
    async with HttpService(lambda seen: document) as documents, HttpService() as other:
        base_url = other.url if elsewhere else documents.url
        settings = {"openapi": f"{documents.url}/openapi.json", "base_url": base_url, "headers": {"X-Key": "secret"}}
        async with configured(**settings) as upstream:
            await upstream.call_tool("a", {}, CONTEXT, 10)
        called = other if elsewhere else documents
    assert called.seen[-1].headers["x-key"] == "secret"
    assert documents.seen[0].headers.get("x-key") == (None if elsewhere else "secret")


async def test_a_document_on_disk_is_found_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(DOCUMENT | {"servers": [{"url": "http://127.0.0.1:9"}]}))
    monkeypatch.chdir(tmp_path)
    async with configured(openapi="./shop.json") as upstream:
        assert [tool["name"] for tool in await upstream.list_tools()] == ["a"]


@requirement("EXEC-16")
def test_kept_results_are_shared_among_actors_only_where_the_upstream_says_so() -> None:
    upstreams = [
        {"name": "own", "url": "https://own.example/mcp", "cache": {"tools": ["get_*"]}},
        {"name": "common", "url": "https://common.example/mcp", "cache": {"tools": ["get_*"], "shared": True}},
    ]
    policies = call_policies(Settings.model_validate({"upstreams": upstreams}))
    assert [(name, policy.caches("get_x"), policy.cache_shared) for name, policy in policies.items()] == [
        ("own", True, False),
        ("common", True, True),
    ]


@requirement("UP-66")
@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("npx -y some-server", "npx"),
        ("/usr/bin/uvx some-server", "uvx"),
        ("docker run -i image", "docker"),
        ("pnpm dlx some-server", "pnpm"),
        ("uv run server.py", "uv"),
        ("uv pip list", ""),
        ("python -m server", ""),
        ("npm-server exec", ""),
    ],
)
def test_a_program_that_fetches_its_server_is_known_by_its_command(command: str, program: str) -> None:
    assert fetching_program(command.split()) == program


@requirement("ROUTE-74")
def test_questions_of_a_server_lead_to_no_page_of_ours_and_to_loopback_only_from_here() -> None:
    upstreams: list[Any] = [{"name": "started", "command": ["x"]}]
    urls = {"near": "http://127.0.0.1:9/mcp", "far": "https://tools.example/mcp"}
    upstreams += [{"name": name, "url": url} for name, url in urls.items()]
    server = {"public_url": "https://gate.example", "port": 8123}
    policies = runtime_policies(Settings.model_validate({"upstreams": upstreams, "server": server}))
    assert set(policies.own_pages) == {"gate.example:443", "localhost:8123"}
    assert [policies.pages_for(name).loopback for name in ("started", "near", "far")] == [True, True, False]
