"""Questions of servers of one era, and answers of clients, where the words of the two eras differ."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp import types as t

from tests.support.both_eras import BothEras, both_eras_server
from tests.support.mcp_client import OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import BOUND_S, running_service
from tests.support.wire_client import WireClient
from wicketgate.errors import InputRequired
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

pytestmark = pytest.mark.usefixtures("both_ways")

PAGE = {"mode": "url", "message": "Sign in.", "url": "https://pay.example.com/in"}
ACCEPT = {"action": "accept"}
TOOL = {"name": "ask", "inputSchema": {"type": "object"}}


@requirement("FACE-99")
@pytest.mark.parametrize("own", [None, "of-the-server"])
async def test_a_page_without_an_id_is_put_to_a_client_of_the_handshake_era_with_one_of_ours(own: str | None) -> None:
    asked: list[Any] = []

    async def answer(context: Any, params: Any) -> t.ElicitResult:
        asked.append(params.elicitation_id)
        return t.ElicitResult(action="accept")

    async def ask(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        page = PAGE if own is None else {**PAGE, "elicitationId": own}
        said = [await context.caller.ask("elicitation/create", page) for _ in range(2)]
        return {"content": [{"type": "text", "text": " ".join(one["action"] for one in said)}]}

    async with (
        running_service(upstreams=[StubUpstream([TOOL], ask, name="new")]) as service,
        mcp_client(service, OLD, path="/mcp/namespaced", client={"elicitation_callback": answer}) as client,
        asyncio.timeout(BOUND_S),
    ):
        result = await client.call_tool("new__ask", {})
    assert result.content[0].model_dump()["text"] == "accept accept"
    assert all(asked)
    assert (len(set(asked)) == 2) if own is None else (asked == [own, own])


@requirement("FACE-100")
@pytest.mark.parametrize(
    ("path", "name", "arguments"),
    [
        ("/mcp/namespaced", "new__ask", {}),
        ("/mcp/gateway", "tool_execute", {"tool_id": "new:ask", "args": {}}),
        ("/mcp/registry", "call", {"operation": "/new/ask", "input": {}}),
    ],
)
async def test_answers_without_their_state_begin_a_call_that_asks_anew(
    path: str, name: str, arguments: dict[str, Any]
) -> None:
    given: list[Any] = []

    async def ask(tool: str, args: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        given.append(context.answers)
        if context.answers is None:
            raise InputRequired({"page": {"method": "elicitation/create", "params": PAGE}}, "mine")
        return {"content": [{"type": "text", "text": str(context.answers.request_state)}]}

    async with running_service(upstreams=[StubUpstream([TOOL], ask, name="new")]) as service:
        client = WireClient(service, MODERN, path, capabilities={"elicitation": {"url": {}}})
        first = (await client.call(name, arguments))["result"]
        anew = (await client.call(name, arguments, more={"inputResponses": {"page": ACCEPT, "other": ACCEPT}}))[
            "result"
        ]
        assert anew["resultType"] == "input_required"
        assert anew["inputRequests"] == first["inputRequests"]
        assert given == [None, None], "no answer reached the server"
        more = {"inputResponses": {"page": ACCEPT}, "requestState": anew["requestState"]}
        done = (await client.call(name, arguments, more=more))["result"]
        refused = await client.call(name, arguments, more={**more, "requestState": "forged"})
    assert "mine" in str(done["content"])
    assert refused["error"]["code"] == -32602


@requirement("UP-280")
@pytest.mark.parametrize(
    ("path", "name", "arguments"),
    [
        ("/mcp/namespaced", "both__era", {}),
        ("/mcp/gateway", "tool_execute", {"tool_id": "both:era", "args": {}}),
        ("/mcp/registry", "call", {"operation": "/both/era", "input": {}}),
    ],
)
async def test_a_server_of_both_eras_is_called_in_the_era_of_a_client_that_can_be_asked(
    path: str, name: str, arguments: dict[str, Any]
) -> None:
    server = BothEras()
    declared: list[Any] = [None, {"elicitation": {"form": {}}}]
    async with both_eras_server(server) as upstream, running_service(upstreams=[upstream]) as service:
        for era in (MODERN, HANDSHAKE):
            for capabilities in declared:
                answer = await WireClient(service, era, path, capabilities).call(name, arguments)
                second = era == HANDSHAKE and capabilities is not None
                assert (server.sessions.pop() if second else MODERN) in str(answer["result"])
                assert not server.sessions
