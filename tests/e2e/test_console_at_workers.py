"""The console over two workers: what an operator does at one holds at the other, and at one that comes later."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.app.console.test_servers import WRITER, WRITER_KEY
from tests.e2e.test_serve import address
from tests.e2e.test_workers import config
from tests.support.process import Program, program
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.catalog.pins import pin_all
from wicketgate.config.lock_file import write_lock

API = "/console/api"
OPERATOR = {"Authorization": f"Bearer {WRITER_KEY}"}
HELD = {"name": "hold", "description": "Another.", "inputSchema": {"type": "object"}}


async def call(http: httpx.AsyncClient, operation: str, **given: Any) -> httpx.Response:
    return await http.post("/operations/call", json={"operation": operation, "input": given})


async def get(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(f"{API}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


class Workers:
    """Clients that keep one connection each, by the process at its other end."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self.by_pid: dict[int, httpx.AsyncClient] = {}

    async def see(self, count: int) -> None:
        """Opens connections until so many processes have been seen."""
        async with asyncio.timeout(BOUND_S):
            while len(self.by_pid) < count:
                limits = httpx.Limits(max_connections=1, keepalive_expiry=None)
                http = httpx.AsyncClient(
                    base_url=self._url, headers=OPERATOR, trust_env=False, timeout=BOUND_S, limits=limits
                )
                await self._stack.enter_async_context(http)
                try:
                    pid = int(re.findall(r"\d+", (await call(http, "/mine/worker")).raise_for_status().text)[0])
                except (httpx.HTTPError, IndexError):
                    await asyncio.sleep(0.05)
                    continue
                self.by_pid.setdefault(pid, http)


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await check():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def two_workers(folder: Path) -> AsyncIterator[tuple[Program, Workers]]:
    lock = folder / "wicketgate.lock"
    write_lock(lock, pin_all({"mine": [HELD]}))
    file = config(
        folder,
        auth={"keys": [WRITER]},
        access=[{"match": "echo:echo", "approval": "always"}],
        pins={"file": str(lock)},
    )
    async with (
        program("app", "serve", "--config", str(file), "--port", "0", "--workers", "2") as running,
        AsyncExitStack() as stack,
    ):
        workers = Workers(await address(running), stack)
        await workers.see(2)
        yield running, workers


@requirement("OPS-353", "OPS-291", "OPS-292", "OPS-294", "OPS-296")
async def test_what_an_operator_does_at_one_worker_holds_at_the_other(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (_, workers), asyncio.timeout(2 * BOUND_S):
        one, other = workers.by_pid.values()

        # A call that waits at one is seen and decided at the other, and runs once.
        async def asks() -> bool:
            return bool((await call(one, "/echo/echo", text="hi")).json().get("code") == "APPROVAL_REQUIRED")

        await until(asks)
        for http in (one, other):
            assert len((await get(http, "approvals"))["waiting"]) == 1
        (ask,) = (await get(other, "approvals"))["waiting"]
        assert (await other.post(f"{API}/approvals/{ask['id']}", json={"decision": "approve"})).status_code == 200
        assert (await one.post(f"{API}/approvals/{ask['id']}", json={"decision": "deny"})).status_code == 404
        ran = [await call(http, "/echo/echo", text="hi") for http in (other, one)]
        assert [each.status_code for each in ran] == [200, 403]

        # A server is switched off and on.
        done = await one.post(f"{API}/servers/own/disable")
        assert (done.status_code, done.json()["elsewhere"]) == (202, {"done": 1, "failed": 0, "unreached": 0})
        for http in (one, other):
            assert not (await get(http, "servers/own"))["enabled"]
            assert (await call(http, "/own/echo", text="hi")).status_code == 404
        assert (await other.post(f"{API}/servers/own/enable")).status_code == 202

        async def serves() -> bool:
            return all([(await call(http, "/own/echo", text="hi")).status_code == 200 for http in (one, other)])

        await until(serves)

        # A definition is accepted.
        (held,) = (await get(other, "held"))["held"]
        wanted = {"upstream": "mine", "tool": "hold", "digest": held["digest"]}
        accepted = await other.post(f"{API}/accept", json=wanted)
        assert (accepted.status_code, accepted.json()["elsewhere"]["done"]) == (200, 1), accepted.text
        for http in (one, other):
            assert (await get(http, "held"))["held"] == []


@requirement("OPS-354")
async def test_a_worker_that_comes_in_place_of_a_killed_one_has_the_same_servers_switched_off(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (_, workers), asyncio.timeout(2 * BOUND_S):
        killed, left = workers.by_pid
        assert (await workers.by_pid[left].post(f"{API}/servers/own/disable")).json()["elsewhere"]["done"] == 1
        os.kill(killed, signal.SIGKILL)
        await workers.see(3)
        new = next(http for pid, http in workers.by_pid.items() if pid not in (killed, left))

        async def taken_over() -> bool:
            found = await get(new, "servers/own")
            return (found["enabled"], found["switched"]) == (False, True)

        await until(taken_over)
        # It is one state: switched on at the new one, it is on at all.
        done = await new.post(f"{API}/servers/own/enable")
        assert (done.status_code, done.json()["elsewhere"]["done"]) == (202, 1)
        assert not (await get(workers.by_pid[left], "servers/own"))["switched"]
