"""``wicketgate serve --workers``: several processes behind one address."""

import asyncio
import json
import os
import re
import shlex
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_drain import Holding
from tests.support.process import alive, children, outcome, program, stand_still
from tests.support.requirement import requirement
from tests.support.served import ECHO, HEADERS, address, write_config
from tests.support.service import BOUND_S, chat_body
from tests.support.until import until

TOOLS = """
import asyncio, os
from wicketgate.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
async def worker() -> int:
    "The process that runs this."
    return os.getpid()


@registry.tool
async def hold(port: int) -> int:
    "Answer when the test closes the connection."
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.read()
    writer.close()
    return os.getpid()
"""

SERVED = r'wicketgate_http_requests_total\{worker="(\d)",path="/operations/call",status="200"\}'


def config(folder: Path, *more: str, **sections: Any) -> Path:
    (folder / "worker_tools.py").write_text(TOOLS)
    upstreams = [
        ECHO,
        *({**ECHO, "name": name} for name in more),
        {"name": "mine", "python": "worker_tools:registry", "cwd": str(folder)},
    ]
    storage = sections.pop("storage", {"url": f"sqlite:///{folder}/store.db"})
    audit = {"auditing": {"_global": [{"handler": "audit_jsonl", "config": {"path": f"{folder}/audit.jsonl"}}]}}
    return write_config(folder, upstreams=upstreams, storage=storage, plugins=audit, **sections)


async def call(url: str, operation: str, bound_s: float = BOUND_S, **given: Any) -> Any:
    """The result of a call over a connection of its own."""
    async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False, timeout=bound_s) as http:
        answer = await http.post("/operations/call", json={"operation": operation, "input": given})
        answer.raise_for_status()
        return re.search(r"\d+", answer.text)


async def pid_from(url: str, operation: str) -> int:
    found = await call(url, operation)
    return int(found[0])


async def workers_of(url: str, count: int, *, without: set[int] = frozenset()) -> set[int]:  # type: ignore[assignment]
    """The processes that serve, once so many have been seen beside those *without*."""
    seen = set[int]()
    async with asyncio.timeout(BOUND_S):
        while len(seen) < count:
            answers = await asyncio.gather(*(pid_from(url, "/mine/worker") for _ in range(4)), return_exceptions=True)
            seen |= {answer for answer in answers if isinstance(answer, int)} - without
    return seen


async def metrics(url: str) -> str:
    async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False, timeout=BOUND_S) as http:
        return (await http.get("/metrics")).text


async def by_process(url: str, operation: str, workers: set[int]) -> set[int]:
    """The processes of a stdio server that two workers reach, each being asked alone."""

    async def answer() -> int:
        with suppress(httpx.HTTPStatusError):
            return await pid_from(url, operation)
        return 0

    found = set[int]()
    for stopped in workers:
        await stand_still(stopped)
        try:
            found.add(await until(answer))
        finally:
            os.kill(stopped, signal.SIGCONT)
    return found


@requirement("OPS-175", "OPS-177", "OPS-178", "OPS-180", "OPS-181", "OPS-182", "OPS-185")
async def test_two_workers_are_one_service_and_each_that_is_killed_is_replaced(tmp_path: Path) -> None:
    line = ("app", "serve", "--config", str(config(tmp_path)), "--port", "0", "--workers", "2")
    async with program(*line) as running:
        url = await address(running)
        first = await workers_of(url, 2)
        assert first < set(children(running.process.pid))

        # Each has its own stdio servers.
        assert len(await by_process(url, "/echo/pid", first)) == 2

        # Metrics, whichever is asked: those of the other are up to five seconds old.
        await until(lambda: metrics(url), lambda text: len(set(re.findall(SERVED, text))) == 2, pause_s=0.2)
        for _ in range(4):
            text = await metrics(url)
            assert all(f'wicketgate_worker_up{{worker="{number}"}} 1.0' in text for number in (0, 1))
            assert all(f'wicketgate_upstream_up{{worker="{number}",upstream="echo"}} 1.0' in text for number in (0, 1))
        assert len(set(re.findall(SERVED, text))) == 2

        # A worker is killed.
        killed = min(first)
        os.kill(killed, signal.SIGKILL)
        second = await workers_of(url, 2, without={killed})
        assert second & first
        async with asyncio.timeout(BOUND_S):
            while "wicketgate_worker_starts_total" not in text or " 2.0" not in "".join(
                re.findall(r"wicketgate_worker_starts_total.*", text)
            ):
                text = await metrics(url)

        # A reload reaches the worker that was there, and the one that came.
        config(tmp_path, "late")
        running.process.send_signal(signal.SIGHUP)
        assert len(await by_process(url, "/late/pid", second)) == 2

        processes = children(running.process.pid)
        assert await running.stop() == 0
        assert not any(map(alive, processes))
    assert running.stderr.count("ready on") == 1
    assert any("each worker runs its own stdio servers" in line["message"] for line in running.logs())
    records = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert len(records) > 10


