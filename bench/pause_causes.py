"""``make bench-pause CAUSES="callers batch"``: how long is ``/healthz`` held up, by cause?

Each cause has a ``wicketgate serve`` of its own. A process that does nothing else asks ``/healthz`` every 2 ms on one
connection.

*MB* is the resident memory before, at its peak, and a second later.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bench.catalogs import ROOT
from bench.helper_process import helper_process, next_line
from bench.table import figure, table
from tests.support.process import Program, program
from wicketgate.storage.keys import new_key

GOAL_MS = 100.0
_BOUND_S = 60.0
_CALLS_S = 4.0
_TOOL = "tool_execute"
_ROWS_A_MB = 11_000

Sample = tuple[float, float, float]


@dataclass
class Gateway:
    """A running service; *tool* is the id of the tool that answers with text, if the cause has one."""

    host: str
    port: int
    key: str
    program: Program
    tool: str = ""

    def head(self, path: str, length: int | None, *more: str) -> bytes:
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            f"Authorization: Bearer {self.key}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            *more,
            "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def mcp(self, message: object, path: str = "/mcp", name: str = _TOOL) -> bytes:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        head = self.head(
            path, len(body), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", f"Mcp-Name: {name}"
        )
        return head + body

    def chat(self, body: object) -> bytes:
        data = json.dumps(body).encode()
        return self.head("/engine/chat", len(data)) + data

    def call(self, args: dict[str, Any], number: int = 1, *, namespaced: bool = False) -> bytes:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
        }
        path, name, arguments = "/mcp", _TOOL, {"tool_id": self.tool, "args": args}
        if namespaced:
            path, name, arguments = "/mcp/namespaced", "fill__fill", args
        params = {"name": name, "arguments": arguments, "_meta": meta}
        return self.mcp({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, path, name)

    async def send(self, request: bytes, times: int = 1) -> list[int]:
        """The status of each answer, over one connection."""
        statuses = []
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**26)
        try:
            async with asyncio.timeout(_BOUND_S):
                for _ in range(times):
                    writer.write(request)
                    statuses.append(await _answer(reader))
        except (OSError, asyncio.IncompleteReadError):
            statuses.append(0)  # cut amid the request: an answer may have come before
        finally:
            writer.close()
        return statuses


Work = Callable[[Gateway], Awaitable[str]]


@dataclass(frozen=True)
class Cause:
    """*upstream* is "http", "stdio" or empty; *work* returns a note for the table. With *idle* servers it is the time
    of start and stop that counts. *max_answer_mb*: the upstream's limit; 0 leaves the default of 16, above which an
    answer is refused."""

    title: str
    work: Work
    upstream: str = ""
    model: bool = False
    idle: int = 0
    max_answer_mb: int = 0


async def callers(gateway: Gateway) -> str:
    request = gateway.call({"number": 1, "chars": 20})
    until = time.monotonic() + _CALLS_S
    done = 0
    bad = 0

    async def caller() -> None:
        nonlocal done, bad
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        while time.monotonic() < until:
            writer.write(request)
            try:
                status = await _answer(reader)
            except (OSError, asyncio.IncompleteReadError):
                bad += 1
                break
            done, bad = done + (status == 200), bad + (status != 200)
        writer.close()

    await asyncio.gather(*(caller() for _ in range(512)))
    return f"{done / _CALLS_S:.0f} calls/s, {bad} refused"


async def connections(gateway: Gateway) -> str:
    request = gateway.call({"number": 1, "chars": 20})
    statuses = await asyncio.gather(*(gateway.send(request) for _ in range(500)))
    return _counts([status for each in statuses for status in each])


async def batch(gateway: Gateway) -> str:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    return _counts(await gateway.send(gateway.mcp(b"[" + b",".join([ping] * 200_000) + b"]")))


async def messages(gateway: Gateway) -> str:
    body = {"messages": [{"role": "user", "content": "a"}] * 200_000, "metadata": {"correlation_id": "b"}}
    return _counts(await gateway.send(gateway.chat(body)))


async def most_messages(gateway: Gateway) -> str:
    body = {"messages": [{"role": "user", "content": "a"}] * 10_000, "metadata": {"correlation_id": "b"}}
    return _counts(await gateway.send(gateway.chat(body)))


async def objects(gateway: Gateway) -> str:
    return _counts(await gateway.send(gateway.call({"number": 1, "chars": 20, "more": [{"k": 1}] * 800_000})))


async def most_objects(gateway: Gateway) -> str:
    return _counts(await gateway.send(gateway.call({"number": 1, "chars": 20, "more": [{"k": 1}] * 24_000})))


def answers(megabytes: int, at_once: int = 1, *, rows: bool = False, namespaced: bool = False) -> Work:
    """*rows*: structured content of that size in place of a text. *namespaced*: it goes to the client as it came."""

    async def work(gateway: Gateway) -> str:
        size = {"chars": 0, "rows": megabytes * _ROWS_A_MB} if rows else {"chars": megabytes * 1_000_000}
        requests = [gateway.call({"number": n, **size}, namespaced=namespaced) for n in range(at_once)]
        statuses = await asyncio.gather(*(gateway.send(request) for request in requests))
        return _counts([status for each in statuses for status in each])

    return work


async def slow_readers(gateway: Gateway) -> str:
    request = gateway.chat({"messages": [{"role": "user", "content": "a"}], "metadata": {"correlation_id": "b"}})
    sockets = []
    for _ in range(100):
        one = socket.create_connection((gateway.host, gateway.port))
        one.setblocking(False)
        one.send(request)
        sockets.append(one)
    await asyncio.sleep(8)
    for one in sockets:
        one.close()
    await asyncio.sleep(1)
    return "100 streams"


async def nothing(gateway: Gateway) -> str:
    await asyncio.sleep(2)
    return ""


CAUSES = {
    "callers": Cause("512 /mcp callers, closed loop", callers, "stdio"),
    "connections": Cause("500 new connections at once with a tiny call", connections, "stdio"),
    "batch": Cause("/mcp: 8 MB, a batch of 200,000 pings", batch),
    "messages": Cause("/engine/chat: 7.5 MB of 200,000 messages", messages),
    "most-messages": Cause("/engine/chat: 10,000 messages", most_messages),
    "objects": Cause("/mcp: 8 MB of small objects in args", objects, "stdio"),
    "most-objects": Cause("/mcp: 24,000 small objects in args", most_objects, "stdio"),
    "http-60": Cause("answer of 60 MB, HTTP", answers(60), "http"),
    "http-20": Cause("answer of 20 MB, HTTP", answers(20), "http", max_answer_mb=32),
    "http-5": Cause("answer of 5 MB, HTTP", answers(5), "http"),
    "stdio-60": Cause("answer of 60 MB, stdio", answers(60), "stdio"),
    "stdio-20": Cause("answer of 20 MB, stdio", answers(20), "stdio", max_answer_mb=32),
    "stdio-5": Cause("answer of 5 MB, stdio", answers(5), "stdio"),
    "http-15": Cause("answer of 15 MB, HTTP", answers(15), "http"),
    "stdio-15": Cause("answer of 15 MB, stdio", answers(15), "stdio"),
    **{
        f"{kind}-{upstream}-20{'-namespaced' if namespaced else ''}": Cause(
            f"{kind} of 20 MB, {upstream}{', namespaced' if namespaced else ''}",
            answers(20, rows=kind == "rows", namespaced=namespaced),
            upstream,
            max_answer_mb=32,
        )
        for kind in ("rows", "text")
        for upstream in ("stdio", "http")
        for namespaced in (False, True)
        if kind == "rows" or namespaced
    },
    "answers": Cause("16 answers of 40 MB at once, HTTP", answers(40, 16), "http"),
    "answers-15": Cause("16 answers of 15 MB at once, HTTP", answers(15, 16), "http"),
    "slow-readers": Cause("100 slow readers of a fast model", slow_readers, model=True),
    "upstreams": Cause("500 HTTP upstreams starting and stopping", nothing, idle=500),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("causes", nargs="*", metavar="CAUSE", help=", ".join(CAUSES))
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "pause_causes.json")
    options = parser.parse_args()
    unknown = set(options.causes) - CAUSES.keys()
    if unknown:
        parser.error(f"no such cause: {', '.join(sorted(unknown))}")
    rows = [asyncio.run(measure(CAUSES[name])) for name in options.causes or CAUSES]
    print(f"goal: nothing above {GOAL_MS:g} ms; load average {os.getloadavg()[0]:.1f}")
    head = ["cause", "longest /healthz ms", f"> {GOAL_MS:g} ms", "probe late ms", "MB before, peak, after", ""]
    print(
        table(
            head,
            [
                [
                    row["cause"],
                    figure(row["longest_ms"]),
                    str(row["over_goal"]),
                    figure(row["overslept_ms"]),
                    ", ".join(f"{mb:.0f}" for mb in row["resident_mb"]),
                    row["note"],
                ]
                for row in rows
            ],
        )
    )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(rows, indent=1) + "\n")


async def measure(cause: Cause) -> dict[str, Any]:
    key, digest = new_key("bench")
    settings: dict[str, Any] = {
        "auth": {"keys": [{"id": "bench", "sha256": digest, "actor": "bench", "permissions": ["tools:*"]}]},
        "upstreams": [],
    }
    async with AsyncExitStack() as stack:
        limits: dict[str, Any] = {"timeout_s": _BOUND_S}
        if cause.max_answer_mb:
            limits["max_answer_bytes"] = cause.max_answer_mb << 20
        if cause.upstream == "stdio":
            command = [sys.executable, "-m", "bench.execute_upstream"]
            settings["upstreams"] = [{"name": "fill", "command": command, "cwd": str(ROOT), **limits}]
        elif cause.upstream == "http":
            there = await stack.enter_async_context(helper_process("bench.execute_upstream", "--http"))
            url = (await next_line(there, _BOUND_S)).rpartition(" ")[2]
            settings["upstreams"] = [{"name": "fill", "url": url, **limits}]
        elif cause.idle:
            there = await stack.enter_async_context(helper_process("bench.execute_upstream", "--http"))
            url = (await next_line(there, _BOUND_S)).rpartition(" ")[2]
            settings["upstreams"] = [{"name": f"fill{n}", "url": url} for n in range(cause.idle)]
        if cause.model:
            there = await stack.enter_async_context(helper_process("bench.fast_model"))
            model_port = await next_line(there, _BOUND_S)
            model = {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{model_port}/v1", "model": "m"}
            settings["model"] = model
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "wicketgate.yaml"
        config.write_text(yaml.safe_dump(settings))
        gate = await stack.enter_async_context(
            program("app", "serve", "--config", str(config), "--port", str(_free()), cold=True)
        )
        began = time.monotonic()
        if cause.idle:
            # The probe watches the connecting too, so it begins with the first answer.
            port = _port_of(gate)
            await _answering(port)
            began = time.monotonic()
            gateway = Gateway("127.0.0.1", port, key, gate)
        else:
            address = urlsplit((await gate.wait_for(r"ready on (http://\S+)")).group(1))
            gateway = Gateway(
                str(address.hostname), int(address.port or 0), key, gate, "fill:fill" if cause.upstream else ""
            )
            await asyncio.sleep(0.5)
        probe = await stack.enter_async_context(helper_process("bench.loop_probe", gateway.host, str(gateway.port)))
        if cause.idle:
            await gate.wait_for(r"ready on (http://\S+)")
        else:
            await asyncio.sleep(0.5)
        before = _resident_mb(gate, "VmRSS")
        _forget_peak(gate)
        began = time.monotonic() if not cause.idle else began
        note = await cause.work(gateway)
        await asyncio.sleep(1.0)
        ended = time.monotonic()
        resident = [before, _resident_mb(gate, "VmHWM"), _resident_mb(gate, "VmRSS")]
        if probe.stdin is None:
            raise RuntimeError("no pipe")
        if cause.idle:
            # All of them are stopped by a reload that takes them out.
            config.write_text(yaml.safe_dump({**settings, "upstreams": []}))
            gate.process.send_signal(signal.SIGHUP)
            await gate.wait_for(r"configuration applied", "stdout")
            await asyncio.sleep(1)
            ended = time.monotonic()
        probe.stdin.close()
        samples: list[Sample] = json.loads(await next_line(probe, _BOUND_S))
    within = [sample for sample in samples if began <= sample[0] + sample[1] / 1e3 and sample[0] <= ended]
    return {
        "cause": cause.title,
        "longest_ms": max(sample[1] for sample in within),
        "over_goal": sum(sample[1] > GOAL_MS for sample in within),
        "overslept_ms": max(sample[2] for sample in within),
        "resident_mb": resident,
        "note": note,
    }


def _counts(statuses: list[int]) -> str:
    return ", ".join(f"{statuses.count(one)} x {one or 'cut'}" for one in sorted(set(statuses)))


async def _answer(reader: asyncio.StreamReader) -> int:
    return int((await _read(reader))[0].split()[1])


async def _body(reader: asyncio.StreamReader) -> bytes:
    return (await _read(reader))[1]


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head, await reader.readexactly(int(line.split(b":")[1]))
    pieces = []
    while size := int((await reader.readline()).strip(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return head, b"".join(pieces)


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
    return port


def _port_of(gate: Program) -> int:
    line = Path(f"/proc/{gate.process.pid}/cmdline").read_bytes().split(b"\0")
    return int(line[line.index(b"--port") + 1])


async def _answering(port: int) -> None:
    """Returns at the first answer. The port listens before the program is loaded, and the start is no pause."""
    reader, writer = await _connected(port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(_BOUND_S):
        await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(_BOUND_S):
        while True:
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.01)


def _resident_mb(gate: Program, field: str) -> float:
    text = Path(f"/proc/{gate.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(field)).split()[1]) / 1024


def _forget_peak(gate: Program) -> None:
    with suppress(OSError):
        Path(f"/proc/{gate.process.pid}/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
