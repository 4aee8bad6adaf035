"""Many large answers at once in a process with little memory (UP-236)."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.large_server import answer
from tests.support.process import ROOT, command
from tests.support.requirement import requirement
from tests.support.served import HEADERS, address, write_config
from tests.support.service import RunningService
from tests.support.until import until
from tests.support.wire_client import WireClient
from wicketgate.answer_room import memory_bytes, room_bytes

MEMORY = 512 << 20
GROUPS = Path("/sys/fs/cgroup")
AT_ONCE = 64
SERVERS = ("pipe", "web", "api")
TEXT = {"content-type": "text/plain"}
BYTES = {"name": "bytes", "in": "query", "schema": {"type": "integer"}}
LARGE = {"operationId": "large", "parameters": [BYTES], "responses": {"200": {"description": "Much."}}}
DOCUMENT = {"openapi": "3.1.0", "info": {"title": "api", "version": "1"}, "paths": {"/large": {"get": LARGE}}}
BOUND_S = 120


@contextmanager
def group() -> Iterator[Path | None]:
    """The file that takes the processes of a group with MEMORY; None where no group can be made."""
    second = (GROUPS / "cgroup.controllers").exists()
    folder = (GROUPS if second else GROUPS / "memory") / f"wicketgate-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(MEMORY))
    except OSError:
        yield None
        return
    try:
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


def over_http(seen: Seen) -> Reply:
    """An OpenAPI service and an MCP server that answers in JSON, or in a stream of events if asked to."""
    if seen.target.startswith("/large"):
        return Reply(b"word and " * (int(seen.target.partition("bytes=")[2].partition("&")[0]) // 9), headers=TEXT)
    if seen.target == "/openapi.json":
        return Reply(json.dumps(DOCUMENT).encode())
    asked = json.loads(seen.body) if seen.method == "POST" else {}
    if "id" not in asked:
        return Reply(status=202 if asked else 405)
    body = b"".join(answer(asked))
    if asked["method"] == "tools/call" and asked["params"]["arguments"].get("stream"):
        return Reply(b"data: " + body + b"\n\n", headers={"content-type": "text/event-stream"})
    return Reply(body)


@requirement("UP-236")
async def test_large_answers_are_late_but_leave_the_process_alive(tmp_path: Path) -> None:
    async def call(server: str, size: int, number: int) -> bool:
        """True if the tool's text came."""
        given = {"bytes": size} | ({"stream": number % 2 == 1} if server == "web" else {})
        if number % 16 > 13:
            body = {"operation": f"/{server}/large", "input": given}
            return (await http.post("/operations/call", json=body)).text.startswith('"word and')
        client = WireClient(RunningService("", http, None), path="/mcp/gateway")
        shown = await client.call("tool_execute", {"tool_id": f"{server}:large", "args": given})
        return "word and" in json.dumps(shown["result"]) and not shown["result"].get("isError")

    with group() as procs:
        async with HttpService(over_http) as service:
            upstreams: list[dict[str, Any]] = [
                {"name": "pipe", "command": [sys.executable, "-m", "tests.support.large_server"], "cwd": str(ROOT)},
                {"name": "web", "url": f"{service.url}/mcp"},
                {"name": "api", "openapi": f"{service.url}/openapi.json", "base_url": service.url},
            ]
            config = write_config(tmp_path, upstreams=[{**each, "timeout_s": BOUND_S} for each in upstreams])
            serve = f"exec {sys.executable} -m app serve --config {config} --port 0"
            enter = "" if procs is None else f"echo $$ > {procs}; "
            async with command("sh", "-c", enter + serve, folder=ROOT) as running:
                async with httpx.AsyncClient(
                    base_url=await address(running), headers=HEADERS, timeout=BOUND_S, limits=httpx.Limits()
                ) as http:
                    await until(lambda: http.get("/readyz"), lambda answer: answer.status_code == 200, bound_s=BOUND_S)
                    many = [asyncio.create_task(call(SERVERS[n % 3], 15_000_000, n)) for n in range(AT_ONCE)]
                    alive = []
                    while not all(one.done() for one in many):
                        alive.append((await http.get("/healthz")).status_code)
                        await asyncio.wait(many, timeout=0.2)
                    answers = [await one for one in many]
                    after = [await call(server, 100_000, 1) for server in SERVERS]
                status = Path(f"/proc/{running.process.pid}/status").read_text()
                assert await running.stop() == 0
    peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
    assert set(alive) == {200}
    assert all(answers)
    assert all(after)
    # Without a group, the room for answers is larger.
    assert peak < MEMORY + 6 * (room_bytes(memory_bytes()) - room_bytes(0)) * (procs is None)
