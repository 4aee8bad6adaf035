import asyncio
import gzip
import json
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from tests.models.asking import HI, KEY, TOOL, answer, ask, closing, failure
from tests.models.streams import HTTP_ERRORS
from tests.support.http_service import HttpService
from tests.support.http_service import Reply as HttpReply
from tests.support.model_server import (
    CUT,
    DONE,
    HOLD,
    RESET,
    SSE,
    ModelServer,
    Reply,
    Step,
    chunk,
    json_reply,
    text_turn,
    tool_turn,
    usage_chunk,
)
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError, ContextOverflow, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.models.endpoint import ModelAddress, Timeouts
from wicketgate.models.openai.exchange import OpenAIChatProvider
from wicketgate.models.provider import Finish, Message, ModelEvent, TextDelta, ToolCall, Usage


def provider_for(
    server: ModelServer,
    *,
    api_key: str | None = KEY,
    first_event_timeout_s: float = 5,
    idle_timeout_s: float = 5,
    stall_timeout_s: float = 5,
    max_tokens: int | None = None,
    extra: Mapping[str, Any] | None = None,
) -> AbstractAsyncContextManager[OpenAIChatProvider]:
    timeouts = Timeouts(first_event_timeout_s, idle_timeout_s, stall_timeout_s)
    address = ModelAddress(server.base_url, api_key, timeouts)
    return closing(OpenAIChatProvider(address, "model-1", context_tokens=8192, max_tokens=max_tokens, extra=extra))


async def test_text_arrives_piece_by_piece_and_the_finish_last() -> None:
    async with ModelServer(text_turn("Hel", "lo", usage=(10, 5))) as server, provider_for(server) as provider:
        assert await answer(provider) == [TextDelta("Hel"), TextDelta("lo"), Finish("stop", Usage(10, 5))]


async def test_what_one_read_brought_is_one_batch() -> None:
    whole = b"".join([chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop"), DONE])
    async with ModelServer(Reply([whole])) as server, provider_for(server) as provider:
        batches = [batch async for batch in provider.stream(ask())]
        assert batches == [[TextDelta("a"), TextDelta("b"), Finish("stop", None)]]


@requirement("CHAT-95")
async def test_what_a_fast_model_wrote_at_once_comes_in_batches_of_bounded_size() -> None:
    words = [f"word {number} " for number in range(5_000)]
    async with ModelServer(text_turn(*words)) as server, provider_for(server) as provider:
        batches = [batch async for batch in provider.stream(ask())]
    assert [event.content for batch in batches for event in batch if isinstance(event, TextDelta)] == words
    sizes = [sum(len(event.content) for event in batch if isinstance(event, TextDelta)) for batch in batches]
    # An event of the wire is longer than its text.
    assert max(sizes) < 32_768 / 4


@requirement("OPS-14")
async def test_the_request_is_a_streamed_chat_completion_with_the_correlation_id_and_the_key() -> None:
    async with ModelServer(text_turn("x")) as server, provider_for(server) as provider:
        frozen: Message = MappingProxyType({"role": "user", "content": "\u00e9"})
        await answer(provider, ask(frozen, tools=[TOOL]))
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.body == {
        "model": "model-1",
        "messages": [{"role": "user", "content": "\u00e9"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "tool_browse", "description": "Browse.", "parameters": TOOL.parameters},
            }
        ],
    }
    assert request.headers["x-correlation-id"] == "req_1"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["accept-encoding"] == "identity"
    assert not [name for name in request.headers if name.startswith("x-actor") or name == "cookie"]


async def test_without_a_key_and_without_tools_neither_is_sent() -> None:
    async with ModelServer(text_turn("x")) as server, provider_for(server, api_key=None) as provider:
        await answer(provider)
        assert "authorization" not in server.requests[0].headers
        assert "tools" not in server.requests[0].body


@requirement("CHAT-43", "CHAT-49")
async def test_a_conversation_of_two_turns_with_tools_works_over_one_connection() -> None:
    script = [
        tool_turn(("c1", "tool_browse", {"path": "/"}), ("c2", "tool_browse", {"path": "/a"}), text="Looking."),
        text_turn("Done."),
    ]
    async with ModelServer(*script) as server, provider_for(server) as provider:
        first = await answer(provider, ask(tools=[TOOL]))
        calls = [event for event in first if isinstance(event, ToolCall)]
        assert [(call.id, call.arguments) for call in calls] == [("c1", {"path": "/"}), ("c2", {"path": "/a"})]
        assert (first[0], first[-1]) == (TextDelta("Looking."), Finish("tool_calls", Usage(10, 5)))

        asked: Message = {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
                for call in calls
            ],
        }
        results: list[Message] = [{"role": "tool", "tool_call_id": call.id, "content": "{}"} for call in calls]
        second = await answer(provider, ask(HI, asked, *results, tools=[TOOL]))
        assert second == [TextDelta("Done."), Finish("stop", Usage(10, 5))]
        assert server.requests[1].body["messages"] == [HI, asked, *results]
        assert server.connections == 1


