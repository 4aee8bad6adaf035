"""The console over two workers: what an operator does at one holds at the other, and at one that comes later."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.app.console.test_servers import WRITER, WRITER_KEY
from tests.e2e.test_workers import config
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.served import address
from tests.support.service import BOUND_S
from tests.support.until import until

API = "/console/api"
OPERATOR = {"Authorization": f"Bearer {WRITER_KEY}"}


async def call(http: httpx.AsyncClient, operation: str, **given: Any) -> httpx.Response:
    return await http.post("/operations/call", json={"operation": operation, "input": given})


async def get(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(f"{API}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@asynccontextmanager
async def two_workers(folder: Path, url: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients that keep one connection each, to a worker of its own."""
    file = config(
        folder,
        "own",
        auth={"keys": [WRITER], "seal_keys": ["k" * 40]},
        storage={"url": url},
        access=[{"match": "echo:echo", "approval": "always"}],
    )
    by_pid: dict[int, httpx.AsyncClient] = {}
    async with (
        program("app", "serve", "--config", str(file), "--port", "0", "--workers", "2") as running,
        AsyncExitStack() as stack,
    ):
        at = await address(running)

        async def seen() -> bool:
            limits = httpx.Limits(max_connections=1, keepalive_expiry=None)
            http = httpx.AsyncClient(base_url=at, headers=OPERATOR, trust_env=False, timeout=BOUND_S, limits=limits)
            await stack.enter_async_context(http)
            pid = int(re.findall(r"\d+", (await call(http, "/mine/worker")).raise_for_status().text)[0])
            by_pid.setdefault(pid, http)
            return len(by_pid) == 2

        await until(seen, bound_s=BOUND_S)
        yield list(by_pid.values())


@requirement("OPS-353", "OPS-291", "OPS-292", "OPS-294")
async def test_what_an_operator_does_at_one_worker_holds_at_the_other(tmp_path: Path) -> None:
    async with two_workers(tmp_path, f"sqlite:///{tmp_path}/store.db") as (one, other), asyncio.timeout(2 * BOUND_S):
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
        assert (await one.post(f"{API}/servers/own/disable")).status_code == 202

        async def shown() -> bool:
            found = [(await get(http, "servers/own"))["outcomes"] for http in (one, other)]
            return [[(each["act"], each["done"]) for each in those] for those in found] == [[("disable", True)] * 2] * 2

        await until(shown)
        for http in (one, other):
            assert not (await get(http, "servers/own"))["enabled"]
            assert (await call(http, "/own/echo", text="hi")).status_code == 404
        assert (await other.post(f"{API}/servers/own/enable")).status_code == 202

        async def serves() -> bool:
            return all([(await call(http, "/own/echo", text="hi")).status_code == 200 for http in (one, other)])

        await until(serves)
