"""``make bench-engine``: what it costs to relay a model's stream, beside a bare relay and agent frameworks, in one run.

All contestants are processes of their own, alive together, and take turns. What the columns mean: docs/benchmarks.md.
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
import yaml

from app.local_key import new_key
from bench.catalogs import ROOT
from bench.cpu import cpu_s
from bench.engine_streams import Stream, Streams, now_ms
from bench.environments import environment
from bench.table import figure, percentile, table
from tests.support.process import program

FRAMEWORKS = ("pydantic-ai", "openai-agents")
REQUIREMENTS = (
    *("pydantic-ai-slim[openai]==2.68.0", "openai-agents==0.24.0"),
    *("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
)

LOCK_STREAMS, LOCK_DELTAS = 64, 60
FIRE_STREAMS, FIRE_DELTAS = 8, 600
REQUESTS, AT_ONCE = 96, 8
MEMORY_BEFORE, MEMORY_MORE = 50, 250
PACED_STREAMS, PACED_S, PACE_S = 200, 4.0, 0.05
_BOUND_S = 120.0


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    url: str
    pid: int
    headers: Mapping[str, str] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-frameworks", action="store_true")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "engine.json")
    options = parser.parse_args()
    python: Path | str = "left out"
    if not options.no_frameworks:
        python = environment(ROOT / "bench" / "out" / ".venv-agents", REQUIREMENTS)
        if isinstance(python, str):
            print(f"without frameworks: {python}")
    rows = uvloop.run(_measured(options.rounds, python if isinstance(python, Path) else None))
    print(shown(rows))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "load": os.getloadavg()}
    options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    print(f"\n{options.json}")


def shown(rows: Mapping[str, Mapping[str, float | None]]) -> str:
    """The table; *rows* by contestant, the bare relay first."""
    base = next(iter(rows.values()))
    head = ["", "lock µs", "×", "fire µs", "×", "request ms", "tool turn ms", "KB a stream", "p50 ms", "p99 ms"]
    body = []
    for name, row in rows.items():
        cells = [name]
        for column in ("lock", "fire"):
            value, of = row[column], base[column]
            cells += [figure(value), figure(value / of if value is not None and of else None)]
        body.append([*cells, *(figure(row[column]) for column in ("request", "tool", "memory", "p50", "p99"))])
    return table(head, body)


async def _measured(rounds: int, python: Path | None) -> dict[str, dict[str, float | None]]:
    figures: dict[str, dict[str, list[float]]] = {}
    async with AsyncExitStack() as stack:
        streams = Streams()
        model = await streams.serve_model()
        stack.callback(model.close)
        contestants = await _open(stack, model.sockets[0].getsockname()[1], python)
        for round_number in range(-1, rounds):
            for contestant in contestants:
                measured = await _round(streams, contestant, warm=round_number < 0)
                if round_number >= 0:
                    for name, value in measured.items():
                        figures.setdefault(contestant.name, {}).setdefault(name, []).append(value)
        for contestant in contestants:
            figures[contestant.name]["memory"] = [await _memory(streams, contestant)]
    return {
        name: {column: median(row[column]) if column in row else None for column in _COLUMNS}
        for name, row in figures.items()
    }


_COLUMNS = ("lock", "fire", "request", "tool", "memory", "p50", "p99")


async def _round(streams: Streams, contestant: Contestant, *, warm: bool) -> dict[str, float]:
    share = 0.1 if warm else 1.0
    requests = max(1, int(REQUESTS * share))
    measured = {
        "lock": await _lock(streams, contestant, max(5, int(LOCK_DELTAS * share))),
        "fire": await _fire(streams, contestant, max(5, int(FIRE_DELTAS * share))),
        "request": (plain := await _requests(streams, contestant, requests)),
    }
    if contestant.name != "raw relay":
        measured["tool"] = await _requests(streams, contestant, requests, calls_tool=True) - plain
    if not warm and contestant.name not in FRAMEWORKS:
        # Four thousand deltas a second are more than one process of a framework can pass on.
        measured |= await _paced(streams, contestant)
    return measured


async def _opened(streams: Streams, contestant: Contestant, count: int) -> list[Stream]:
    found = [await streams.open(contestant.url, contestant.headers) for _ in range(count)]
    async with asyncio.timeout(_BOUND_S):
        await asyncio.gather(*(stream.opened for stream in found))
    return found


async def _closed(streams: Streams, open_streams: Sequence[Stream]) -> None:
    for stream in open_streams:
        stream.finish()
    for stream in open_streams:
        await streams.close(stream)


async def _lock(streams: Streams, contestant: Contestant, deltas: int) -> float:
    """CPU microseconds a delta, when the next one is sent only after the one before was seen."""
    return await _deltas(streams, contestant, LOCK_STREAMS, deltas, at_a_time=1)


async def _fire(streams: Streams, contestant: Contestant, deltas: int) -> float:
    """The same, all sent at once."""
    return await _deltas(streams, contestant, FIRE_STREAMS, deltas, at_a_time=deltas)


async def _deltas(streams: Streams, contestant: Contestant, count: int, deltas: int, at_a_time: int) -> float:
    open_streams = await _opened(streams, contestant, count)
    left = count
    finished = asyncio.get_running_loop().create_future()

    def seen(stream: Stream) -> None:
        nonlocal left
        if stream.seen < stream.sent:
            return
        if stream.sent <= deltas:
            stream.send(at_a_time)
            return
        left -= 1
        if not left:
            finished.set_result(None)

    awake = asyncio.ensure_future(_stay_awake())
    began = cpu_s(contestant.pid)
    for stream in open_streams:
        stream.on_seen = lambda stream=stream: seen(stream)
        stream.send(at_a_time)
    async with asyncio.timeout(_BOUND_S):
        await finished
    used = cpu_s(contestant.pid) - began
    awake.cancel()
    total = sum(stream.seen - 1 for stream in open_streams)
    await _closed(streams, open_streams)
    return used * 1e6 / total


async def _stay_awake() -> None:
    """A sleeping reader is woken at the writer's expense, and whether this one sleeps depends on how fast the relay is:
    the fast ones would seem faster still."""
    while True:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def _requests(streams: Streams, contestant: Contestant, count: int, *, calls_tool: bool = False) -> float:
    """CPU milliseconds of a whole request with one delta, connections kept."""
    left = count

    async def ask() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            stream = await streams.open(contestant.url, contestant.headers, calls_tool=calls_tool)
            async with asyncio.timeout(_BOUND_S):
                await stream.opened
            stream.finish()
            await streams.close(stream)

    awake = asyncio.ensure_future(_stay_awake())
    began = cpu_s(contestant.pid)
    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    used = cpu_s(contestant.pid) - began
    awake.cancel()
    return used * 1000 / count


async def _paced(streams: Streams, contestant: Contestant) -> dict[str, float]:
    """Milliseconds between the model's write and the client's read, at 200 streams of twenty deltas a second."""
    open_streams = await _opened(streams, contestant, PACED_STREAMS)
    late: list[float] = []
    sent_at: dict[int, list[float]] = {stream.number: [] for stream in open_streams}

    async def pace(stream: Stream, offset_s: float) -> None:
        times = sent_at[stream.number]
        stream.on_seen = lambda: late.append(now_ms() - times[stream.seen - 2])
        await asyncio.sleep(offset_s)
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(int(PACED_S / PACE_S)):
            times.append(now_ms())
            stream.send()
            due += PACE_S
            await asyncio.sleep(max(0.0, due - loop.time()))

    await asyncio.gather(*(pace(stream, PACE_S * place / PACED_STREAMS) for place, stream in enumerate(open_streams)))
    await _closed(streams, open_streams)
    return {"p50": percentile(late, 50) or 0.0, "p99": percentile(late, 99) or 0.0}


async def _memory(streams: Streams, contestant: Contestant) -> float:
    """KB of resident memory that one more open stream takes."""
    first = await _opened(streams, contestant, MEMORY_BEFORE)
    before = _resident_kb(contestant.pid)
    more = await _opened(streams, contestant, MEMORY_MORE)
    taken = _resident_kb(contestant.pid) - before
    await _closed(streams, [*first, *more])
    return taken / MEMORY_MORE


def _resident_kb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


async def _open(stack: AsyncExitStack, model_port: int, python: Path | None) -> list[Contestant]:
    raw = await stack.enter_async_context(program("bench.engine_raw", str(model_port), cold=True))
    url = (await raw.wait_for(r"ready on (http://\S+)", "stdout")).group(1)
    contestants = [
        Contestant("raw relay", url, raw.process.pid),
        await stack.enter_async_context(_wicketgate(model_port)),
    ]
    for name in FRAMEWORKS if python is not None else ():
        assert python is not None
        contestants.append(await stack.enter_async_context(_framework(name, python, model_port)))
    return contestants


@asynccontextmanager
async def _wicketgate(model_port: int) -> AsyncIterator[Contestant]:
    """The service, started as a user starts it."""
    key, digest = new_key("bench")
    settings: dict[str, Any] = {
        "auth": {"keys": [{"id": "bench", "sha256": digest, "actor": "bench", "permissions": ["tools:*"]}]},
        "engine": {"max_streams": 1_000},
        "model": {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{model_port}/v1", "model": "m"},
    }
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "wicketgate.yaml"
        config.write_text(yaml.safe_dump(settings))
        async with program("app", "serve", "--config", str(config), "--port", "0", cold=True) as service:
            url = (await service.wait_for(r"ready on (http://\S+)")).group(1)
            yield Contestant("wicketgate", url, service.process.pid, {"authorization": f"Bearer {key}"})


@asynccontextmanager
async def _framework(name: str, python: Path, model_port: int) -> AsyncIterator[Contestant]:
    process = await asyncio.create_subprocess_exec(
        python,
        "-P",  # modules of this folder have names of theirs
        ROOT / "bench" / "engine_frameworks.py",
        name,
        f"http://127.0.0.1:{model_port}/v1",
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_BOUND_S):
            line = (await process.stdout.readline()).decode()
        yield Contestant(name, line.split()[-1], process.pid)
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    main()