@requirement("CHAT-56", "CHAT-57")
@pytest.mark.parametrize("recorded", HTTP_ERRORS, ids=lambda recorded: json.dumps(recorded["body"])[:60])
async def test_a_refusal_gets_the_code_of_the_contract(recorded: dict[str, object]) -> None:
    status = recorded["status"]
    assert isinstance(status, int)
    async with ModelServer(json_reply(status, recorded["body"])) as server, provider_for(server) as provider:
        said, error = await failure(provider)
    assert (said, error.code) == ([], recorded["code"])
    assert str(status) in str(error)


@requirement("CHAT-56")
@pytest.mark.parametrize("status", [204, 301, 307, 400, 401, 403, 404, 429, 500, 503])
async def test_every_other_status_is_a_provider_error_and_no_redirect_is_followed(status: int) -> None:
    async with ModelServer() as server, provider_for(server) as provider:
        server.script = [Reply([], status, {"location": f"{server.base_url}/elsewhere"}), text_turn("x")]
        said, error = await failure(provider)
        assert (said, isinstance(error, ProviderError), len(server.requests)) == ([], True, 1)


async def test_a_refusal_by_the_content_filter_ends_the_turn() -> None:
    refusal = json_reply(400, {"error": {"code": "content_filter", "message": "filtered"}})
    async with ModelServer(refusal) as server, provider_for(server) as provider:
        assert await answer(provider) == [Finish("content_filter", None)]


@requirement("CHAT-64")
async def test_a_server_that_refuses_stream_options_is_asked_without_them_from_then_on() -> None:
    refusal = json_reply(400, {"error": {"message": "Unrecognized request argument: stream_options"}})
    async with (
        ModelServer(refusal, text_turn("a", usage=None), text_turn("b", usage=None)) as server,
        provider_for(server) as provider,
    ):
        assert await answer(provider) == [TextDelta("a"), Finish("stop", None)]
        assert await answer(provider) == [TextDelta("b"), Finish("stop", None)]
        assert ["stream_options" in request.body for request in server.requests] == [True, False, False]


async def test_when_the_second_try_fails_too_the_second_refusal_counts_and_the_options_stay() -> None:
    refusal = json_reply(422, {"detail": "stream_options: not permitted"})
    full = json_reply(400, {"error": {"code": "context_length_exceeded", "message": "..."}})
    async with ModelServer(refusal, full, text_turn("x")) as server, provider_for(server) as provider:
        assert isinstance((await failure(provider))[1], ContextOverflow)
        await answer(provider)
        assert ["stream_options" in request.body for request in server.requests] == [True, False, True]


async def test_an_overflow_that_names_stream_options_is_not_tried_again() -> None:
    full = json_reply(400, {"error": {"message": "prompt is too long", "param": "stream_options"}})
    async with ModelServer(full) as server, provider_for(server) as provider:
        assert isinstance((await failure(provider))[1], ContextOverflow)
        assert len(server.requests) == 1


@requirement("CHAT-58")
@pytest.mark.parametrize("end", [CUT, RESET])
async def test_a_connection_lost_in_the_middle_is_a_provider_error_after_what_was_said(end: Step) -> None:
    read = asyncio.Event()
    async with ModelServer(Reply([chunk({"content": "par"}), read, end])) as server, provider_for(server) as provider:
        said: list[ModelEvent] = []
        with pytest.raises(ProviderError):
            async for batch in provider.stream(ask()):
                said += batch
                read.set()
        assert said == [TextDelta("par")]