@requirement("OPS-177")
@pytest.mark.parametrize("twice", [False, True])
async def test_one_stop_drains_all_workers_and_a_second_cuts_them(tmp_path: Path, twice: bool) -> None:
    line = ("app", "serve", "--config", str(config(tmp_path, server={"drain_s": 60})), "--port", "0", "--workers", "2")
    async with Holding() as holding, program(*line) as running:
        url = await address(running)
        workers = await workers_of(url, 2)
        held = list[asyncio.Task[Any]]()
        for stopped in workers:
            await stand_still(stopped)
            held.append(asyncio.create_task(call(url, "/mine/hold", port=holding.port)))
            await holding.arrived(1)
            os.kill(stopped, signal.SIGCONT)
        # As a service manager does: each process gets it.
        for pid in (running.process.pid, *workers):
            os.kill(pid, signal.SIGTERM)
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False, timeout=BOUND_S) as http:
            await until(lambda: http.get("/readyz"), lambda answer: answer.status_code == 503)
        assert not any(task.done() for task in held)
        if twice:
            running.process.send_signal(signal.SIGTERM)
            ended = await asyncio.gather(*held, return_exceptions=True)
            assert all(isinstance(each, httpx.HTTPError) for each in ended)
        else:
            holding.release()
            assert {int(each[0]) for each in await asyncio.gather(*held)} == workers
        assert await running.ended() == 0


@requirement("OPS-176")
async def test_workers_without_a_store_that_they_can_share_do_not_start(tmp_path: Path) -> None:
    code, out, err = await outcome(
        "app", "serve", "--config", str(write_config(tmp_path)), "--port", "0", "--workers", "2"
    )
    assert (code, out) == (1, "")
    assert "storage.url: sqlite:///" in err


async def status_of(post: Any, session: str) -> int:
    """The status of a request in a session; one that its worker has died with is sent again, and one that is told
    to try again."""
    async with asyncio.timeout(BOUND_S):
        while True:
            with suppress(httpx.TransportError):
                answer: httpx.Response = await post(session, id=2, method="tools/list")
                if answer.status_code != 503:
                    return answer.status_code


