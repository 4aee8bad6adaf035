"""Runs with a key in the real process after a kill: no charge twice, and every run ends (CHAT-110 to CHAT-112)."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.contract.test_coming_back import ids
from tests.support.effect_server import CHARGE, UNANSWERED
from tests.support.process import program
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from tests.support.service import KEY, frames
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.catalog.tool_id import derive_tool_id
from wicketgate.engine.journal import FATE_UNKNOWN

BOUND_S = 40.0
SAFE = ("--appendonly", "yes", "--appendfsync", "always")
RUNS = 24
TOOL = derive_tool_id("charge", CHARGE.input_schema, None, "bank")


def effects(folder: Path) -> list[int]:
    file = folder / "effects"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def configuration(folder: Path, model_url: str) -> dict[str, Any]:
    keys = [{"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["tools:*"]}]
    return {
        "auth": {"keys": keys, "seal_keys": ["k" * 40]},
        "storage": {"url": f"sqlite:///{folder}/wicketgate.db"},
        "model": {"provider": "openai-chat", "base_url": model_url, "model": "m"},
        "upstreams": [
            {"name": "bank", "command": [sys.executable, "-m", "tests.support.effect_server", str(folder / "effects")]}
        ],
    }


class ChargingModel:
    """A chat-completions server: charges the number that the user names, then says so."""

    async def __aenter__(self) -> "ChargingModel":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split("\r\n")[0])
            messages = json.loads(await reader.readexactly(length))["messages"]
            delta: Mapping[str, Any] = {"content": "charged"}
            if messages[-1]["role"] == "user":
                number = int(messages[-1]["content"])
                arguments = json.dumps({"tool_id": TOOL, "args": {"number": number}})
                call = {"index": 0, "id": f"c{number}", "type": "function"}
                delta = {"tool_calls": [call | {"function": {"name": "tool_execute", "arguments": arguments}}]}
            reason = "tool_calls" if "tool_calls" in delta else "stop"
            chunk: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "model": "m"}
            chunk |= {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
            body = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
            head_out = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            writer.write(head_out.encode() + body)
            await writer.drain()
        writer.close()


def charge(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": str(number)}], "metadata": {"correlation_id": f"r{number}"}}


@pytest.fixture(params=["file", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mapping[str, Any]]:
    """Sections of a configuration: a store that keeps what it acknowledged."""
    if request.param == "file":
        yield {}
        return
    with redis_server(tmp_path / "redis", *SAFE) as redis:
        yield {"storage": {"url": redis.url}}


@requirement("CHAT-110", "CHAT-111", "CHAT-112", "CHAT-116", "CHAT-117")
async def test_no_charge_runs_twice_after_a_kill_in_the_middle_and_every_run_has_an_end(
    tmp_path: Path, storage: Mapping[str, Any]
) -> None:
    config = tmp_path / "wicketgate.yaml"
    numbers = [*range(RUNS), UNANSWERED, UNANSWERED + 1]
    seen: dict[int, str] = {}

    async def post(http: httpx.AsyncClient, number: int) -> str:
        headers = {"Idempotency-Key": f"k{number}"}
        text = ""
        with suppress(httpx.TransportError):
            async with http.stream("POST", "/engine/chat", json=charge(number), headers=headers) as answer:
                assert answer.status_code == 200
                async for piece in answer.aiter_text():
                    text += piece
                    seen[number] = text
        return text

    async with ChargingModel() as model:
        config.write_text(yaml.safe_dump(configuration(tmp_path, model.url) | dict(storage)))
        for number in (1, 2):
            async with program("app", "serve", "--config", str(config), "--port", "0") as running:
                url = (await running.wait_for(r"ready on (http://127\.0\.0\.1:\d+)")).group(1)
                async with (
                    httpx.AsyncClient(
                        base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=BOUND_S, trust_env=False
                    ) as http,
                    asyncio.timeout(BOUND_S),
                ):
                    posts = [asyncio.create_task(post(http, each)) for each in numbers]
                    if number == 1:
                        # Kill it while some runs are over, some are at it, and two wait for their server.
                        await until(
                            lambda: effects(tmp_path),
                            lambda made: len(made) >= RUNS // 2 and {*numbers[-2:]} <= {*made},
                            bound_s=BOUND_S,
                            pause_s=0.001,
                        )
                        running.process.send_signal(signal.SIGKILL)
                        await asyncio.gather(*posts)
                        before = dict(seen)
                    else:
                        after = dict(zip(numbers, await asyncio.gather(*posts), strict=True))
    made = effects(tmp_path)
    assert len(made) == len({*made})
    for number, text in after.items():
        read = frames(text)
        assert [event for event, _ in read].count("done") + [event for event, _ in read].count("error") == 1
        assert read[-1][0] in ("done", "error")
        # What was shown before is the beginning of what is shown now, with the same ids.
        shown = before.get(number, "").rpartition("\n\n")[0]
        assert text.startswith(shown)
        assert len({*ids(text)}) == len(ids(text)) == len(read)
        if number in made and read[-1][0] == "error":
            assert [data.get("error") or "charged" for event, data in read if event == "tool-result"]
    for number in numbers[-2:]:
        results = [data for event, data in frames(after[number]) if event == "tool-result"]
        assert results == [{"id": f"c{number}", "error": FATE_UNKNOWN}]
