"""Runs of a real process whose store stands still: they wait, and nothing else waits for them (CHAT-126, CHAT-141)."""

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.test_keyed_after_a_kill import BOUND_S, configuration
from tests.e2e.test_taken_over import READY
from tests.support.locked_file import locked
from tests.support.process import Program, program
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.service import KEY, chat_body, frames
from wicketgate.engine.journal import UNKEPT

RUNS = 6
STOP_BOUND_S = 30.0
UNKEPT_S = 0.5
"""In this time the model says ten words to each run, and the store takes none of them."""
FILES = ["a file that is locked", "a file that was removed"]
STORES = [*FILES, "a Redis that stands still", "a Redis that is gone"]


class TalkingModel:
    """A chat-completions server that says a word again and again, as long as it is listened to."""

    def __init__(self) -> None:
        self.listeners = 0
        self.changed = asyncio.Condition()

    async def __aenter__(self) -> "TalkingModel":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def until_listeners(self, number: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.listeners == number)

    async def _count(self, more: int) -> None:
        async with self.changed:
            self.listeners += more
            self.changed.notify_all()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        delta: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "model": "m"}
        delta |= {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))
            await self._count(1)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            gone = asyncio.create_task(reader.read())
            while not gone.done():
                writer.write(b"data: " + json.dumps(delta).encode() + b"\n\n")
                await writer.drain()
                await asyncio.wait([gone], timeout=0.05)
            await asyncio.gather(gone, return_exceptions=True)
            await self._count(-1)
        writer.close()


class Store:
    """The store of a service, which can be taken away."""

    def __init__(self, kind: str, folder: Path, redis: RedisServer | None) -> None:
        self.url = redis.url if redis is not None else f"sqlite:///{folder}/wicketgate.db"
        self._kind = kind
        self._file = folder / "wicketgate.db"
        self._redis = redis

    @contextmanager
    def away(self) -> Iterator[None]:
        if self._kind == "a file that is locked":
            with locked(self._file):
                yield
        elif self._redis is None:
            moved = self._file.rename(self._file.with_suffix(".moved"))
            try:
                yield
            finally:
                moved.rename(self._file)
        elif self._kind == "a Redis that is gone":
            self._redis.kill()
            yield
        else:
            assert self._redis.process is not None
            self._redis.process.send_signal(signal.SIGSTOP)
            try:
                yield
            finally:
                self._redis.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def serving(
    folder: Path, kind: str, model: TalkingModel, drain_s: float
) -> AsyncIterator[tuple[Store, Program, str]]:
    async with AsyncExitStack() as stack:
        redis = None if kind in FILES else stack.enter_context(redis_server(folder / "redis"))
        store = Store(kind, folder, redis)
        settings = configuration(folder, model.url) | {"upstreams": [], "storage": {"url": store.url}}
        settings["auth"]["keys"][0]["permissions"].append("ops:read")
        settings["server"] = {"drain_s": drain_s, "log_level": "info"}
        settings["engine"] = {"resume": {"grace_s": 0.2}}
        config = folder / "wicketgate.yaml"
        config.write_text(yaml.safe_dump(settings))
        running = await stack.enter_async_context(program("app", "serve", "--config", str(config), "--port", "0"))
        yield store, running, (await running.wait_for(READY)).group(1)


def client(url: str, key: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=None, trust_env=False)


async def read(url: str, key: str, begun: asyncio.Event) -> str:
    text = ""
    async with client(url, key) as http, http.stream("POST", "/engine/chat", json=chat_body()) as answer:
        assert answer.status_code == 200
        async for piece in answer.aiter_text():
            text += piece
            if "word" in piece:
                begun.set()
    return text


def ends(text: str) -> list[tuple[str, Any]]:
    return [frame for frame in frames(text) if frame[0] in ("done", "error")]


@asynccontextmanager
async def runs(url: str, model: TalkingModel, number: int) -> AsyncIterator[list[asyncio.Task[str]]]:
    begun = [asyncio.Event() for _ in range(number)]
    reading = [asyncio.create_task(read(url, f"key-{count}", each)) for count, each in enumerate(begun)]
    try:
        for each in begun:
            await each.wait()
        await model.until_listeners(number)
        yield reading
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