@pytest.mark.parametrize("end", [CUT, RESET])
async def test_a_connection_lost_after_the_model_finished_loses_nothing(end: Step) -> None:
    steps = [chunk({"content": "x"}), chunk({}, "stop"), usage_chunk(1, 2)]
    read = asyncio.Event()
    async with ModelServer(Reply([b"".join(steps), read, end])) as server, provider_for(server) as provider:
        said: list[ModelEvent] = []
        async for batch in provider.stream(ask()):
            said += batch
            read.set()
        assert said == [TextDelta("x"), Finish("stop", Usage(1, 2))]


async def test_a_body_that_ends_a_little_after_the_done_mark_leaves_a_connection_to_use_again() -> None:
    finished = asyncio.Event()
    late = Reply([chunk({"content": "x"}), chunk({}, "stop"), DONE, finished])
    async with ModelServer(late, text_turn("y")) as server, provider_for(server) as provider:
        async for batch in provider.stream(ask()):
            if isinstance(batch[-1], Finish):
                finished.set()
        await answer(provider)
        assert server.connections == 1


async def test_a_body_that_does_not_end_after_the_done_mark_is_left() -> None:
    reply = Reply([chunk({"content": "x"}), chunk({}, "stop"), DONE, HOLD])
    async with ModelServer(reply) as server, provider_for(server) as provider:
        assert await answer(provider) == [TextDelta("x"), Finish("stop", None)]
        await server.requests[0].hung_up.wait()


async def test_a_stream_left_open_after_the_model_finished_is_ended() -> None:
    reply = Reply([chunk({"content": "x"}), chunk({}, "stop"), usage_chunk(1, 2), HOLD])
    async with ModelServer(reply) as server, provider_for(server, idle_timeout_s=0.05) as provider:
        assert await answer(provider) == [TextDelta("x"), Finish("stop", Usage(1, 2))]


@requirement("CHAT-56")
@pytest.mark.parametrize("end", [CUT, RESET])
async def test_a_server_that_closes_without_an_answer_is_a_provider_error(end: Step) -> None:
    async with ModelServer(Reply([end], silent=True)) as server, provider_for(server) as provider:
        said, error = await failure(provider)
        assert (said, error.code) == ([], "provider_error")


@requirement("CHAT-56")
async def test_a_refused_connection_is_a_provider_error() -> None:
    async with ModelServer() as server:
        pass_on = provider_for(server)
        provider = await pass_on.__aenter__()
    said, error = await failure(provider)
    await pass_on.__aexit__(None, None, None)
    assert (said, error.code) == ([], "provider_error")


async def test_what_is_not_http_is_a_provider_error() -> None:
    async def gibberish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-nothing\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(gibberish, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = OpenAIChatProvider(ModelAddress(f"http://127.0.0.1:{port}", None, Timeouts(5, 5)), "m", context_tokens=1)
    try:
        assert isinstance((await failure(provider))[1], ProviderError)
    finally:
        await provider.aclose()
        server.close()
        await server.wait_closed()


@requirement("CHAT-60")
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply([HOLD], silent=True), id="no head"),
        pytest.param(Reply([HOLD]), id="no event"),
        pytest.param(Reply([b": still thinking\n\n", HOLD]), id="comments only"),
        pytest.param(Reply([b'{"error"', HOLD], 500), id="half a refusal"),
    ],
)
async def test_no_event_in_time_is_a_provider_error_and_the_server_is_left(reply: Reply) -> None:
    async with ModelServer(reply) as server, provider_for(server, first_event_timeout_s=0.2) as provider:
        said, error = await failure(provider)
        assert (said, error.code) == ([], "provider_error")
        await server.requests[0].hung_up.wait()


@requirement("CHAT-60")
async def test_silence_in_the_middle_is_a_provider_error_and_the_server_is_left() -> None:
    reply = Reply([chunk({"content": "par"}), HOLD])
    async with ModelServer(reply) as server, provider_for(server, idle_timeout_s=0.05) as provider:
        said, error = await failure(provider)
        assert (said, type(error)) == ([TextDelta("par")], ProviderError)
        await server.requests[0].hung_up.wait()


async def test_any_byte_ends_the_silence() -> None:
    beats = [asyncio.Event() for _ in range(6)]
    steps: list[bytes | Step | asyncio.Event] = [chunk({"content": "x"})]
    for beat in beats:
        steps += [beat, b":\n"]
    steps += [chunk({}, "stop"), DONE]
    async with ModelServer(Reply(steps)) as server, provider_for(server, idle_timeout_s=1.0) as provider:
        loop = asyncio.get_running_loop()
        for number, beat in enumerate(beats, 1):
            loop.call_later(0.2 * number, beat.set)
        assert await answer(provider) == [TextDelta("x"), Finish("stop", None)]


