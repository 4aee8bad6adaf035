"""Long calls whose process is killed, at the other replica and at the other worker."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.test_held_calls import FORMS, answers, text
from tests.contract.test_tasks import KNOWS, created, get
from tests.e2e.test_drain import Holding
from tests.e2e.test_workers import TOOLS, config, workers_of
from tests.support.asking_server import asking_server
from tests.support.process import program
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from tests.support.served import HEADERS, address, write_config
from tests.support.service import BOUND_S, RunningService
from tests.support.until import until
from tests.support.wire_client import WireClient
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.redis.url import read_url

SHARED: dict[str, Any] = {"tasks": {"after_s": 0.05}}
LOST = "Whether it took effect is not known"


class Fresh(httpx.AsyncClient):
    """Each request takes a connection of its own, so any worker may take it."""

    async def post(self, url: Any, **given: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.base_url, headers=HEADERS, trust_env=False, timeout=BOUND_S) as http:
            return await http.post(url, **given)


def client(url: str, path: str = "/mcp/namespaced") -> WireClient:
    return WireClient(RunningService(url, Fresh(base_url=url), None), path=path, capabilities=KNOWS)


def asker(url: str) -> WireClient:
    """A client that answers questions with a second attempt."""
    return WireClient(RunningService(url, Fresh(base_url=url), None), capabilities=FORMS)


async def handle_of(url: str, port: int) -> str:
    """The handle of a long call, for a client that knows no tasks."""
    gate = WireClient(RunningService(url, Fresh(base_url=url), None), path="/mcp")
    result = (await gate.call("tool_execute", {"tool_id": "mine:hold", "args": {"port": port}}))["result"]
    return str(result["structuredContent"]["handle"])


async def view(url: str, handle: str) -> dict[str, Any]:
    gate = WireClient(RunningService(url, Fresh(base_url=url), None), path="/mcp")
    given = {"handle": handle, "selector": {"type": "wait", "timeout_s": 0}}
    body: dict[str, Any] = (await gate.call("tool_view", given))["result"]["structuredContent"]
    return body


async def check_lost(url: str, task_id: str, handle: str) -> None:
    """Both are reported as lost, and neither as unknown or still running."""
    gate = client(url)

    task = (await until(lambda: get(gate, task_id), lambda answer: answer["result"]["status"] != "working"))["result"]
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert LOST in task["statusMessage"]
    assert "result" in await gate.ask("tasks/cancel", {"taskId": task_id})
    lost = await until(lambda: view(url, handle), lambda body: body.get("status") != "running")
    assert lost["error"] == "UPSTREAM_ERROR"
    assert LOST in lost["message"]
    invented = await view(url, f"{handle.rpartition(':')[0]}:0000.{'0' * 16}")
    assert invented["error"] == "VIEW_FAILED"


@asynccontextmanager
async def replica(folder: Path, redis_url: str, asking_url: str) -> AsyncIterator[tuple[Any, str]]:
    folder.mkdir()
    (folder / "worker_tools.py").write_text(TOOLS)
    upstreams = [
        {"name": "mine", "python": "worker_tools:registry", "cwd": str(folder)},
        {"name": "old", "url": asking_url, "era": "2025-11-25"},
    ]
    file = write_config(folder, upstreams=upstreams, storage={"url": redis_url}, **SHARED)
    file.write_text(file.read_text().replace("auth:\n", "auth:\n  seal_keys: ['" + "k" * 40 + "']\n", 1))
    async with program("app", "serve", "--config", str(file), "--port", "0") as running:
        yield running, await address(running)


@requirement("FACE-109", "FACE-110", "OPS-197")
async def test_what_a_killed_replica_ran_is_lost_at_the_other_and_runs_once(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as redis:
        async with (
            Holding() as holding,
            asking_server() as server,
            replica(tmp_path / "a", redis.url, server.url) as (killed, first),
            replica(tmp_path / "b", redis.url, server.url) as (_, second),
        ):
            question = await asker(first).call("old__ask")
            task_id = await created(client(first), "mine__hold", {"port": holding.port})
            handle = await handle_of(first, holding.port)
            await holding.arrived(2)
            assert (await get(client(second), task_id))["result"]["status"] == "working"
            assert (await view(second, handle))["status"] == "running"
            killed.process.send_signal(signal.SIGKILL)
            await killed.ended()
            # Its mark lapses by itself, but not as soon as a test wants it.
            link = RedisLink(read_url(redis.url))
            store = RedisStore(link)
            await store.beat(handle.rpartition(".")[2], mark_s=0)
            await store.aclose()
            await link.aclose()
            await check_lost(second, task_id, handle)
            assert holding.arrivals == 2
            answered = (await asker(second).call("old__ask", more=answers(question)))["result"]
            assert (answered["isError"], answered["structuredContent"]["error"]) == (True, "UPSTREAM_ERROR")
            assert LOST in answered["content"][0]["text"]
            assert server.calls == ["ask"]


@requirement("FACE-124")
async def test_a_call_goes_on_when_the_replica_is_killed_where_its_second_attempt_waits(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as redis:
        async with (
            asking_server() as server,
            replica(tmp_path / "a", redis.url, server.url) as (_, first),
            replica(tmp_path / "b", redis.url, server.url) as (killed, second),
        ):
            question = await asker(first).call("old__later")
            waits = asyncio.create_task(asker(second).call("old__later", more=answers(question)))
            async with asyncio.timeout(BOUND_S):
                await server.answered.wait()
            killed.process.send_signal(signal.SIGKILL)
            await killed.ended()
            with pytest.raises(httpx.HTTPError):
                await waits
            again = asyncio.create_task(asker(first).call("old__later", more=answers(question)))
            server.go.set()
            assert text(await again) == "accept Ada"
            assert (server.calls, server.cancelled.is_set()) == (["later"], False)


@requirement("EXEC-77", "EXEC-78", "FACE-109", "FACE-110", "OPS-197")
async def test_long_calls_are_at_any_worker_and_lost_with_their_own(tmp_path: Path) -> None:
    line = ("app", "serve", "--config", str(config(tmp_path, **SHARED)), "--port", "0", "--workers", "2")
    async with Holding() as holding, Holding() as stuck, program(*line) as running:
        url = await address(running)
        workers = await workers_of(url, 2)
        gate = client(url)
        task_id = await created(gate, "mine__hold", {"port": holding.port})
        handle = await handle_of(url, holding.port)
        lost_task = await created(gate, "mine__hold", {"port": stuck.port})
        lost_handle = await handle_of(url, stuck.port)
        await asyncio.gather(holding.arrived(2), stuck.arrived(2))
        for _ in range(6):
            assert (await get(gate, task_id))["result"]["status"] == "working"
            assert (await view(url, handle))["status"] == "running"
        holding.release()
        done = await until(lambda: get(gate, task_id), lambda answer: answer["result"]["status"] == "completed")
        assert re.search(r"\d+", str(done["result"]["result"]["content"]))
        ended = await until(lambda: view(url, handle), lambda body: body["status"] != "running")
        # Both workers are replaced: what was kept answers.
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        await workers_of(url, 2, without=workers)
        assert (await view(url, handle))["summary"] == ended["summary"]
        assert (await get(gate, task_id))["result"]["status"] == "completed"
        await check_lost(url, lost_task, lost_handle)
        assert (holding.arrivals, stuck.arrivals) == (2, 2)
