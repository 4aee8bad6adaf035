import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.anthropic_replies import (
    PING,
    begin,
    block,
    end,
    event,
    messages_text_turn,
    messages_tool_turn,
    text_block,
)
from tests.support.model_server import CUT, HOLD, ModelServer, Reply, json_reply
from tests.support.requirement import requirement
from wicketgate.engine.turn import Turn
from wicketgate.errors import ContextOverflow, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.models.anthropic.exchange import AnthropicMessagesProvider
from wicketgate.models.endpoint import ModelAddress, Timeouts
from wicketgate.models.provider import Finish, Message, ModelEvent, ModelRequest, ModelTool, TextDelta, ToolCall, Usage

KEY = "key-0123456789abcdef"
HI: Message = {"role": "user", "content": "hi"}
TOOL = ModelTool("tool_browse", "Browse.", {"type": "object"})


@asynccontextmanager
async def provider_for(
    server: ModelServer, *, timeouts: Timeouts | None = None, extra: Mapping[str, Any] | None = None
) -> AsyncIterator[AnthropicMessagesProvider]:
    timeouts = timeouts or Timeouts(5, 5)
    provider = AnthropicMessagesProvider(
        ModelAddress(server.base_url, KEY, timeouts),
        "model-1",
        context_tokens=8192,
        max_tokens=1000,
        extra=extra,
    )
    try:
        with anyio.fail_after(10):
            yield provider
    finally:
        await provider.aclose()


def ask(*messages: Message, tools: Sequence[ModelTool] = (TOOL,)) -> ModelRequest:
    return ModelRequest(messages or (HI,), tools, "req_1")


async def answer(provider: AnthropicMessagesProvider, request: ModelRequest | None = None) -> list[ModelEvent]:
    return [event async for batch in provider.stream(request or ask()) for event in batch]


async def failure(provider: AnthropicMessagesProvider) -> tuple[list[ModelEvent], EngineError]:
    events: list[ModelEvent] = []
    with pytest.raises(EngineError) as raised:
        async for batch in provider.stream(ask()):
            events += batch
    return events, raised.value


@requirement("OPS-14")
async def test_the_request_is_a_streamed_message_with_the_key_the_version_and_the_correlation_id() -> None:
    async with ModelServer(messages_text_turn("x")) as server, provider_for(server, extra={"top_k": 1}) as provider:
        assert await answer(provider) == [TextDelta("x"), Finish("stop", Usage(10, 5))]
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.body["stream"] is True and request.body["max_tokens"] == 1000 and request.body["top_k"] == 1
    assert request.headers["x-api-key"] == KEY and "authorization" not in request.headers
    assert (request.headers["anthropic-version"], request.headers["x-correlation-id"]) == ("2023-06-01", "req_1")


async def test_a_delta_is_out_before_the_next_one_is_sent() -> None:
    more = asyncio.Event()
    first, *rest = text_block(0, "a", "b")
    reply = Reply([begin(), first, rest[0], more, *rest[1:], *end("end_turn")])
    async with ModelServer(reply) as server, provider_for(server) as provider, aclosing(provider.stream(ask())) as turn:
        assert await anext(turn) == [TextDelta("a")]
        more.set()
        assert [event async for batch in turn for event in batch] == [TextDelta("b"), Finish("stop", Usage(10, 5))]


@requirement("CHAT-43", "CHAT-62")
async def test_thoughts_of_a_tool_turn_go_back_with_its_results() -> None:
    first = messages_tool_turn(("toolu_1", "tool_browse", {"path": "/"}), text="Looking.", thinking=("Hm.", "sig=="))
    async with ModelServer(first, messages_text_turn("Done.")) as server, provider_for(server) as provider:
        turn = Turn(set())
        async for batch in provider.stream(ask()):
            turn.read(batch)
        assert [(call.id, call.arguments) for call in turn.calls] == [("toolu_1", {"path": "/"})]
        result: Message = {"role": "tool", "tool_call_id": "toolu_1", "content": "{}"}
        await answer(provider, ask(HI, turn.message(), result))
        asked = server.requests[1].body["messages"][1]
        assert server.connections == 1
    assert asked == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "toolu_1", "name": "tool_browse", "input": {"path": "/"}},
        ],
    }


