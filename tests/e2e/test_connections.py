"""The real process under more connections than it has files for."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.open_sockets import closed, connections
from tests.support.process import Program
from tests.support.requirement import requirement
from tests.support.served import HEADERS, serving, write_config
from tests.support.service import BOUND_S, KEY
from tests.support.until import until

FILES = 256
MANY = 300

WITHOUT_A_KEY = b"POST /engine/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
WITH_A_KEY = WITHOUT_A_KEY.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())


@asynccontextmanager
async def served(folder: Path, **sections: Any) -> AsyncIterator[tuple[Program, int]]:
    """The service with at most FILES open files, and its port."""
    async with serving(write_config(folder, **sections), files=FILES) as (running, http):
        assert http.base_url.port is not None
        yield running, http.base_url.port


@asynccontextmanager
async def caller(port: int, source: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(local_address=source)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=HEADERS, transport=transport, timeout=BOUND_S
    ) as http:
        yield http


@requirement("OPS-27", "OPS-30")
async def test_dripped_bodies_without_a_credential_keep_nobody_out_and_are_closed(tmp_path: Path) -> None:
    async with served(tmp_path) as (running, port):
        with connections(port, MANY, first=WITHOUT_A_KEY) as flood:
            ends = [asyncio.create_task(closed(sock, drip=b" ")) for sock in flood]
            for source in ("127.0.0.1", "127.0.0.2"):
                async with caller(port, source) as http:
                    assert (await http.get("/healthz")).status_code == 200
            async with caller(port, "127.0.0.2") as http:
                assert (await http.get("/metrics")).status_code == 200
            async with asyncio.timeout(BOUND_S):
                answers = await asyncio.gather(*ends)
        assert any(answer.startswith(b"HTTP/1.1 401") for answer in answers)
        assert await running.stop() == 0


@requirement("OPS-30", "OPS-31", "OPS-32")
async def test_idle_connections_of_one_address_give_way_and_are_counted(tmp_path: Path) -> None:
    async with served(tmp_path) as (running, port):
        with connections(port, MANY) as flood:
            async with caller(port, "127.0.0.2") as other, caller(port) as same:
                assert (await same.get("/healthz")).status_code == 200
                assert (await other.get("/metrics")).status_code == 200
                metrics = (await other.get("/metrics")).text
            values = {line.split(" ")[0]: float(line.split(" ")[1]) for line in metrics.splitlines() if line[0] != "#"}
            assert 0 < values["wicketgate_connections_open"] < FILES
            assert values['wicketgate_connections_cut_total{reason="gave_way"}'] >= MANY - FILES
            del flood
        assert await running.stop() == 0


@requirement("OPS-34")
async def test_running_out_of_files_is_logged_and_counted_and_ends_by_itself(tmp_path: Path) -> None:
    async with served(tmp_path) as (running, port):
        pid = running.process.pid
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, FILES))
        with connections(port, 20):
            line = await running.wait_for(r'\{[^\n]*"level": "error"[^\n]*open files[^\n]*\}', "stdout", BOUND_S)
            assert "ulimit -n" in json.loads(line.group())["message"]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
            async with caller(port, "127.0.0.2") as http:
                metrics = (await http.get("/metrics")).text
        (count,) = (line for line in metrics.splitlines() if line.startswith("wicketgate_out_of_files_total "))
        assert float(count.split(" ")[1]) >= 1
        assert await running.stop() == 0


@requirement("OPS-31")
async def test_over_the_bound_only_health_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path, server={"max_connections": 4}) as (running, port):
        with connections(port, 3, first=WITH_A_KEY), connections(port, 1, first=WITH_A_KEY, source="127.0.0.4"):
            async with caller(port, "127.0.0.2") as http:
                for path in ("/healthz", "/readyz"):
                    answer = await http.get(path)
                    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
                answer = await http.get("/metrics")
            assert (answer.status_code, answer.json()["code"]) == (503, "too_many_connections")
            assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
            with connections(port, MANY, source="127.0.0.3"):
                async with caller(port, "127.0.0.3") as http:
                    assert (await http.get("/healthz")).status_code == 200
        async with caller(port) as http:
            await until(lambda: http.get("/metrics"), lambda answer: answer.status_code == 200)
        assert await running.stop() == 0


@requirement("ACCESS-31")
async def test_the_log_names_the_client_behind_a_trusted_proxy(tmp_path: Path) -> None:
    forwarded = {"X-Forwarded-For": "127.0.0.1, 203.0.113.9"}
    async with served(tmp_path, server={"trusted_proxies": ["127.0.0.2"]}) as (running, port):
        for source in ("127.0.0.2", "127.0.0.3"):
            async with caller(port, source) as http:
                assert (await http.get("/metrics", headers=forwarded)).status_code == 200
        assert await running.stop() == 0
    clients = [line["client"] for line in running.logs() if line["message"].startswith("GET /metrics")]
    assert clients == ["203.0.113.9", "127.0.0.3"]
