"""A slow reader makes its run wait, and costs no memory; one that takes nothing is cut (CHAT-76, CHAT-77)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.model_server import ModelServer, Reply, chunk
from tests.support.requirement import requirement
from tests.support.script import ScriptModel
from tests.support.service import BOUND_S, KEY, chat_body, frames, running_service
from tests.support.slow_client import SlowClient, posting, standstill
from tests.support.until import until
from wicketgate.config import engine
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta

AUTH = {"Authorization": f"Bearer {KEY}"}
PIECE = 64 * 1024
PIECES = 320  # 20 MiB: more than all buffers between a model and a client take


class LongTalk(ScriptModel):
    """Says *PIECES* numbered pieces, as fast as it is asked, then ends. *said* counts them."""

    said = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        self.requests.append(request)
        try:
            for number in range(PIECES):
                self.said = number
                yield [TextDelta(f"<{number}>".ljust(PIECE, "x"))]
            yield [Finish("stop", None)]
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.set()
            raise


@asynccontextmanager
async def talking(
    model: ScriptModel | None,
    headers: Mapping[str, str],
    settings: Mapping[str, Any] | None = None,
    *,
    stuck_reader_s: float = 60.0,
) -> AsyncIterator[SlowClient]:
    async with (
        running_service(
            model, settings=settings, configured_model=model is None, stuck_reader_s=stuck_reader_s
        ) as service,
        asyncio.timeout(BOUND_S),
        posting(service.url, chat_body(), {**AUTH, **headers}) as client,
    ):
        yield client


def whole(text: str) -> None:
    """All that LongTalk says, in order, and its end."""
    events = frames(text)
    said = "".join(data["content"] for _, data in events[:-1])
    assert said == "".join(f"<{number}>".ljust(PIECE, "x") for number in range(PIECES))
    assert events[-1][0] == "done"


@requirement("CHAT-77")
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}], ids=["plain", "keyed"])
async def test_the_model_is_read_no_further_than_the_client_reads(headers: dict[str, str]) -> None:
    model = LongTalk()
    async with talking(model, headers) as client:
        await client.read(until=b"<0>")
        # What the system's socket buffers take differs; it is far from all, and it does not grow.
        assert await standstill(lambda: model.said) < PIECES * 3 // 4
        await client.read()
        whole(client.text())


@requirement("CHAT-60")
async def test_the_models_silence_is_not_counted_while_we_are_the_slow_one() -> None:
    sent = 0

    class Mark(asyncio.Event):
        async def wait(self) -> bool:  # type: ignore[override]
            nonlocal sent
            sent += 1
            return True

    steps: list[bytes | asyncio.Event] = []
    for number in range(PIECES):
        steps += [chunk({"content": f"<{number}>".ljust(PIECE, "x")}), Mark()]
    reply = Reply([*steps, chunk({}, "stop"), b"data: [DONE]\n\n"])
    async with ModelServer(reply) as server:
        model = {
            "provider": "openai-chat",
            "base_url": server.base_url,
            "model": "m",
            "first_event_timeout_s": 20.0,
            "idle_timeout_s": 1.0,
        }
        async with talking(None, {}, {"model": model}) as client:
            await client.read(until=b"<0>")
            assert await standstill(lambda: sent) < PIECES * 3 // 4
            await asyncio.sleep(2.0)  # twice the silence that a model may keep
            await client.read()
            whole(client.text())


@requirement("CHAT-72", "CHAT-77")
async def test_a_reader_that_takes_nothing_is_cut_and_its_run_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wicketgate")
    model = LongTalk()
    settings = {"engine": {"max_streams": 1}}
    async with (
        running_service(model, settings=settings, stuck_reader_s=0.2) as service,
        asyncio.timeout(BOUND_S),
        posting(service.url, chat_body(), AUTH) as client,
    ):
        await client.read(until=b"<0>")
        await until(
            lambda: service.http.post("/engine/chat", json=chat_body()), lambda answer: answer.status_code != 503
        )
        with pytest.raises(ConnectionError):
            await client.read()
    assert any("was disconnected" in message for message in caplog.messages)
    assert "cancelled" in caplog.messages


@requirement("CHAT-77")
async def test_a_reader_that_reads_slowly_but_reads_is_not_cut() -> None:
    model = LongTalk()
    async with talking(model, {}, stuck_reader_s=0.5) as client:
        for number in range(0, 80, 10):
            await client.read(until=b"<%d>" % number)
            await asyncio.sleep(0.1)  # a reader that takes its time
        await client.read()
        whole(client.text())


async def test_a_stuck_reader_of_a_run_that_continues_costs_the_run_nothing_but_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "RUN_BYTES", 64 * PIECE)
    model = LongTalk()
    headers = {**AUTH, "Idempotency-Key": "k", "X-On-Disconnect": "continue"}
    async with running_service(model, stuck_reader_s=0.2) as service, asyncio.timeout(BOUND_S):
        async with posting(service.url, chat_body(), headers) as client:
            await client.read(until=b"<0>")
            last = client.text().split("id: ")[1].split("\n")[0]
            await until(lambda: model.said >= PIECES - 1)
        gone = await service.http.post("/engine/chat", json=chat_body(), headers={**headers, "Last-Event-ID": last})
    assert gone.status_code == 400, "the run went on, and keeps its latest events only"
    assert len(model.requests) == 1