@requirement("CHAT-141")
@pytest.mark.parametrize("kind", STORES)
async def test_a_model_is_left_when_the_client_of_a_run_leaves_that_waits_for_its_store(
    tmp_path: Path, kind: str
) -> None:
    async with TalkingModel() as model, asyncio.timeout(BOUND_S):
        async with serving(tmp_path, kind, model, 5.0) as (store, running, url), runs(url, model, 2) as reading:
            with store.away():
                await asyncio.sleep(UNKEPT_S)  # the runs wait for their store by now
                for task in reading:
                    task.cancel()
                async with asyncio.timeout(STOP_BOUND_S):
                    await model.until_listeners(0)
            assert await running.stop() == 0
        assert "Traceback" not in running.stdout + running.stderr


@requirement("OPS-334", "CHAT-28", "CHAT-78")
@pytest.mark.parametrize("kind", STORES)
async def test_a_stop_ends_in_time_and_every_stream_has_its_end_while_runs_wait_for_their_store(
    tmp_path: Path, kind: str
) -> None:
    async with TalkingModel() as model, asyncio.timeout(BOUND_S):
        async with serving(tmp_path, kind, model, 1.0) as (store, running, url), runs(url, model, RUNS) as reading:
            with store.away():
                await asyncio.sleep(UNKEPT_S)  # the runs wait for their store by now
                running.process.send_signal(signal.SIGTERM)
                read = await asyncio.gather(*reading)
                assert await running.ended(STOP_BOUND_S + 1) == 0
        assert "Traceback" not in running.stdout + running.stderr
    for text in read:
        ((event, data),) = ends(text)
        assert (event, data["finish_reason"]) == ("done", "cancelled")


@requirement("CHAT-126", "CHAT-114", "EXEC-43")
async def test_a_run_whose_file_was_removed_ends_with_an_error_and_the_operator_learns_why(tmp_path: Path) -> None:
    async with (
        TalkingModel() as model,
        asyncio.timeout(BOUND_S),
        serving(tmp_path, FILES[1], model, 1.0) as (store, running, url),
        runs(url, model, 2) as reading,
        client(url, "new") as http,
    ):
        with store.away():
            read = await asyncio.gather(*reading)
            await model.until_listeners(0)
            refused = await http.post("/engine/chat", json=chat_body())
            ready = await http.get("/readyz")
        again = await http.post("/engine/chat", json=chat_body(), headers={"Idempotency-Key": "key-0"})
        assert await running.stop() == 0
    for text in read:
        assert text.endswith(UNKEPT.decode())
        assert len(ends(text)) == 1
    assert (refused.status_code, refused.json()["code"]) == (503, "engine_unavailable")
    assert "store" in refused.json()["message"]
    assert str(tmp_path) not in refused.text
    assert ready.status_code == 200
    assert "put it back" in ready.json()["storage"]["away"]
    # Put back, the run has what was shown, what was said until its end here, and one end.
    shown = [frame for frame in frames(read[0]) if frame[0] == "text-delta"]
    assert frames(again.text)[: len(shown)] == shown
    assert ends(again.text) == ends(read[0])
    lines = [line["message"] for line in running.logs()]
    assert len([line for line in lines if "runs cannot be kept or read" in line]) == 1


@requirement("CHAT-28", "CHAT-138")
@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM row WHERE kind = 'run'",
        "UPDATE row SET term = 'x' WHERE kind = 'run'",
        "UPDATE row SET end0 = end0 - 1 WHERE kind = 'run'",
    ],
)
async def test_a_run_whose_row_is_damaged_while_it_is_read_ends_with_an_error(tmp_path: Path, damage: str) -> None:
    async with (
        TalkingModel() as model,
        asyncio.timeout(BOUND_S),
        serving(tmp_path, FILES[1], model, 1.0) as (_, running, url),
        runs(url, model, 1) as reading,
    ):
        with closing(sqlite3.connect(tmp_path / "wicketgate.db", isolation_level=None)) as other:
            other.execute(damage)
        text = await reading[0]
        begun = asyncio.Event()
        another = asyncio.create_task(read(url, "another", begun))
        await begun.wait()
        another.cancel()
        assert await running.stop() == 0
    assert [event for event, _ in ends(text)] == ["error"]
    assert "Traceback" not in running.stdout