async def test_a_paused_turn_is_sent_back_as_it_is_and_is_one_turn_for_the_caller() -> None:
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
    paused = Reply([begin(), *text_block(0, "Searching. "), *block(1, search), *end("pause_turn", 3)])
    async with ModelServer(paused, messages_text_turn("Found.")) as server, provider_for(server) as provider:
        assert await answer(provider) == [TextDelta("Searching. "), TextDelta("Found."), Finish("stop", Usage(20, 8))]
        assert server.requests[1].body["messages"][-1] == {
            "role": "assistant",
            "content": [{"type": "text", "text": "Searching. "}, search],
        }


async def test_a_turn_that_is_paused_again_and_again_is_a_failure() -> None:
    paused = Reply([begin(), *text_block(0, "x"), *end("pause_turn")])
    async with ModelServer(*[paused] * 20) as server, provider_for(server) as provider:
        assert type((await failure(provider))[1]) is ProviderError
        assert len(server.requests) == 8


@requirement("CHAT-56", "CHAT-57")
@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}, ContextOverflow),
        (413, {"type": "request_too_large", "message": "Request exceeds the maximum size"}, ContextOverflow),
        (400, {"type": "invalid_request_error", "message": "Your credit balance is too low"}, ProviderError),
        (401, {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}, ProviderError),
        (429, {"type": "rate_limit_error", "message": "slow"}, ProviderUnavailable),
        (529, {"type": "overloaded_error", "message": "Overloaded"}, ProviderUnavailable),
    ],
)
async def test_a_refusal_gets_its_kind_and_its_words_stay_without_the_key(
    status: int, error: dict[str, str], kind: type[EngineError]
) -> None:
    reply = json_reply(status, {"type": "error", "error": error}, {"retry-after": "7"})
    async with ModelServer(reply) as server, provider_for(server) as provider:
        said, raised = await failure(provider)
    assert (said, type(raised)) == ([], kind)
    assert str(status) in str(raised) and KEY not in str(raised)
    assert not isinstance(raised, ProviderUnavailable) or raised.retry_after_s == 7


@requirement("CHAT-58")
async def test_a_message_without_its_end_is_a_failure_after_what_was_said() -> None:
    reply = Reply([begin(), *text_block(0, "par"), end("end_turn")[0], CUT])
    async with ModelServer(reply) as server, provider_for(server) as provider:
        said, error = await failure(provider)
        assert (said, type(error)) == ([TextDelta("par")], ProviderError)


@requirement("CHAT-58")
async def test_an_overload_before_the_first_event_may_be_tried_again() -> None:
    reply = Reply([begin(), event("error", error={"type": "overloaded_error", "message": "Overloaded"})])
    async with ModelServer(reply) as server, provider_for(server) as provider:
        assert isinstance((await failure(provider))[1], ProviderUnavailable)


@requirement("CHAT-60")
async def test_pings_are_no_event_of_the_answer() -> None:
    async with (
        ModelServer(Reply([PING, PING, HOLD])) as server,
        provider_for(server, timeouts=Timeouts(0.1, 5)) as provider,
    ):
        assert isinstance((await failure(provider))[1], ProviderSilent)
        await server.requests[0].hung_up.wait()


@requirement("CHAT-72")
async def test_closing_the_generator_ends_the_request_at_once() -> None:
    async with ModelServer(Reply([begin(), *text_block(0, "x"), HOLD])) as server, provider_for(server) as provider:
        async with aclosing(provider.stream(ask())) as turn:
            assert await anext(turn) == [TextDelta("x")]
        with anyio.fail_after(1):
            await server.requests[0].hung_up.wait()


async def test_calls_come_whole_and_last() -> None:
    reply = messages_tool_turn(("a", "tool_browse", {"path": "/"}), ("b", "tool_browse", '{"broken'), text="T")
    async with ModelServer(reply) as server, provider_for(server) as provider:
        said = await answer(provider)
    assert [event.arguments for event in said if isinstance(event, ToolCall)] == [{"path": "/"}, None]
    assert said[-1] == Finish("tool_calls", Usage(10, 5))