async def test_a_slow_consumer_is_not_a_silent_server() -> None:
    late = asyncio.Event()
    steps: list[bytes | Step | asyncio.Event] = [chunk({"content": "x"}), late, chunk({}, "stop"), DONE]
    async with ModelServer(Reply(steps)) as server, provider_for(server, first_event_timeout_s=0.5) as provider:
        said: list[ModelEvent] = []
        async for batch in provider.stream(ask()):
            said += batch
            with anyio.move_on_after(0.6):
                await asyncio.Event().wait()
            late.set()
        assert said == [TextDelta("x"), Finish("stop", None)]


@requirement("CHAT-72")
@pytest.mark.parametrize("silent", [True, False])
async def test_cancelling_the_task_ends_the_request_at_once(silent: bool) -> None:
    async with ModelServer(Reply([HOLD], silent=silent)) as server, provider_for(server) as provider:
        task = asyncio.create_task(answer(provider))
        request = await server.request()
        task.cancel()
        with anyio.fail_after(1):
            await request.hung_up.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_streams_run_side_by_side_without_a_limit_of_the_pool() -> None:
    gate = asyncio.Event()
    end = [chunk({}, "stop"), DONE]
    replies = [Reply([chunk({"content": str(i)}), gate, *end]) for i in range(120)]
    async with ModelServer(*replies) as server, provider_for(server) as provider:
        turns = [asyncio.create_task(answer(provider)) for _ in replies]
        await server.request(len(replies) - 1)
        gate.set()
        texts = {event.content for turn in turns for event in await turn if isinstance(event, TextDelta)}
        assert texts == {str(i) for i in range(len(replies))}


@requirement("CHAT-36")
async def test_the_servers_words_are_kept_for_the_log_without_the_key_and_within_bounds() -> None:
    words = f"key {KEY} refused at /srv/app.py " + "x" * 100_000
    in_stream = Reply([b"data: " + json.dumps({"error": {"message": words}}).encode() + b"\n\n"])
    async with ModelServer(json_reply(500, words), in_stream) as server, provider_for(server) as provider:
        for _ in range(2):
            _, error = await failure(provider)
            assert "/srv/app.py" in str(error)
            assert KEY not in str(error)
            assert len(str(error)) <= 1000
            assert error.safe_message == ProviderError.safe_message
            assert error.__suppress_context__ and error.__cause__ is None


async def test_a_compressed_answer_that_was_not_asked_for_is_read_all_the_same() -> None:
    plain = b"".join(step for step in text_turn("Hello.").steps if isinstance(step, bytes))
    packed = Reply([gzip.compress(plain)], headers={"content-type": SSE, "content-encoding": "gzip"})
    async with ModelServer(text_turn("Hello."), packed) as server, provider_for(server) as provider:
        assert await answer(provider) == await answer(provider)


async def test_an_encoding_that_is_not_known_is_a_provider_error() -> None:
    packed = Reply([DONE], headers={"content-type": SSE, "content-encoding": "br"})
    async with ModelServer(packed) as server, provider_for(server) as provider:
        assert type((await failure(provider))[1]) is ProviderError


async def test_messages_that_cannot_be_written_are_a_provider_error_and_nothing_is_sent() -> None:
    async with ModelServer() as server, provider_for(server) as provider:
        with pytest.raises(ProviderError):
            await answer(provider, ask({"role": "user", "content": "\ud800"}))
        with pytest.raises(ProviderError):
            await answer(provider, ask({"role": "user", "content": object()}))
        assert server.requests == []


