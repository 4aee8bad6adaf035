"""The gate's own credentials do not come back through the services that they are for (UP-58)."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from app.commands.gate_client import LocalGate
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.supervised import connected
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.settings.base import is_secret_name
from wicketgate.config.settings_file import load_settings
from wicketgate.config.upstreams import UpstreamMaker
from wicketgate.fleet.edge import SHORTEST_SECRET
from wicketgate.fleet.features import FeatureFleet, FeatureKind
from wicketgate.fleet.member import Member
from wicketgate.gate import Gate
from wicketgate.gateway.catalog_keeper import tools_left_out
from wicketgate.net import Outgoing
from wicketgate.ports import CallContext

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "session")
DOCUMENT = {"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "a"}}}}

# Prints its environment as a tool's result, in MCP of the handshake era.
ENV_SERVER = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                      "serverInfo": {"name": "env", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": "env", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
        case _:
            result = None
    if "id" in asked:
        answer = {"result": result} if result else {"error": {"code": -32601, "message": os.environ["SHOP_TOKEN"]}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@asynccontextmanager
async def configured(**settings: Any) -> AsyncIterator[Member]:
    member = UpstreamMaker(Outgoing()).member(UpstreamSettings(name="shop", **settings))
    async with connected(member):
        yield member


def echo(seen: Seen) -> Reply:
    return Reply(json.dumps({"seen": dict(seen.headers)}).encode(), 500 if seen.target == "/a" else 200)


@requirement("UP-58")
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer apisecret-of-the-shop"},
        {"X-Api-Key": "apisecret-of-the-shop"},
        {"X-Shop": "apisecret-of-the-shop"},
        {"Cookie": "theme=dark; sid=apisecret-of-the-shop"},
        {"Authorization": "Basic dXNlcjphcGlzZWNyZXQtb2YtdGhlLXNob3A="},
    ],
)
async def test_a_service_that_echoes_its_request_shows_no_configured_header(headers: dict[str, str]) -> None:
    async with HttpService(echo) as service:
        service.answer = lambda seen: Reply(json.dumps(DOCUMENT).encode()) if seen.target == "/doc" else echo(seen)
        async with configured(openapi=f"{service.url}/doc", base_url=service.url, headers=headers) as member:
            result = json.dumps(await member.call_tool("a", {}, CONTEXT, 10))
    assert "apisecret" not in result
    assert next(iter(headers.values())).rpartition(" ")[2] not in result
    assert "[redacted]" in result
    assert "trace-1" in result, "the rest of the echo is there"


@requirement("UP-58")
async def test_a_token_that_was_fetched_at_run_time_is_masked() -> None:
    token = Reply(b'{"access_token":"fetched-token-1","token_type":"bearer"}')
    async with HttpService(lambda seen: token) as tokens, HttpService(echo) as service:
        service.answer = lambda seen: Reply(json.dumps(DOCUMENT).encode()) if seen.target == "/doc" else echo(seen)
        oauth = {"token_url": tokens.url, "client_id": "gw", "client_secret": "client-secret"}
        async with configured(openapi=f"{service.url}/doc", base_url=service.url, oauth=oauth) as member:
            result = json.dumps(await member.call_tool("a", {}, CONTEXT, 10))
    assert service.seen[-1].headers["authorization"] == "Bearer fetched-token-1"
    assert "fetched-token" not in result


@requirement("UP-58", "UP-260")
async def test_a_child_that_prints_its_environment_shows_no_secret_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:of-the-proxy%21@proxy.example:3128")
    env = {"SHOP_TOKEN": "apisecret-of-the-shop", "DB": "pg://me:pa%2Fssword@db/x", "REGION": "eu-central-1"}
    async with configured(command=[sys.executable, "-c", ENV_SERVER], env=env) as member:
        result = json.dumps(await member.call_tool("env", {}, CONTEXT, 10))
    assert "apisecret" not in result
    assert "pa%2Fssword" not in result
    assert "of-the-proxy" not in result and "proxy.example:3128" in result
    assert "eu-central-1" in result


@requirement("UP-58")
def test_what_counts_as_a_credential_of_an_upstream() -> None:
    headers = {
        "Accept": "application/vnd.shop.v2+json",
        "X-Tenant": "production",
        "X-Note": "words that are no credential",
        "X-Session-Token": "12345678",
        "X-Other": "0123456789abcdef",
    }
    settings = UpstreamSettings.model_validate(
        {"name": "shop", "url": "https://me:pass%20word@shop.example/mcp", "headers": headers}
    )
    assert list(settings.secrets()) == ["12345678", "0123456789abcdef", "pass%20word", "pass word", "me:pass word"]


@requirement("UP-62")
def test_a_key_in_the_query_of_a_url_is_a_credential() -> None:
    url = "https://shop.example/mcp?apiKey=0123%2F4567&region=europe-west-1&page_token="
    settings = UpstreamSettings.model_validate({"name": "shop", "url": url})
    assert list(settings.secrets()) == ["0123%2F4567", "0123/4567"]
    settings = UpstreamSettings.model_validate({"name": "shop", "openapi": url, "base_url": "https://shop.example"})
    assert list(settings.secrets()) == ["0123%2F4567", "0123/4567"]


@requirement("UP-118")
def test_keys_of_the_query_and_cookies_are_credentials() -> None:
    query = {"api_key": "shown", "appid": "0123456789abcdef/+", "api-version": "2026-01-01-preview", "units": "metric"}
    given = {"name": "shop", "openapi": "https://shop.example/o.json", "query": query}
    assert list(UpstreamSettings.model_validate(given).secrets()) == ["shown", "0123456789abcdef/+"]
    assert {*query.values()} <= {*Settings.model_validate({"upstreams": [given]}).secrets()}
    given = {"name": "shop", "url": "https://shop.example", "headers": {"Cookie": "sid=0123456; theme=dark"}}
    assert list(UpstreamSettings.model_validate(given).secrets()) == ["sid=0123456; theme=dark", "0123456", "dark"]


@requirement("UP-62")
def test_a_token_in_the_path_of_a_url_is_a_credential() -> None:
    token = "NGJkZTA5ODctYWJjZC00ZWYw0aGk5"
    url = f"https://shop.example/s/{token}/sse"
    assert list(UpstreamSettings.model_validate({"name": "shop", "url": url}).secrets()) == [token]
    command = ["npx", "mcp-remote", f"https://shop.example/s/{token}%3D"]
    settings = UpstreamSettings.model_validate({"name": "shop", "command": command})
    assert list(settings.secrets()) == [f"{token}%3D", f"{token}="]
    # Names of things, which a server may well speak of.
    for name in ("123e4567-e89b-12d3-a456-426614174000", "my-project-of-the-year-2026", "0a" * 20, "projects"):
        url = f"https://shop.example/{name}/mcp"
        assert list(UpstreamSettings.model_validate({"name": "shop", "url": url}).secrets()) == []


@requirement("UP-62")
@pytest.mark.parametrize(
    ("command", "secrets"),
    [
        (["srv", "--api-key", "value-of-it"], ["value-of-it"]),
        (["srv", "--api-key=value-of-it", "--verbose=very-much-so"], ["value-of-it"]),
        (["srv", "--token", "--verbose", "file.json"], []),
        (["srv", "--header", "Authorization: Bearer value-of-it"], ["Bearer value-of-it"]),
        (["srv", "SHOP_TOKEN=value-of-it", "https://x.example/?api_key=value-of-it"], ["value-of-it", "value-of-it"]),
        (["/opt/keys/srv", "author", "mcp-auth-proxy", "postgres://me:password-1@db/x"], ["password-1", "password-1"]),
        (["srv", "--key-file", "/etc/keys/shop.pem", "--sort-key=created_at"], []),
    ],
)
def test_an_argument_that_is_named_like_a_secret_is_a_credential(command: list[str], secrets: list[str]) -> None:
    settings = UpstreamSettings.model_validate({"name": "shop", "command": command})
    assert [each for each in settings.secrets() if each != "me:password-1"] == secrets


@requirement("UP-62")
def test_values_that_are_no_secret_are_not_masked_in_the_data_of_a_server() -> None:
    env = {
        "AUTH_MODE": "customer",
        "TOKEN_URL": "https://login.example/token",
        "KEY_PATH": "/etc/keys/shop.pem",
        "SORT_KEY": "created_at",
        "PARTITION_KEY": "customer_id",
        "AUTHOR_NAME": "Jane Smith",
        "MAX_TOKENS": "100000000",
        "SSH_AUTH_SOCK": "/run/user/agent",
        "KEYBOARD": "us-international",
    }
    settings = UpstreamSettings.model_validate({"name": "shop", "command": ["x"], "env": env})
    assert list(settings.secrets()) == []
    settings = UpstreamSettings.model_validate({"name": "shop", "command": ["x"], "env": {"SHOP_KEY": "created_at"}})
    assert list(settings.secrets()) == ["created_at"]
    headers = {
        "X-Tenant-Id": "7d4df1a2-0000-4000-8000-000000000000",
        "X-Organization": "my-organization-name",
        "X-Api-Version": "2026-01-01-preview",
        "X-Region": "europe-west1-production",
    }
    settings = UpstreamSettings.model_validate({"name": "shop", "url": "https://shop.example", "headers": headers})
    assert list(settings.secrets()) == []


@requirement("UP-62")
@pytest.mark.parametrize(
    "name", ["GITHUB_PAT", "DB_PASS", "JWT", "SENTRY_DSN", "SLACK_WEBHOOK", "SLACK_WEBHOOK_URL", "PASSPHRASE", "BEARER"]
)
def test_more_names_of_secrets_are_known(name: str) -> None:
    for given, secrets in ((name, ["value-of-it"]), (f"{name}_FILE", [])):
        settings = UpstreamSettings.model_validate({"name": "shop", "command": ["x"], "env": {given: "value-of-it"}})
        assert list(settings.secrets()) == secrets, given
    assert not is_secret_name("COMPATIBLE") and not is_secret_name("PATH") and not is_secret_name("BYPASSED")


VARIABLES = {
    "TOK": "b7Qx2mLw9z",
    "WHATEVER": "correct horse battery",
    "SHORT": "seven77",
    "HOME": "/home/operator",
    "DATA": "/srv/data/of/ours",
    "AWS_REGION": "eu-central-1",
    "SHOP_HOST": "shop.example.com",
    "ADDRESS": "https://shop.example.com/mcp",
    "DB": "pg://me:pa55word-1@db/x",
    "GIT": "https://ghx_0123456789abcdef@git.example/r",
    "ELSEWHERE": "never-in-this-upstream",
}


@requirement("OPS-423")
def test_what_came_from_a_variable_is_a_credential_unless_it_is_harmless(tmp_path: Path) -> None:
    env = {f"X{number}": f"${{{name}}}" for number, name in enumerate(VARIABLES) if name not in ("TOK", "ELSEWHERE")}
    shop = {"name": "shop", "command": ["srv", "--with", "a:${TOK}"], "env": env}
    other = {"name": "other", "command": ["srv", "${ELSEWHERE}"]}
    config = tmp_path / "wicketgate.yaml"
    config.write_text(json.dumps({"upstreams": [shop, other]}))
    settings = load_settings(config, VARIABLES)
    shop_only, other_only = settings.upstreams
    found = {each for each in shop_only.guessed() if len(each) >= SHORTEST_SECRET}
    assert found == {VARIABLES[name] for name in ("TOK", "WHATEVER", "DB", "GIT")}
    assert {"pa55word-1", "me:pa55word-1"} <= {*shop_only.secrets()}, "a user of a URL is no guess"
    assert list(other_only.guessed()) == ["never-in-this-upstream"]


# Has one tool, prompt and resource, all named after VALUE in its environment. The tool repeats VALUE.
NAMED_SERVER = """
import json, os, sys
value = os.environ["VALUE"]
schema = {"type": "object", "properties": {"of": {"enum": [value, "orders"]}}, "required": ["of"]}
tool = {"name": f"list_{value}", "description": f"Lists {value}.", "inputSchema": schema}
results = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
                   "serverInfo": {"name": "db", "version": "1"}, "instructions": f"Begin with list_{value}."},
    "tools/list": {"tools": [tool]},
    "prompts/list": {"prompts": [{"name": f"tell_{value}"}]},
    "resources/list": {"resources": [{"uri": f"db://{value}", "name": value}]},
    "resources/templates/list": {"resourceTemplates": []},
    "tools/call": {"content": [{"type": "text", "text": f"5 of {value}"},
                               {"type": "resource_link", "name": "all", "uri": f"db://{value}"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results.get(asked["method"], {})}
        print(json.dumps(answer), flush=True)
"""

GUESSES = [
    ("DATABASE", "customers", "customers", True),
    ("DATABASE", "productions1", "[redacted]", True),
    ("DATABASE", "Customers", "[redacted]", True),
    ("DATABASE", "customer_data", "[redacted]", True),
    ("DATABASE", "correcthorseb", "[redacted]", True),
    ("DB_PASSWORD", "customers", "[redacted]", False),
    ("DB_PASSWORD", "customer_data", "[redacted]", False),
]


@requirement("OPS-475", "OPS-476", "OPS-477")
@pytest.mark.parametrize(("variable", "value", "said", "listed"), GUESSES)
async def test_no_variable_renames_a_tool_so_that_it_escapes_its_rule(
    tmp_path: Path, variable: str, value: str, said: str, listed: bool
) -> None:
    config, env = tmp_path / "wicketgate.yaml", {"VALUE": f"${{{variable}}}"}
    upstream = {"name": "db", "command": [sys.executable, "-c", NAMED_SERVER], "env": env, "instructions": True}
    rules = [{"match": f"db:list_{value}", "require": ["secret:read"]}]
    config.write_text(json.dumps({"upstreams": [upstream], "access": rules}))
    async with Gate(load_settings(config, {variable: value})) as gate:
        await gate.wait_ready()
        catalog, features = gate.runtime.catalog(), gate.fleet.members["db"].features
        assert features is not None and features.support is not None
        kinds: tuple[FeatureKind, ...] = ("prompts", "resources")
        prompts, resources = [(await features.list_all(kind)).items for kind in kinds]
        if not listed:
            assert not catalog.tools
            (reason,) = tools_left_out(catalog).values()
            assert reason == "name: it holds a credential of the gate for this upstream"
            assert value not in json.dumps([prompts, resources])
            fleet = FeatureFleet(lambda: {"db": features}, monotonic, timeout_s=5)
            listings = [(await fleet.list_all(kind, ["db"])).items["db"] for kind in kinds]
            assert listings == [[], []]
            return
        (tool,) = catalog.all()
        assert (tool.upstream_name, tool.args_schema["properties"]["of"]["enum"]) == (
            f"list_{value}",
            [value, "orders"],
        )
        assert (prompts, resources) == ([{"name": f"tell_{value}"}], [{"uri": f"db://{value}", "name": value}])
        assert features.support.instructions == f"Begin with list_{value}."

        async def call(*permissions: str) -> dict[str, Any]:
            caller = LocalGate(gate, Identity("alice", permissions))
            return dict((await caller.call("tool_execute", {"tool_id": tool.id, "args": {"of": value}})).structured)

        assert (await call("tools:*"))["error"] == "HYDRATE_FAILED"
        allowed = await call("tools:*", "secret:read")
        assert f"5 of {said}" in json.dumps(allowed) and f"db://{value}" in json.dumps(allowed)
