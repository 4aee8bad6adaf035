"""``make bench-scaling``: what a stream, a call and a tool cost at one, two and three replicas over one Redis.

CPU time of all replicas and of Redis, and what Redis is asked (commands inside its scripts too), an operation; memory
of a stream. The requests go to the replicas in turn. All runs on this machine, so nothing here is about what many
machines let through: the model in docs/scaling.md goes by the cost of one operation.
"""

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import redis.asyncio
import uvloop
import yaml

from bench.catalogs import ROOT
from bench.cpu import cpu_s
from bench.engine_streams import Stream, Streams
from bench.machine import machine, write
from bench.table import figure, table
from tests.support.process import program
from tests.support.redis import RedisServer, redis_server
from wicketgate.storage.keys import new_key

REPLICAS = (1, 2, 3)
AT_ONCE = 4
"""Callers, or streams, of each replica."""
DELTAS = 400
STREAMS = 240
IDLE_S = 5.0
_BOUND_S = 120.0
_TOOLS = '''
from wicketgate import ToolRegistry

bench = ToolRegistry()


@bench.tool(read_only=True)
async def small(number: int) -> str:
    """Say a number."""
    return f"number {number}"


@bench.tool(read_only=True)
async def large(number: int) -> str:
    """Fill a page with text."""
    return f"{number}\\n" + "a line of a text that is kept\\n" * 3_500
'''
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

