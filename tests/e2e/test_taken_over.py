"""Runs of a real process that is killed, as another process goes on with them or ends them (CHAT-123 to CHAT-127)."""

import asyncio
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.contract.test_coming_back import ids
from tests.e2e.test_keyed_after_a_kill import BOUND_S, TOOL, configuration, effects
from tests.e2e.test_keyed_after_a_kill import storage as storage
from tests.support.effect_server import UNANSWERED
from tests.support.process import children, program
from tests.support.requirement import requirement
from tests.support.service import KEY, frames
from tests.support.until import until
from wicketgate.engine.journal import FATE_UNKNOWN

READY = r"ready on (http://127\.0\.0\.1:\d+)"
ASKED = {
    "waits": "wait",
    "used tools": "charge 1 2",
    "half said": "half",
    "is charging": f"charge {UNANSWERED}",
    "alone": "wait",
}
"""The words of the user in each run, by its key."""


class HoldingModel:
    """A chat-completions server whose answers stop where the test wants a run to be, until it is *released*."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.held = Counter[str]()
        self.asked = Counter[str]()
        self._answering = set[asyncio.Task[Any]]()

    async def __aenter__(self) -> "HoldingModel":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.released.set()
        await asyncio.gather(*self._answering)

    async def _hold(self, words: str) -> None:
        self.held[words] += 1
        await self.released.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answering.add(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split("\r\n")[0])
            messages = json.loads(await reader.readexactly(length))["messages"]
            words = next(message["content"] for message in messages if message["role"] == "user")
            self.asked[words] += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            numbers = [int(number) for number in words.split()[1:]]
            if numbers and messages[-1]["role"] == "user":
                calls = [_call(index, number) for index, number in enumerate(numbers)]
                self._write(writer, {"content": "I charge."})
                self._write(writer, {"tool_calls": calls}, "tool_calls")
            elif words == "half" and not self.released.is_set():
                self._write(writer, {"content": "half of it"})
                await self._hold(words)
            else:
                await self._hold(words)
                self._write(writer, {"content": "well done"}, "stop")
            writer.write(b"data: [DONE]\n\n")
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def _write(self, writer: asyncio.StreamWriter, delta: Mapping[str, Any], reason: str | None = None) -> None:
        chunk: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "model": "m"}
        chunk |= {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        writer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def _call(index: int, number: int) -> Mapping[str, Any]:
    arguments = json.dumps({"tool_id": TOOL, "args": {"number": number}})
    call = {"index": index, "id": f"c{number}", "type": "function"}
    return call | {"function": {"name": "tool_execute", "arguments": arguments}}


class Client:
    """One client of a run: what it has read, and how it asks for the rest."""

    def __init__(self, key: str, number: int = 0, *, goes_on: bool = False) -> None:
        self.key = key
        self.goes_on = goes_on or key == "alone"
        self.name = f"{key.replace(' ', '-')}-{number}"
        self.text = ""

    async def read(self, url: str) -> None:
        body = {
            "messages": [{"role": "user", "content": ASKED[self.key]}],
            "metadata": {"correlation_id": self.name},
        }
        headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": self.name}
        if self.goes_on:
            headers["X-On-Disconnect"] = "continue"
        # What was read in part does not count.
        self.text = self.text[: self.text.rfind("\n\n") + 2] if "\n\n" in self.text else ""
        if seen := ids(self.text):
            headers["Last-Event-ID"] = seen[-1]
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=BOUND_S, trust_env=False) as http:
            with suppress(httpx.TransportError):
                async with http.stream("POST", "/engine/chat", json=body) as answer:
                    assert answer.status_code == 200
                    async for piece in answer.aiter_text():
                        self.text += piece

    async def read_to_the_end(self, url: str) -> None:
        def ended(text: str) -> object:
            return re.search(r"event: (done|error)\n.*\n\n", text)

        async def text() -> str:
            if not ended(self.text):
                await self.read(url)
            return self.text

        await until(text, ended, bound_s=2 * BOUND_S, pause_s=0.05)

    @property
    def events(self) -> list[tuple[str, Any]]:
        return [(event, data) for event, data in frames(self.text)]

    def words(self) -> str:
        return "".join(data["content"] for event, data in self.events if event == "text-delta")


HELD = Counter({"wait": 2, "charge 1 2": 1, "half": 1})


def was_read(clients: Mapping[str, Client]) -> bool:
    return "half of it" in clients["half said"].text and clients["used tools"].text.count("tool-result") == 2


async def brought_there(model: HoldingModel, folder: Path, url: str) -> Mapping[str, Client]:
    """Clients whose runs are where the test wants them; that of ``alone`` has left."""
    clients = {key: Client(key) for key in ASKED}
    reading = {key: asyncio.create_task(client.read(url)) for key, client in clients.items()}
    await until(lambda: model.held == HELD and len(effects(folder)) >= 3, bound_s=BOUND_S)
    await until(lambda: was_read(clients), bound_s=BOUND_S)
    reading["alone"].cancel()
    return clients


def judge(clients: Mapping[str, Client], model: HoldingModel, folder: Path) -> None:
    assert sorted(effects(folder)) == [1, 2, UNANSWERED], "each charge once"
    for client in clients.values():
        seen = ids(client.text)
        run = {each.rpartition("-")[0] for each in seen}
        assert len(run) == 1
        assert [int(each.rpartition("-")[2]) for each in seen] == list(range(1, len(seen) + 1)), "nothing is missing"
        assert [event for event, _ in client.events].count("done") <= 1
    for key in ("waits", "alone"):
        assert (clients[key].words(), clients[key].events[-1][0]) == ("well done", "done")
    used = clients["used tools"]
    assert (used.words(), used.events[-1][0]) == ("I charge.well done", "done")
    assert sorted(data["id"] for event, data in used.events if event == "tool-result") == ["c1", "c2"]
    assert model.asked["charge 1 2"] == 3
    assert (clients["half said"].words(), clients["half said"].events[-1][0]) == ("half of it", "error")
    charging = clients["is charging"].events
    assert [data for event, data in charging if event == "tool-result"] == [
        {"id": f"c{UNANSWERED}", "error": FATE_UNKNOWN}
    ]
    assert charging[-1][0] == "error"
    assert (model.asked["half"], model.asked[f"charge {UNANSWERED}"]) == (1, 1)


def write_config(folder: Path, model: HoldingModel, **sections: Any) -> str:
    config = folder / "wicketgate.yaml"
    config.write_text(yaml.safe_dump(configuration(folder, model.url) | sections))
    return str(config)


@requirement("CHAT-116", "CHAT-123", "CHAT-124", "CHAT-125")
async def test_another_gate_goes_on_with_runs_between_two_turns_and_ends_the_others(
    tmp_path: Path, storage: Mapping[str, Any]
) -> None:
    async with HoldingModel() as model, asyncio.timeout(2 * BOUND_S):
        config = write_config(tmp_path, model, **storage)
        async with (
            program("app", "serve", "--config", config, "--port", "0") as one,
            program("app", "serve", "--config", config, "--port", "0") as other,
        ):
            first, second = [(await each.wait_for(READY)).group(1) for each in (one, other)]
            clients = await brought_there(model, tmp_path, first)
            one.process.send_signal(signal.SIGKILL)
            await one.ended()
            model.released.set()
            # Nobody asks for the run that is alone until it is over.
            await asyncio.gather(*(client.read_to_the_end(second) for key, client in clients.items() if key != "alone"))
            await until(lambda: model.asked["wait"] >= 4, bound_s=BOUND_S)
            await clients["alone"].read_to_the_end(second)
            judge(clients, model, tmp_path)


def sockets(pid: int) -> int:
    with suppress(OSError):
        return sum(str(fd.readlink()).startswith("socket:") for fd in Path(f"/proc/{pid}/fd").iterdir())
    return 0


@requirement("CHAT-123", "CHAT-125")
async def test_a_worker_that_is_killed_leaves_its_runs_to_the_others(tmp_path: Path) -> None:
    async with HoldingModel() as model, asyncio.timeout(2 * BOUND_S):
        config = write_config(tmp_path, model)
        async with program("app", "serve", "--config", config, "--port", "0", "--workers", "2") as running:
            url = (await running.wait_for(READY)).group(1)
            clients = [Client("waits", number) for number in range(5)] + [Client("used tools")]
            reading = [asyncio.create_task(client.read(url)) for client in clients]
            await until(
                lambda: (
                    model.held == Counter({"wait": 5, "charge 1 2": 1}) and clients[-1].text.count("tool-result") == 2
                ),
                bound_s=BOUND_S,
            )
            os.kill(max(children(running.process.pid), key=sockets), signal.SIGKILL)
            # Those whose worker was killed come back, to whichever worker takes their connection.
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*done)
            model.released.set()
            await asyncio.gather(*reading)
            left = [client for client in clients if "event: done" not in client.text]
            assert left
            await asyncio.gather(*(client.read_to_the_end(url) for client in left))
            assert sorted(effects(tmp_path)) == [1, 2]
            for client in clients:
                seen = ids(client.text)
                assert [int(each.rpartition("-")[2]) for each in seen] == list(range(1, len(seen) + 1))
                assert [event for event, _ in client.events].count("done") == 1
                assert client.words().endswith("well done")
            assert await running.stop() == 0


@requirement("CHAT-113", "CHAT-125")
async def test_readers_of_a_process_that_stood_still_read_on_what_another_writes(tmp_path: Path) -> None:
    async with HoldingModel() as model, asyncio.timeout(2 * BOUND_S):
        config = write_config(tmp_path, model)
        async with (
            program("app", "serve", "--config", config, "--port", "0") as still,
            program("app", "serve", "--config", config, "--port", "0") as other,
        ):
            url = (await still.wait_for(READY)).group(1)
            await other.wait_for(READY)
            # Its reader cannot be known to be there meanwhile.
            client = Client("used tools", goes_on=True)
            reading = asyncio.create_task(client.read(url))
            await until(lambda: model.held, bound_s=BOUND_S)
            still.process.send_signal(signal.SIGSTOP)
            await until(lambda: model.held["charge 1 2"] >= 2, bound_s=BOUND_S)
            still.process.send_signal(signal.SIGCONT)
            await still.wait_for("was taken over by another process", "stdout")
            model.released.set()
            await reading
            assert sorted(effects(tmp_path)) == [1, 2]
            seen = ids(client.text)
            assert [int(each.rpartition("-")[2]) for each in seen] == list(range(1, len(seen) + 1))
            assert (client.words(), client.events[-1][0]) == ("I charge.well done", "done")


@requirement("CHAT-129")
async def test_a_gate_that_is_stopped_hands_its_runs_over(tmp_path: Path, storage: Mapping[str, Any]) -> None:
    async with HoldingModel() as model, AsyncExitStack() as stack, asyncio.timeout(2 * BOUND_S):
        config = write_config(tmp_path, model, server={"drain_s": 0.2, "log_level": "info"}, **storage)
        gates = [
            await stack.enter_async_context(program("app", "serve", "--config", config, "--port", "0"))
            for _ in range(2)
        ]
        first, second = [(await gate.wait_for(READY)).group(1) for gate in gates]
        clients = {key: Client(key) for key in ("waits", "used tools", "half said", "alone")}
        reading = {key: asyncio.create_task(client.read(first)) for key, client in clients.items()}
        await until(lambda: model.held == HELD and was_read(clients), bound_s=BOUND_S)
        reading.pop("alone").cancel()
        assert await gates[0].stop() == 0
        await asyncio.gather(*reading.values())
        # The other one has asked the model anew before anybody came back.
        await until(lambda: model.held["wait"] >= 4 and model.held["charge 1 2"] >= 2, bound_s=BOUND_S)
        model.released.set()
        await asyncio.gather(*(client.read_to_the_end(second) for client in clients.values()))
        assert sorted(effects(tmp_path)) == [1, 2]
        for client in clients.values():
            seen = ids(client.text)
            assert [int(each.rpartition("-")[2]) for each in seen] == list(range(1, len(seen) + 1))
            assert [event for event, _ in client.events].count("done") == 1
        for key in ("waits", "alone", "used tools"):
            assert clients[key].words().endswith("well done")
        assert clients["half said"].events[-1][1]["finish_reason"] == "cancelled", "what was shown cannot be taken back"
        assert "Traceback" not in gates[0].stdout + gates[0].stderr
