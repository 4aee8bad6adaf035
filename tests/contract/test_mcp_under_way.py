"""Messages and questions of a tool server while a call runs, through ``/mcp`` to the official client of either era."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp import types as t
from mcp.shared.exceptions import MCPDeprecationWarning

from tests.support.mcp_client import ERAS, NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, OTHER_KEY, RunningService, running_service
from wicketgate.config.settings import Settings
from wicketgate.errors import InputRequired
from wicketgate.ports import CallContext, CannotAsk
from wicketgate.upstreams.embedded import StubUpstream

pytestmark = [
    pytest.mark.usefixtures("both_ways"),
    pytest.mark.filterwarnings(f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}"),
]

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {"mode": "form", "message": "Your name?", "requestedSchema": NAME}


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def stub(handler: Any, *tools: str) -> StubUpstream:
    definitions = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in tools]
    return StubUpstream(definitions, handler, name="files")


async def execute(client: Client, tool: str, progress: Any = None, **args: Any) -> t.CallToolResult:
    call = {"tool_id": await tool_id(client, tool), "args": args}
    return await client.call_tool("tool_execute", call, progress_callback=progress)


@ERAS
@requirement("FACE-9")
async def test_progress_reaches_the_client_that_asked_for_it(mode: str) -> None:
    async def count(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        for step in (1, 2, 3):
            await context.caller.progress(step, 3, f"step {step}")
        return said("done")

    heard: list[tuple[float, float | None, str | None]] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append((value, total, message))

    async with running_service(upstreams=[stub(count, "count")]) as service, mcp_client(service, mode) as client:
        for _ in range(2):
            await execute(client, "count", progress)
        assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")] * 2
        assert not (await execute(client, "count")).is_error
    assert len(heard) == 6


@pytest.mark.parametrize(
    ("mode", "asked", "wanted"),
    [
        (NEW, None, []),
        (NEW, "info", ["info", "error"]),
        (OLD, None, ["debug", "info", "error"]),
        (OLD, "error", ["error"]),
    ],
)
@requirement("FACE-4", "FACE-10")
async def test_log_messages_come_before_the_result_and_from_the_level_that_was_asked_for(
    mode: str, asked: Any, wanted: list[str]
) -> None:
    async def chat(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        for level in ("debug", "info", "nonsense", "error"):
            await context.caller.log(level, {"at": level}, "files")
        return said("done")

    heard: list[t.LoggingMessageNotificationParams] = []

    async def logged(params: t.LoggingMessageNotificationParams) -> None:
        heard.append(params)

    options = {"logging_callback": logged, "log_level": asked if mode == NEW else None}
    async with (
        running_service(upstreams=[stub(chat, "chat")]) as service,
        mcp_client(service, mode, client=options) as client,
    ):
        if mode == OLD and asked:
            await client.set_logging_level(asked)
        await execute(client, "chat")
        assert [(one.level, one.data, one.logger) for one in heard] == [
            (level, {"at": level}, "files") for level in wanted
        ]


@requirement("FACE-13")
async def test_a_client_that_does_not_read_holds_up_no_tool_server() -> None:
    told = asyncio.Event()

    async def flood(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        for _ in range(50_000):
            await context.caller.log("info", "x" * 1_000, None)
        told.set()
        return said("done")

    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": NEW,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "tool_execute",
    }
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "debug",
    }
    async with running_service(upstreams=[stub(flood, "flood")]) as service:
        async with mcp_client(service, NEW) as client:
            params = {"name": "tool_execute", "arguments": {"tool_id": await tool_id(client, "flood")}, "_meta": meta}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with service.http.stream("POST", "/mcp", json=call, headers=headers), asyncio.timeout(BOUND_S):
            await told.wait()


async def ask_name(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    """Asks as a tool server of either era would: at once where it can, else for a second attempt."""
    if "elicitation" not in context.caller.capabilities:
        return said("nobody to ask")
    if context.caller.answers == "now":
        try:
            answer = await context.caller.ask("elicitation/create", QUESTION)
        except CannotAsk:
            return said("refused")
        return said(f"{answer['action']} {answer.get('content', {}).get('name')}")
    if context.answers is None:
        raise InputRequired({"who": {"method": "elicitation/create", "params": QUESTION}}, arguments.get("state"))
    return said(f"{context.answers.responses['who']['content']['name']} {context.answers.request_state}")


async def answer_ada(context: Any, params: Any) -> t.ElicitResult:
    assert params.message == "`files` asks: Your name?"
    return t.ElicitResult(action="accept", content={"name": "Ada"})


@pytest.mark.parametrize(
    ("mode", "args", "expected"),
    [
        (OLD, {}, "accept Ada"),
        (NEW, {}, "Ada None"),
        (NEW, {"state": "s|ü\u2028"}, "Ada s|ü\u2028"),
        (NEW, {"state": ""}, "Ada "),
    ],
)
@requirement("FACE-11")
async def test_a_tool_server_can_ask_a_client_that_answers(mode: str, args: dict[str, Any], expected: str) -> None:
    options = {"elicitation_callback": answer_ada}
    async with (
        running_service(upstreams=[stub(ask_name, "ask")]) as service,
        mcp_client(service, mode, client=options) as client,
    ):
        result = await execute(client, "ask", **args)
    assert isinstance(result.structured_content, dict)
    assert (result.is_error, result.structured_content["summary"]) == (False, expected)


async def roots_only(context: Any) -> t.ListRootsResult:
    return t.ListRootsResult(roots=[])


@ERAS
@pytest.mark.parametrize("declared", [{}, {"list_roots_callback": roots_only}], ids=["nothing", "roots"])
@requirement("FACE-11")
async def test_a_client_is_not_asked_what_it_did_not_declare(mode: str, declared: dict[str, Any]) -> None:
    async with (
        running_service(upstreams=[stub(ask_name, "ask")]) as service,
        mcp_client(service, mode, client=declared) as client,
    ):
        result = await execute(client, "ask")
    assert isinstance(result.structured_content, dict)
    assert result.structured_content["summary"] == "nobody to ask"


@requirement("FACE-11")
async def test_a_client_that_fails_to_answer_is_one_that_cannot_be_asked() -> None:
    async def fail(context: Any, params: Any) -> t.ErrorData:
        return t.ErrorData(code=-1, message="secret of the client")

    async with (
        running_service(upstreams=[stub(ask_name, "ask")]) as service,
        mcp_client(service, OLD, client={"elicitation_callback": fail}) as client,
    ):
        result = await execute(client, "ask")
    assert isinstance(result.structured_content, dict)
    assert result.structured_content["summary"] == "refused"


@requirement("FACE-12")
async def test_the_state_between_two_attempts_opens_only_for_the_very_call_it_was_given_for() -> None:
    server = stub(ask_name, "ask", "other")
    answers: Any = {"who": t.ElicitResult(action="accept", content={"name": "Eve"})}
    options = {"elicitation_callback": answer_ada}
    async with running_service(upstreams=[server]) as service, mcp_client(service, NEW, client=options) as client:
        ids = {tool: await tool_id(client, tool) for tool in ("ask", "other")}

        async def first(**args: Any) -> str:
            call = {"tool_id": ids["ask"], "args": args}
            result = await client.session.call_tool("tool_execute", call, allow_input_required=True)
            assert isinstance(result, t.InputRequiredResult)
            assert list(result.input_requests or {}) == ["who"]
            assert result.request_state is not None
            assert "theirs" not in result.request_state
            return result.request_state

        state = await first(state="theirs")
        asked = len(server.calls)
        same = {"tool_id": ids["ask"], "args": {"state": "theirs"}}
        for call, forged in [
            (same, state[:-2] + ("AA" if not state.endswith("AA") else "BB")),
            (same, "theirs"),
            (same, ""),
            ({"tool_id": ids["other"], "args": {"state": "theirs"}}, state),
            ({"tool_id": ids["ask"], "args": {"state": "mine"}}, state),
        ]:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("tool_execute", call, input_responses=answers, request_state=forged)
            assert refused.value.code == -32602
            assert "requestState" in refused.value.message
        async with mcp_client(service, NEW, OTHER_KEY, client=options) as stranger:
            with pytest.raises(MCPError) as foreign:
                await stranger.call_tool("tool_execute", same, input_responses=answers, request_state=state)
        assert foreign.value.code == -32602
        assert len(server.calls) == asked
        # Without a state it is a new call, and the answers reach nobody.
        anew = await client.call_tool("tool_execute", same, input_responses=answers)
        assert isinstance(anew.structured_content, dict)
        assert anew.structured_content["summary"] == "Ada theirs"

        good = await client.call_tool("tool_execute", same, input_responses=answers, request_state=state)
    assert isinstance(good.structured_content, dict)
    assert good.structured_content["summary"] == "Eve theirs"


@requirement("FACE-1")
async def test_a_state_opens_at_every_replica_whose_ring_holds_its_key() -> None:
    options = {"elicitation_callback": answer_ada}
    call: dict[str, Any] = {}

    async def asked(service: RunningService) -> str:
        async with mcp_client(service, NEW, client=options) as client:
            call.update({"tool_id": await tool_id(client, "ask"), "args": {"state": "theirs"}})
            result = await client.session.call_tool("tool_execute", call, allow_input_required=True)
        assert isinstance(result, t.InputRequiredResult)
        assert result.request_state is not None
        return result.request_state

    async def opens(service: RunningService, state: str) -> bool:
        responses: Any = {"who": t.ElicitResult(action="accept", content={"name": "Eve"})}
        async with mcp_client(service, NEW, client=options) as client:
            try:
                await client.call_tool("tool_execute", call, input_responses=responses, request_state=state)
            except MCPError as refused:
                assert refused.code == -32602
                return False
        return True

    def ring(*keys: str) -> AbstractAsyncContextManager[RunningService]:
        return running_service(upstreams=[stub(ask_name, "ask")], settings={"auth": {"seal_keys": list(keys)}})

    old, new = "o" * 32, "n" * 32
    async with ring(old) as one, ring(new, old) as two, ring(new) as three, ring() as four:
        state = await asked(one)
        assert [await opens(each, state) for each in (one, two, three, four)] == [True, True, False, False]
        # A reload changes the ring of a running service.
        after = {"auth": {"seal_keys": [new, old]}}
        await three.app.state.gate.apply(Settings.model_validate(after))
        assert await opens(three, state)


@requirement("FACE-12")
async def test_a_question_that_is_not_mcp_is_an_error_of_the_upstream() -> None:
    async def nonsense(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        raise InputRequired({"who": {"method": "shell/run", "params": {"command": "secret"}}}, "state")

    async with (
        running_service(upstreams=[stub(nonsense, "ask")]) as service,
        mcp_client(service, NEW, client={"elicitation_callback": answer_ada}) as client,
    ):
        result = await execute(client, "ask")
    assert isinstance(result.structured_content, dict)
    assert (result.is_error, result.structured_content["error"]) == (True, "UPSTREAM_ERROR")
    assert "secret" not in result.model_dump_json()


async def tool_id(client: Client, tool: str) -> str:
    browse = await client.call_tool("tool_browse", {"path": "/files"})
    assert isinstance(browse.structured_content, dict)
    (found,) = [card["id"] for card in browse.structured_content["cards"] if card["name"] == tool]
    return str(found)