Operation = Callable[[str], Awaitable[None]]
"""One operation at the replica with this URL."""


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds of all replicas and of Redis, and what Redis was asked."""

    gates_s: float
    redis_s: float
    commands: float
    sent_bytes: float

    def since(self, before: "Used", operations: float) -> "Row":
        return {
            "gates_ms": (self.gates_s - before.gates_s) * 1e3 / operations,
            "redis_ms": (self.redis_s - before.redis_s) * 1e3 / operations,
            "commands": (self.commands - before.commands - 1) / operations,  # less the question itself
            "kb": (self.sent_bytes - before.sent_bytes) / 1024 / operations,
        }


Row = dict[str, float]


class Replicas:
    """Gates over one Redis, and a client of each."""

    def __init__(self, urls: Sequence[str], pids: Sequence[int], server: RedisServer, key: str) -> None:
        self.urls = urls
        self.pids = pids
        self.headers = {"authorization": f"Bearer {key}"}
        self._server = server
        self._redis = redis.asyncio.Redis.from_url(server.url)
        self._clients = {
            url: httpx.AsyncClient(base_url=url, headers=self.headers, trust_env=False, timeout=_BOUND_S)
            for url in urls
        }

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        await self._redis.aclose()

    async def used(self) -> Used:
        told = await self._redis.info("stats")
        assert self._server.process is not None
        return Used(
            sum(map(cpu_s, self.pids)),
            cpu_s(self._server.process.pid),
            told["total_commands_processed"],
            told["total_net_input_bytes"] + told["total_net_output_bytes"],
        )

    async def small(self, url: str) -> None:
        answer = await self._clients[url].post("/operations/call", json={"operation": "/bench/small", "input": _NUMBER})
        answer.raise_for_status()

    async def tool_id(self, url: str) -> str:
        answer = await self._mcp(url, "tool_browse", {"query": "fill a page with text"})
        return str(answer["structuredContent"]["cards"][0]["id"])

    async def large(self, url: str, tool_id: str) -> None:
        answer = await self._mcp(url, "tool_execute", {"tool_id": tool_id, "args": _NUMBER})
        if not answer["structuredContent"].get("artifacts"):
            raise RuntimeError(f"nothing was kept: {answer!r:.300}")

    async def browse(self, url: str) -> None:
        await self._mcp(url, "tool_browse", {"query": "say a number"})

    async def _mcp(self, url: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        params = {"name": name, "arguments": arguments, "_meta": _META}
        headers = {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28"}
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": name}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await self._clients[url].post("/mcp?result=both", json=message, headers=headers)
        text = answer.text if answer.text.startswith("{") else answer.text.partition("data: ")[2].partition("\n")[0]
        result: dict[str, Any] = json.loads(text)["result"]
        if result.get("isError"):
            raise RuntimeError(f"not a good answer: {result!r:.300}")
        return result


_NUMBER = {"number": 7}


@asynccontextmanager
async def open_replicas(count: int, model_port: int) -> AsyncIterator[Replicas]:
    """Gates as ``deploy/`` starts them: Redis keeps what it acknowledged."""
    key, digest = new_key("bench")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
        server = stack.enter_context(redis_server(folder / "redis", *options))
        (folder / "scaling_tools.py").write_text(_TOOLS)
        settings: dict[str, Any] = {
            "auth": {
                "keys": [{"id": "bench", "sha256": digest, "actor": "bench", "permissions": ["tools:*"]}],
                "seal_keys": ["k" * 32],
            },
            "engine": {"max_streams": 1_000},
            "model": {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{model_port}/v1", "model": "m"},
            "storage": {"url": server.url},
            "upstreams": [{"name": "bench", "python": "scaling_tools:bench", "cwd": str(folder)}],
        }
        config = folder / "wicketgate.yaml"
        config.write_text(yaml.safe_dump(settings))
        urls, pids = [], []
        for _ in range(count):
            gate = await stack.enter_async_context(
                program("app", "serve", "--config", str(config), "--port", "0", cold=True)
            )
            urls.append((await gate.wait_for(r"ready on (http://\S+)")).group(1))
            pids.append(gate.process.pid)
        replicas = Replicas(urls, pids, server, key)
        stack.push_async_callback(replicas.aclose)
        yield replicas


async def measured(
    counts: Sequence[int], *, operations: int, rounds: int, deltas: int, open_streams: int, idle_s: float
) -> dict[int, dict[str, Row]]:
    """The cost of each operation, by the number of replicas and its name: the median of the rounds, before which one
    warms up. All are there at once and take turns, so that what else this machine does falls on each."""
    found: dict[int, dict[str, list[Row]]] = {count: {} for count in counts}
    async with AsyncExitStack() as stack:
        streams = Streams()
        model = await streams.serve_model()
        stack.callback(model.close)
        port = model.sockets[0].getsockname()[1]
        fleets = {count: await stack.enter_async_context(open_replicas(count, port)) for count in counts}
        ways = {count: await _ways(replicas, streams) for count, replicas in fleets.items()}
        for number in range(rounds + 1):
            for name in ways[counts[0]]:
                for count, replicas in fleets.items():
                    row = await _cost(replicas, ways[count][name], operations if number else AT_ONCE)
                    if number:
                        found[count].setdefault(name, []).append(row)
            for count, replicas in fleets.items():
                row = await _deltas(replicas, streams, deltas if number else AT_ONCE)
                if number:
                    found[count].setdefault("delta", []).append(row)
        for count, replicas in fleets.items():
            before = await replicas.used()
            await asyncio.sleep(idle_s)
            found[count]["a replica at rest, a second"] = [(await replicas.used()).since(before, idle_s * count)]
            found[count]["open stream"] = [{"memory_kb": await _memory(replicas, streams, open_streams)}]
    return {
        count: {name: {column: median(row[column] for row in of) for column in of[0]} for name, of in rows.items()}
        for count, rows in found.items()
    }


async def _ways(replicas: Replicas, streams: Streams) -> dict[str, Operation]:
    tool_id = await replicas.tool_id(replicas.urls[0])
    numbers = cycle(range(10**9))

    async def chat(url: str, *, calls_tool: bool = False, keyed: bool = False) -> None:
        headers = {**replicas.headers, **({"idempotency-key": f"bench-{next(numbers)}"} if keyed else {})}
        stream = await streams.open(url, headers, calls_tool=calls_tool)
        async with asyncio.timeout(_BOUND_S):
            await stream.opened
        stream.finish()
        await streams.close(stream)

    async def tool_chat(url: str) -> None:
        await chat(url, calls_tool=True)

    async def keyed_chat(url: str) -> None:
        await chat(url, keyed=True)

    async def large(url: str) -> None:
        await replicas.large(url, tool_id)

    return {
        "call at /operations": replicas.small,
        "browse at /mcp": replicas.browse,
        "call at /mcp, 100 KB kept": large,
        "chat of one delta": chat,
        "chat with a tool": tool_chat,
        "chat with a key": keyed_chat,
    }


async def _cost(replicas: Replicas, operation: Operation, count: int) -> Row:
    urls, left = cycle(replicas.urls), count

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await operation(next(urls))

    before = await replicas.used()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE * len(replicas.urls)):
            tasks.create_task(caller())
    return (await replicas.used()).since(before, count)


async def _opened(replicas: Replicas, streams: Streams, count: int) -> list[Stream]:
    found = [
        await streams.open(url, replicas.headers) for url, _ in zip(cycle(replicas.urls), range(count), strict=False)
    ]
    async with asyncio.timeout(_BOUND_S):
        await asyncio.gather(*(stream.opened for stream in found))
    return found


async def _closed(streams: Streams, found: Sequence[Stream]) -> None:
    for stream in found:
        stream.finish()
    for stream in found:
        await streams.close(stream)


async def _deltas(replicas: Replicas, streams: Streams, deltas: int) -> Row:
    """Of one delta, when the next is sent after the one before was seen."""
    found = await _opened(replicas, streams, AT_ONCE * len(replicas.urls))
    done = [asyncio.get_running_loop().create_future() for _ in found]

    def seen(stream: Stream, over: "asyncio.Future[None]") -> None:
        if stream.sent <= deltas:
            stream.send()
        elif not over.done():
            over.set_result(None)

    before = await replicas.used()
    for stream, over in zip(found, done, strict=True):
        stream.on_seen = lambda stream=stream, over=over: seen(stream, over)
        stream.send()
    async with asyncio.timeout(_BOUND_S):
        await asyncio.gather(*done)
    row = (await replicas.used()).since(before, deltas * len(found))
    await _closed(streams, found)
    return row


async def _memory(replicas: Replicas, streams: Streams, count: int) -> float:
    """KB of one more open stream."""
    first = await _opened(replicas, streams, max(AT_ONCE, count // 5))
    before = sum(map(_resident_kb, replicas.pids))
    more = await _opened(replicas, streams, count)
    taken = sum(map(_resident_kb, replicas.pids)) - before
    await _closed(streams, [*first, *more])
    return taken / count


def _resident_kb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def shown(found: Mapping[int, Mapping[str, Row]]) -> str:
    head = ["", "replicas", "gates ms", "Redis ms", "Redis commands", "Redis KB", "memory KB"]
    columns = ("gates_ms", "redis_ms", "commands", "kb", "memory_kb")
    names = next(iter(found.values()))
    return table(
        head,
        [
            [name, str(count), *(figure(max(0.0, row[column]) if column in row else None) for column in columns)]
            for name in names
            for count, rows in found.items()
            for row in [rows[name]]
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", nargs="+", type=int, default=REPLICAS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--operations", type=int, default=240)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "scaling.json")
    options = parser.parse_args()
    before = machine()
    found = uvloop.run(
        measured(
            options.replicas,
            operations=options.operations,
            rounds=options.rounds,
            deltas=DELTAS,
            open_streams=STREAMS,
            idle_s=IDLE_S,
        )
    )
    print(shown(found))
    write(options.json, before, {"replicas": found})


if __name__ == "__main__":
    main()