@requirement("OPS-186", "FACE-115", "FACE-116", "FACE-118")
async def test_a_handshake_session_is_served_by_every_worker(tmp_path: Path) -> None:
    line = ("app", "serve", "--config", str(config(tmp_path)), "--port", "0", "--workers", "2")
    async with Holding() as holding, program(*line) as running:
        url = await address(running)
        workers = await workers_of(url, 2)
        accepts = {**HEADERS, "Accept": "application/json, text/event-stream"}

        async def post(session: str, **message: Any) -> httpx.Response:
            """Over a connection of its own."""
            given = {**accepts, "MCP-Protocol-Version": "2025-06-18"} | ({"Mcp-Session-Id": session} if session else {})
            async with httpx.AsyncClient(headers=given, trust_env=False, timeout=BOUND_S) as http:
                return await http.post(f"{url}/mcp", json={"jsonrpc": "2.0", **message})

        client = {"name": "t", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        opened = await post("", id=1, method="initialize", params=params)
        session = opened.headers["mcp-session-id"]
        for _ in range(6):
            tools = await post(session, id=2, method="tools/list")
            assert (tools.status_code, tools.headers.get_list("mcp-session-id")) == (200, [session])
            assert "tool_browse" in tools.text
        assert (
            await post(session[:-1] + ("8" if session.endswith("7") else "7"), id=2, method="tools/list")
        ).status_code == 404
        stranger = {"Authorization": "Bearer wg_x"}
        assert httpx.get(f"{url}/mcp", headers={**accepts, **stranger, "Mcp-Session-Id": session}).status_code == 401

        # Each worker takes one of the connections; a cancellation finds the call wherever it comes in.
        for _ in workers:
            browse = {"name": "tool_browse", "arguments": {"query": "hold"}}
            found = (await post(session, id=3, method="tools/call", params=browse)).text
            (tool_id,) = set(re.findall(r"mine:hold#\w+", found))
            execute = {"name": "tool_execute", "arguments": {"tool_id": tool_id, "args": {"port": holding.port}}}
            call = asyncio.create_task(post(session, id=9, method="tools/call", params=execute))
            await holding.arrived(1)
            cancelled = await post(session, method="notifications/cancelled", params={"requestId": 9})
            assert cancelled.status_code == 202
            assert "-32800" in (await call).text
        # It outlives the worker that opened it, whichever that was.
        for killed in workers:
            os.kill(killed, signal.SIGKILL)
            again = await workers_of(url, 1, without={killed})
            assert again
            assert await status_of(post, session) == 200
        async with httpx.AsyncClient(headers={**accepts, "Mcp-Session-Id": session}, trust_env=False) as http:
            assert (await http.delete(f"{url}/mcp")).status_code == 200
            # On the same connection: other workers know it within a minute.
            assert (await http.delete(f"{url}/mcp")).status_code == 404
        assert await running.stop() == 0


@requirement("OPS-396")
async def test_a_worker_takes_connections_once_it_has_tools_or_after_the_bound(tmp_path: Path) -> None:
    """Its own servers are slow to start, and one of them never does."""
    slow = {"name": "slow", "command": ["sh", "-c", f"sleep 1; exec {shlex.join(ECHO['command'])}"]}
    never = {"name": "never", "command": ["sh", "-c", "while read line; do :; done"]}
    mine = {"name": "mine", "python": "worker_tools:registry", "cwd": str(tmp_path)}
    (tmp_path / "worker_tools.py").write_text(TOOLS)
    file = write_config(
        tmp_path,
        upstreams=[slow, never, mine],
        storage={"url": f"sqlite:///{tmp_path}/store.db"},
        server={"start_deadline_s": 3},
    )
    async with program("app", "serve", "--config", str(file), "--port", "0", "--workers", "2") as running:
        url = await address(running)
        workers, refused, stop = await workers_of(url, 2), list[str](), asyncio.Event()

        async def ask() -> None:
            while not stop.is_set():
                async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False, timeout=BOUND_S) as http:
                    with suppress(httpx.TransportError):  # the worker was killed with it
                        answer = await http.post("/operations/call", json={"operation": "/slow/pid", "input": {}})
                        if answer.status_code != 200:
                            refused.append(answer.text)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(ask())
            for killed in workers:
                os.kill(killed, signal.SIGKILL)
                workers = await workers_of(url, 2, without={killed})
            stop.set()
        assert refused == []
        assert await running.stop() == 0


@requirement("OPS-531", "OPS-532", "OPS-533")
async def test_calls_turns_and_approvals_that_wait_are_counted_at_workers(tmp_path: Path) -> None:
    access = [{"match": "echo:pid", "approval": "always"}]
    path = config(tmp_path, access=access)
    async with program("app", "serve", "--config", str(path), "--port", "0", "--workers", "2") as running:
        url = await address(running)
        await call(url, "/mine/worker")
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False) as http:
            refused = await http.post("/operations/call", json={"operation": "/echo/pid", "input": {}})
            assert "APPROVAL_REQUIRED" in refused.text
            assert (await http.post("/engine/chat", json=chat_body("hello"))).status_code == 200

        def counted(text: str) -> bool:
            waiting = re.findall(r'wicketgate_approvals_waiting{worker="\d"} (\S+)', text)
            calls = re.findall(r'upstream_calls_total{worker="\d",outcome="ok",upstream="mine"} (\S+)', text)
            turns = re.findall(r'model_calls_total{worker="\d",model="scripted",outcome="ok"} (\S+)', text)
            return waiting == ["1.0", "1.0"] and sorted(calls) == sorted(turns) == ["0.0", "1.0"]

        await until(lambda: metrics(url), counted, pause_s=0.2)
