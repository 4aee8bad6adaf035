"""Text of a model behind HTTP reaches the client unchanged, piece by piece, whatever else happens to the stream
(CHAT-30, CHAT-31, CHAT-35, CHAT-43, CHAT-60, CHAT-72, CHAT-77, CHAT-92, CHAT-94).

Each step of the model waits until the client has seen the one before, so that nothing is joined on its way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.model_server import (
    CUT,
    DONE,
    HOLD,
    ModelServer,
    Reply,
    Step,
    chunk,
    text_turn,
    tool_turn,
    usage_chunk,
)
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, RunningService, chat_body, frames, running_service
from tests.support.slow_client import posting, standstill
from tests.support.until import until
from wicketgate.engine import turn

AUTH = {"Authorization": f"Bearer {KEY}"}
PLAIN: dict[str, str] = {}
KEYED = {"Idempotency-Key": "k"}


def text(content: str) -> bytes:
    return chunk({"content": content})


def delta(content: str) -> str:
    return f'event: text-delta\ndata: {{"content":{json.dumps(content)}}}\n\n'


def done(reason: str = "stop", prompt: int = 0, completion: int = 0) -> str:
    usage = f'{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}'
    return f'event: done\ndata: {{"finish_reason":"{reason}","usage":{usage}}}\n\n'


@asynccontextmanager
async def relaying(
    *script: Reply, model: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[RunningService, ModelServer]]:
    async with ModelServer(*script) as server:
        configured = {"provider": "openai-chat", "base_url": server.base_url, "model": "m", **(model or {})}
        async with (
            running_service(configured_model=True, settings={"model": configured, **settings}) as service,
            asyncio.timeout(BOUND_S),
        ):
            yield service, server


class Said:
    """A model that takes its next step when *seen* has come to the client: ``steps`` are for a Reply."""

    def __init__(self, *pairs: tuple[bytes | Step, str]) -> None:
        self.steps: list[bytes | Step | asyncio.Event] = []
        self._marks: list[tuple[str, asyncio.Event]] = []
        whole = ""
        for step, seen in pairs:
            whole += seen
            gate = asyncio.Event()
            self.steps += [step, gate]
            self._marks.append((whole, gate))
        self.expected = whole

    async def read(self, service: RunningService, headers: Mapping[str, str]) -> str:
        received = ""
        async with service.http.stream("POST", "/engine/chat", json=chat_body(), headers=headers) as response:
            assert response.status_code == 200
            if not self.expected:
                return received
            self._go_on(received, headers)
            async for piece in response.aiter_text():
                received += piece
                self._go_on(received, headers)
        return without_ids(received)

    def _go_on(self, received: str, headers: Mapping[str, str]) -> None:
        for seen, gate in self._marks:
            if without_ids(received).startswith(seen):
                gate.set()


def without_ids(received: str) -> str:
    lines = received.split("\n")
    return "\n".join(line for line in lines if not line.startswith("id: "))


@requirement("CHAT-30", "CHAT-31", "CHAT-34")
@pytest.mark.parametrize("headers", [PLAIN, KEYED], ids=["plain", "keyed"])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
async def test_each_piece_is_there_before_the_next_is_said_among_all_else_that_models_send(
    headers: dict[str, str], line_end: bytes
) -> None:
    half = text("cut in two")
    # With a key, texts that the model sends at once are one event.
    at_once = delta("cut in twowhole") if headers else delta("cut in two") + delta("whole")
    said = Said(
        (chunk({"role": "assistant", "content": ""}), ""),
        (text("one"), delta("one")),
        (text(" two"), delta(" two")),
        (b": keep-alive\n\n", ""),
        (text(" three"), delta(" three")),
        (text("\u00e9 \u65e5 \U0001f701"), delta("\u00e9 \u65e5 \U0001f701")),
        (text('"\\\n\u2028\x00'), delta('"\\\n\u2028\x00')),
        (half[:20], ""),
        (half[20:] + text("whole") + half[:-1], at_once),
        (b"\n", delta("cut in two")),
        (chunk({"reasoning_content": "hm"}), ""),
        (text("four"), delta("four")),
        (text("\ud83d"), ""),
        (text("\ude00 joined"), delta("\U0001f600 joined")),
        (chunk({"content": "other"}).replace(b'"index": 0', b'"index": 1'), ""),
        (chunk({"content": "five"}, usage={"prompt_tokens": 3, "completion_tokens": 1}), delta("five")),
        (text("six"), delta("six")),
        (chunk({"content": "seven"}, "stop"), delta("seven")),
        (text("behind its end"), delta("behind its end")),
        (usage_chunk(10, 5) + DONE, done("stop", 10, 5)),
    )
    steps = [step.replace(b"\n", line_end) if isinstance(step, bytes) else step for step in said.steps]
    async with relaying(Reply(steps)) as (service, _):
        assert await said.read(service, headers) == said.expected
        if headers:
            again = await service.http.post("/engine/chat", json=chat_body(), headers=headers)
            assert without_ids(again.text) == said.expected


@requirement("CHAT-43", "CHAT-30")
async def test_text_around_calls_keeps_its_place_in_the_stream_and_in_the_history() -> None:
    first = Said(
        (text("Let me "), delta("Let me ")),
        (text("look"), delta("look")),
        (text(" around."), delta(" around.")),
    )
    calls = tool_turn(("c1", "tool_browse", {"path": "/"}), ("c2", "tool_browse", {"path": "/x"}))
    async with relaying(Reply([*first.steps, *calls.steps]), text_turn("It ", "is ", "so.")) as (service, server):
        stream = frames(await first.read(service, PLAIN))
        history = server.requests[1].body["messages"]
    kinds = [event for event, _ in stream]
    assert kinds == [*["text-delta"] * 3, *["tool-call"] * 2, *["tool-result"] * 2, *["text-delta"] * 3, "done"]
    assert "".join(data["content"] for event, data in stream[-4:-1]) == "It is so."
    assistant = next(message for message in history if message["role"] == "assistant")
    assert assistant["content"] == "Let me look around."


@requirement("CHAT-77", "CHAT-30")
async def test_a_model_of_many_small_pieces_is_read_no_further_than_the_client_reads() -> None:
    pieces = 24_000  # of a kilobyte: more than all buffers between a model and a client take
    sent = count()
    latest = 0

    class Mark(asyncio.Event):
        async def wait(self) -> bool:  # type: ignore[override]
            nonlocal latest
            latest = next(sent)
            if not latest % 50:
                await asyncio.sleep(0)
            return True

    mark = Mark()
    steps: list[bytes | Step | asyncio.Event] = []
    for number in range(pieces):
        steps += [text(f"<{number}>".ljust(1024, "x")), mark]
    reply = Reply([*steps, chunk({}, "stop"), DONE])
    async with (
        relaying(reply) as (service, _),
        posting(service.url, chat_body(), AUTH) as client,
    ):
        await client.read(until=b"<0>")
        assert await standstill(lambda: latest) < pieces * 3 // 4
        await client.read()
        events = frames(client.text())
    assert "".join(data["content"] for _, data in events[:-1]) == "".join(
        f"<{number}>".ljust(1024, "x") for number in range(pieces)
    )
    assert events[-1][0] == "done"


@requirement("CHAT-30", "CHAT-60")
@pytest.mark.parametrize("length", [60_000, 70_000, 150_000, 600_000])
async def test_pieces_larger_than_what_may_wait_of_a_body_are_passed_on_like_others(length: int) -> None:
    large = [letter * length for letter in "abcdefgh"]
    said = Said((text("first"), delta("first")), *((text(each), delta(each)) for each in large))
    steps = [*said.steps, chunk({}, "stop"), DONE]
    async with relaying(Reply(steps), model={"idle_timeout_s": 20}) as (service, _):
        assert await said.read(service, PLAIN) == said.expected + done()


@requirement("CHAT-72")
async def test_a_client_that_leaves_between_pieces_ends_the_model_and_frees_its_place() -> None:
    steps: list[bytes | Step | asyncio.Event] = []
    go_on = asyncio.Event()
    for number in range(3):
        steps += [text(f"<{number}>"), go_on]
    endless = [text("more")] * 2_000
    replies = [Reply([*steps, *endless, HOLD]), text_turn("free")]
    async with relaying(*replies, engine={"max_streams": 1}) as (service, server):
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as response:
            go_on.set()
            async for piece in response.aiter_text():
                if "<2>" in piece:
                    break
        await server.requests[0].hung_up.wait()
        answer = await until(
            lambda: service.http.post("/engine/chat", json=chat_body()), lambda answer: answer.status_code != 503
        )
        assert answer.text.startswith(delta("free"))


@requirement("CHAT-28", "CHAT-60")
@pytest.mark.parametrize("end", [HOLD, CUT], ids=["silent", "lost"])
async def test_a_model_that_falls_silent_or_is_lost_between_pieces_is_an_error_after_what_was_said(end: Step) -> None:
    said = Said((text("a"), delta("a")), (text("b"), delta("b")), (text("c"), delta("c")), (end, ""))
    async with relaying(Reply(said.steps), model={"idle_timeout_s": 0.3}) as (service, _):
        received = await said.read(service, PLAIN)
    assert received.startswith(said.expected)
    assert [data.get("code") for _, data in frames(received[len(said.expected) :])] == ["provider_error"]


@requirement("CHAT-60")
async def test_the_silence_counts_from_the_last_piece_and_the_stall_from_the_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wicketgate.config.engine.STALL_S", 1.6)
    beat = asyncio.Event()

    class Soon(asyncio.Event):
        async def wait(self) -> bool:  # type: ignore[override]
            await asyncio.sleep(0.3)  # a model that takes its time
            return True

    talk: list[bytes | Step | asyncio.Event] = []
    for number in range(8):
        talk += [text(str(number)), Soon()]  # 2.4 s in all, and never more than 0.3 s without a piece
    keep_alives: list[bytes | Step | asyncio.Event] = []
    for _ in range(200):
        keep_alives += [b": waiting\n\n", Soon()]
    timeouts = {"first_event_timeout_s": 1.5, "idle_timeout_s": 1.5}
    async with relaying(Reply([*talk, *keep_alives, beat]), model=timeouts) as (service, server):
        stream = await service.chat()
        await server.requests[0].hung_up.wait()
    assert "".join(data["content"] for _, data in stream[:-1]) == "01234567"
    assert stream[-1][1]["code"] == "provider_error"


@requirement("CHAT-60")
async def test_a_model_that_goes_on_behind_its_end_and_falls_silent_then_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wicketgate.models.endpoint._AFTER_FINISH_S", 1.0)
    said = Said(
        (text("a"), delta("a")),
        (chunk({"content": "b"}, "stop"), delta("b")),
        (text("c"), delta("c")),
        (text("d"), delta("d")),
        (HOLD, ""),
    )
    async with relaying(Reply(said.steps), model={"idle_timeout_s": 300}) as (service, _):
        assert await said.read(service, PLAIN) == said.expected + done()


@requirement("CHAT-35")
async def test_comments_come_when_pieces_stop_and_cut_none_in_two() -> None:
    go_on = asyncio.Event()
    steps: list[bytes | Step | asyncio.Event] = [text("a"), text("b"), text("c"), go_on]
    steps += [text("d"), chunk({}, "stop"), DONE]
    async with relaying(Reply(steps), engine={"heartbeat_s": 0.05}) as (service, _):
        received = ""
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as response:
            async for piece in response.aiter_text():
                received += piece
                if received.count(": keepalive\n\n") >= 2 and "c" in received:
                    go_on.set()
    events = [block for block in received.split("\n\n") if block and block != ": keepalive"]
    assert "\n\n".join([*events, ""]) == delta("a") + delta("b") + delta("c") + delta("d") + done()
    assert received.endswith(delta("d") + done())


async def by_its_key(service: RunningService) -> None:
    service.app.state.gate.streams.end_of("test")


async def by_a_drain(service: RunningService) -> None:
    service.app.state.gate.streams.end_all()


@requirement("CHAT-78", "CHAT-92")
@pytest.mark.parametrize("end", [by_its_key, by_a_drain])
@pytest.mark.parametrize("at_once", [False, True], ids=["then silence", "with the next piece"])
async def test_a_stream_that_is_ended_between_pieces_says_so_and_nothing_after_it(
    end: Callable[[RunningService], Any], at_once: bool
) -> None:
    more = asyncio.Event()
    reply = Reply([text("a"), text("b"), text("c"), more, *[text("late")] * 3, HOLD])
    async with relaying(reply) as (service, server):
        received = ""
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as response:
            async for piece in response.aiter_text():
                received += piece
                if received == delta("a") + delta("b") + delta("c"):
                    if at_once:
                        more.set()
                    await end(service)
        await server.requests[0].hung_up.wait()
    said = received.removesuffix(done("cancelled"))
    assert said != received
    assert said.replace(delta("late"), "") == delta("a") + delta("b") + delta("c")


@requirement("CHAT-94")
async def test_pieces_beyond_the_bound_of_a_turn_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "MAX_TEXT_CHARS", 10)
    said = Said(*((text("abc"), delta("abc")) for _ in range(4)))
    async with relaying(Reply([*said.steps, HOLD])) as (service, server):
        received = await said.read(service, PLAIN)
        await server.requests[0].hung_up.wait()
    assert received == said.expected + done("length")


@requirement("CHAT-25")
async def test_a_client_of_http_1_0_gets_the_pieces_without_chunks() -> None:
    async with relaying(text_turn("a", "b", "c")) as (service, _):
        address = urlsplit(service.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        body = json.dumps(chat_body())
        head = f"POST /engine/chat HTTP/1.0\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        _, _, stream = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert stream.decode() == delta("a") + delta("b") + delta("c") + done("stop", 10, 5)


@requirement("CHAT-38")
async def test_pieces_of_many_streams_at_once_never_mix() -> None:
    async def ask(service: RunningService) -> Sequence[tuple[str, dict[str, Any]]]:
        return await service.chat()

    replies = [text_turn(*[f"{number}:{place} " for place in range(40)]) for number in range(12)]
    async with relaying(*replies) as (service, _):
        streams = await asyncio.gather(*(ask(service) for _ in replies))
    texts = {"".join(data["content"] for _, data in stream[:-1]) for stream in streams}
    assert texts == {"".join(f"{number}:{place} " for place in range(40)) for number in range(12)}