@pytest.mark.parametrize("base_url", ["", "api.example.com/v1", "ftp://example.com", "http://", "http://[::1", "/v1"])
def test_an_invalid_base_url_is_refused_at_the_start(base_url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        OpenAIChatProvider(ModelAddress(base_url, None, Timeouts(1, 1)), "m", context_tokens=1)


def test_a_key_with_a_line_end_is_refused_at_the_start_and_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        OpenAIChatProvider(ModelAddress("http://h", KEY + "\n", Timeouts(1, 1)), "m", context_tokens=1)
    assert "api_key" in str(raised.value) and KEY not in str(raised.value)


async def test_nothing_of_a_turn_is_logged_by_the_libraries_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with ModelServer(text_turn("x")) as server, provider_for(server) as provider:
        await answer(provider)
    assert caplog.records == []


@requirement("CHAT-60")
async def test_keep_alives_end_no_stall_though_they_end_the_silence() -> None:
    beats = [asyncio.Event() for _ in range(40)]
    steps: list[bytes | Step | asyncio.Event] = [chunk({"content": "x"})]
    for beat in beats:
        steps += [beat, b": still here\n\n"]
    async with (
        ModelServer(Reply([*steps, HOLD])) as server,
        provider_for(server, idle_timeout_s=1.0, stall_timeout_s=0.3) as provider,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, beat in enumerate(beats, 1):
            loop.call_later(0.05 * number, beat.set)
        said, error = await failure(provider)
        assert (said, type(error)) == ([TextDelta("x")], ProviderError)
        # Well before the last of the keep-alives: it was not the silence after them.
        assert not beats[-1].is_set() and loop.time() - began >= 0.3


@requirement("CHAT-64")
@pytest.mark.parametrize(("field", "renamed"), [("max_tokens", "max_completion_tokens"), ("parallel_tool_calls", None)])
async def test_a_field_that_the_server_does_not_know_is_renamed_or_left_out_from_then_on(
    field: str, renamed: str | None
) -> None:
    words = f"Unsupported parameter: '{field}' is not supported with this model. Use 'max_completion_tokens' instead."
    refusal = json_reply(400, {"error": {"message": words, "type": "invalid_request_error", "param": field}})
    async with (
        ModelServer(refusal, text_turn("a"), text_turn("b")) as server,
        provider_for(server, max_tokens=7, extra={"parallel_tool_calls": False}) as provider,
    ):
        await answer(provider)
        await answer(provider)
        sent = [request.body for request in server.requests]
    assert [field in body for body in sent] == [True, False, False]
    assert renamed is None or [body.get(renamed) for body in sent] == [None, 7, 7]


async def test_a_call_that_the_server_could_not_read_is_a_call_with_bad_arguments() -> None:
    refusal = json_reply(400, {"error": {"code": "tool_use_failed", "failed_generation": "<function=tool_browse{"}})
    async with ModelServer(refusal) as server, provider_for(server) as provider:
        call, finish = await answer(provider)
    assert isinstance(call, ToolCall) and (call.name, call.arguments) == ("tool_browse", None)
    assert finish == Finish("tool_calls", None)


@pytest.mark.parametrize(("headers", "wait"), [({}, None), ({"retry-after-ms": "250"}, 0.25)])
async def test_the_wait_of_an_unavailable_provider_is_passed_on(headers: dict[str, str], wait: float | None) -> None:
    async with ModelServer(json_reply(503, {"error": "busy"}, headers)) as server, provider_for(server) as provider:
        _, error = await failure(provider)
    assert isinstance(error, ProviderUnavailable) and error.retry_after_s == wait


async def test_a_late_provider_differs_from_an_absent_one() -> None:
    async with (
        ModelServer(Reply([HOLD], silent=True), Reply([CUT])) as server,
        provider_for(server, first_event_timeout_s=0.1) as provider,
    ):
        assert isinstance((await failure(provider))[1], ProviderSilent)
        assert isinstance((await failure(provider))[1], ProviderUnavailable)


@requirement("UP-67")
@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (None, "no answer from the provider: it refuses connections ({origin}): start it, or correct the port in"),
        (HttpReply(b"no such key", 401), "the provider answered 401 (correct model.api_key; has it expired"),
        (HttpReply(b"<html>", 404), "the provider answered 404 (correct model.base_url, which often ends in /v1"),
        (
            HttpReply(b"Client sent an HTTP request to an HTTPS server.", 400),
            "the provider answered 400 (it speaks https, not http: write https:// in model.base_url)",
        ),
        (HttpReply(b"", 302), "the provider answered 302 (it redirects to another place; write that address into"),
    ],
)
async def test_a_provider_that_cannot_be_asked_is_told_with_the_setting_that_mends_it(
    reply: HttpReply | None, told: str
) -> None:
    async with HttpService(lambda _: reply or HttpReply()) as service:
        if reply is None:
            await service.__aexit__(None, None, None)
        address = ModelAddress(f"{service.url}/private", KEY, Timeouts(5, 5, 5))
        provider = OpenAIChatProvider(address, "model-1", context_tokens=8192)
        _, error = await failure(provider)
        await provider.aclose()
    assert str(error).startswith(told.format(origin=service.url))
    assert "private" not in str(error)
