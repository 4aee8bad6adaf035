"""A part of the gate at a path of its own: it takes tools away, and gives none."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.contract.test_face_by_client import SCHEMA, THREE, WIRE_ERAS, answer, listed
from tests.contract.test_oauth_door import configured
from tests.contract.test_revocation import by
from tests.support.issuer import Issuer
from tests.support.mcp_client import ERAS, mcp_client
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE
from tests.support.service import READER_KEY, RunningService, running_service
from tests.support.wire_client import ACCEPT, WireClient
from wicketgate.config.settings import Settings
from wicketgate.upstreams.embedded import StubUpstream

pytestmark = pytest.mark.usefixtures("both_ways")

GATES = {
    "support": {"tools": ["desk:*", "files:read_file"], "face": "namespaced"},
    "few": {
        "tools": ["desk:*"],
        "always": ["*:find"],
        "access": [{"match": "desk:close", "approval": {"by": "role:lead"}}, {"match": "desk:drop", "effect": "deny"}],
        "quota": {"per_actor": 2},
    },
}


def servers() -> list[StubUpstream]:
    names = {"desk": ("find", "close", "drop"), "files": ("read_file", "write_file")}
    return [
        StubUpstream([{"name": name, "inputSchema": SCHEMA} for name in tools], answer, name=server)
        for server, tools in names.items()
    ]


def through(service: RunningService, gate: str, era: str) -> WireClient:
    return WireClient(service, era, f"/mcp/gates/{gate}", query="")


def run(tool: str) -> Mapping[str, Any]:
    return {"tool_id": tool, "args": {"n": 1}}


async def text_of(client: WireClient, tool: str, arguments: Mapping[str, Any]) -> str:
    text: str = (await client.call(tool, arguments))["result"]["content"][0]["text"]
    return text


@WIRE_ERAS
@requirement("ACCESS-360")
async def test_a_gate_has_its_tools_and_no_others_whatever_the_caller_may(era: str) -> None:
    async with running_service(upstreams=servers(), settings={"gates": GATES}) as service:
        client = through(service, "support", era)
        assert await listed(client) == ["desk__close", "desk__drop", "desk__find", "files__read_file"]
        assert await text_of(client, "files__read_file", {"n": 1}) == "read_file 1"
        called = await client.call("files__write_file", {"n": 1})
        unknown = await client.call("files__no_such", {"n": 1})
        said = [str(each.get("error") or each["result"]) for each in (called, unknown)]
        assert said[0].replace("write_file", "no_such") == said[1]
        few = through(service, "few", era)
        assert "files" not in await text_of(few, "tool_browse", {"path": "/"})
        assert "files:" not in await text_of(few, "tool_browse", {"query": "write a file"})
        # The whole gate is as it was.
        assert "files" in await text_of(WireClient(service, era, "/mcp", query=""), "tool_browse", {"path": "/"})


@requirement("ACCESS-360")
async def test_a_gate_gives_no_tool_that_the_caller_may_not_use() -> None:
    async with running_service(upstreams=servers(), settings={"gates": GATES}) as service:
        service.http.headers["authorization"] = f"Bearer {READER_KEY}"
        assert await listed(through(service, "support", HANDSHAKE)) == ["files__read_file"]


@WIRE_ERAS
@requirement("ACCESS-360")
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"match": "desk:*", "require": ["role:owner"]}, "HYDRATE_FAILED"),
        ({"match": "desk:*", "approval": {"by": "role:boss"}}, "role:boss and role:lead"),
        ({"match": "desk:*"}, "role:lead"),
    ],
)
async def test_the_strictest_of_both_rules_counts(era: str, rule: Mapping[str, Any], said: str) -> None:
    async with running_service(upstreams=servers(), settings={"gates": GATES, "access": [rule]}) as service:
        few = through(service, "few", era)
        assert said in await text_of(few, "tool_execute", run("desk:close"))
        assert "HYDRATE_FAILED" in await text_of(few, "tool_execute", run("desk:drop"))


@WIRE_ERAS
@requirement("ACCESS-362")
async def test_a_gate_counts_what_went_through_it(era: str) -> None:
    async with running_service(upstreams=servers(), settings={"gates": GATES}) as service:
        few, whole = through(service, "few", era), WireClient(service, era, "/mcp", query="")
        given = [await text_of(each, "tool_execute", run("desk:find")) for each in (few, whole, few, few, whole)]
        assert ["RATE_LIMITED" in text for text in given] == [False, False, False, True, False]
        assert "At most 2 executions" in given[3]


@WIRE_ERAS
@requirement("ACCESS-364")
async def test_a_gate_lists_its_own_tools_next_to_the_three(era: str) -> None:
    whole = {"mcp": {"always": ["files:read_file"]}, "gates": {**GATES, "plain": {"tools": ["files:*"]}}}
    async with running_service(upstreams=servers(), settings=whole) as service:
        assert await listed(through(service, "few", era)) == [*THREE, "desk__find"]
        assert await listed(through(service, "plain", era)) == THREE
    with pytest.raises(ValidationError, match="always is for face: gateway"):
        Settings.model_validate({"gates": {"a": {"tools": ["*:*"], "face": "namespaced", "always": ["*:*"]}}})


@ERAS
@requirement("ACCESS-361")
async def test_a_token_opens_the_gate_that_it_is_for_and_nothing_else(mode: str) -> None:
    async with Issuer() as issuer:
        entry = {"name": "corp", "issuer": issuer.url, "audience": ["{resource}"]}
        settings = {**configured(entry), "gates": GATES}
        async with running_service(upstreams=servers(), settings=settings) as service:
            url = "https://gate.example/mcp/gates/support"
            token = issuer.token(aud=url)
            async with mcp_client(service, mode, token, path="/mcp/gates/support") as client:
                assert "desk__find" in [tool.name for tool in (await client.list_tools()).tools]
            for path in ("/mcp", "/mcp/gates/few", "/mcp/namespaced", "/operations/call"):
                refused = await service.http.post(path, json={}, headers=by(token))
                assert refused.status_code == 401, path
            whole = await service.http.post("/mcp/gates/support", json={}, headers=by(issuer.token()))
            assert whole.status_code == 401
            known = await service.http.get("/.well-known/oauth-protected-resource/mcp/gates/support")
            assert known.json()["resource"] == url


@requirement("ACCESS-363")
async def test_a_session_is_of_the_gate_where_it_was_opened() -> None:
    opening = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
    async with running_service(upstreams=servers(), settings={"gates": GATES}) as service:
        opened = await service.http.post("/mcp", json=message, headers=ACCEPT)
        headers = {**ACCEPT, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        statuses = [
            (await service.http.post(path, json=asked, headers=headers)).status_code
            for path in ("/mcp", "/mcp/gates/few", "/mcp/gates/nosuch")
        ]
        assert statuses == [200, 404, 404]
        # A process that does not know the gate, as after a reload of other rules.
        service.app.state.gate.runtime.access.gates = {}
        assert await listed(through(service, "support", HANDSHAKE)) == []


@requirement("ACCESS-365")
async def test_records_name_the_gate(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit = {"_global": [{"handler": "audit_jsonl", "config": {"path": str(file)}}]}
    settings = {"gates": GATES, "plugins": {"auditing": audit}}
    async with running_service(upstreams=servers(), settings=settings) as service:
        for each in (through(service, "few", HANDSHAKE), WireClient(service, HANDSHAKE, "/mcp", query="")):
            await text_of(each, "tool_execute", run("desk:find"))
    records = map(json.loads, file.read_text().splitlines())
    assert [each["gate"] for each in records if each["operation"] == "execute" and each["phase"] == "end"] == [
        "few",
        "",
    ]
