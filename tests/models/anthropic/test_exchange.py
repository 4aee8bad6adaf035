from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.models.asking import HI, KEY, answer, ask, closing, failure
from tests.support.anthropic_replies import (
    PING,
    begin,
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
from wicketgate.models.provider import Finish, Message, TextDelta, ToolCall, Usage


def provider_for(
    server: ModelServer, *, timeouts: Timeouts | None = None, extra: Mapping[str, Any] | None = None
) -> AbstractAsyncContextManager[AnthropicMessagesProvider]:
    address = ModelAddress(server.base_url, KEY, timeouts or Timeouts(5, 5))
    return closing(AnthropicMessagesProvider(address, "model-1", context_tokens=8192, max_tokens=1000, extra=extra))


@requirement("OPS-14")
async def test_the_request_is_a_streamed_message_with_the_key_the_version_and_the_correlation_id() -> None:
    async with ModelServer(messages_text_turn("x")) as server, provider_for(server, extra={"top_k": 1}) as provider:
        assert await answer(provider) == [TextDelta("x"), Finish("stop", Usage(10, 5))]
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.body["stream"] is True and request.body["max_tokens"] == 1000 and request.body["top_k"] == 1
    assert request.headers["x-api-key"] == KEY and "authorization" not in request.headers
    assert (request.headers["anthropic-version"], request.headers["x-correlation-id"]) == ("2023-06-01", "req_1")


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


async def test_calls_come_whole_and_last() -> None:
    reply = messages_tool_turn(("a", "tool_browse", {"path": "/"}), ("b", "tool_browse", '{"broken'), text="T")
    async with ModelServer(reply) as server, provider_for(server) as provider:
        said = await answer(provider)
    assert [event.arguments for event in said if isinstance(event, ToolCall)] == [{"path": "/"}, None]
    assert said[-1] == Finish("tool_calls", Usage(10, 5))
