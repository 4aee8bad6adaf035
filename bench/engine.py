"""``make bench-engine``: what it costs to relay a model's stream, beside a bare relay and agent frameworks, in one run.

All contestants are processes of their own on one core, alive together, and take turns; the model and the client have
another core. With ``--beside``, another checkout is one of them.

*lock*: CPU microseconds per delta with 64 streams, each delta sent after the client has read the previous one. *fire*:
the same with 8 streams, all deltas sent immediately. *x*: the same divided by the minimal relay
(``bench/engine_raw.py``). *request*: CPU milliseconds of a whole request of five messages and 20 deltas, eight at once.
*tool turn*: CPU milliseconds that a turn with ``tool_browse`` adds. *KB a stream*: growth of resident memory per open
stream, with 250 more streams. *p50, p99*: milliseconds from the model's write to the client's read, with 200 streams of
twenty deltas a second each."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import uvloop

from bench.catalogs import ROOT
from bench.checkouts import HERE, Checkout, Measures, add_beside, add_value, beside_tables, serving
from bench.cpu import MEASURED, as_load, cpu_s, pin
from bench.engine_streams import Stream, Streams, now_ms
from bench.environments import environment
from bench.machine import machine, write
from bench.quiet_process import quiet_process
from bench.table import Table, figure, markdown, percentile

FRAMEWORKS = ("pydantic-ai", "openai-agents")
REQUIREMENTS = (
    *("pydantic-ai-slim[openai]==2.68.0", "openai-agents==0.24.0"),
    *("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
)

LOCK_STREAMS, LOCK_DELTAS = 64, 60
FIRE_STREAMS, FIRE_DELTAS = 8, 600
REQUESTS, AT_ONCE, REQUEST_DELTAS, PAIRS = 96, 8, 20, 2
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
    parser.add_argument("--share", type=float, default=1.0, help="of the usual streams, deltas, requests and seconds")
    add_beside(parser)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "engine.json")
    options = parser.parse_args()
    python: Path | str = "left out"
    if not options.no_frameworks:
        python = environment(ROOT / "bench" / "out" / ".venv-agents", REQUIREMENTS)
        if isinstance(python, str):
            print(f"without frameworks: {python}")
    before = machine()
    checkouts = [*options.beside, HERE]
    with as_load():
        chosen = python if isinstance(python, Path) else None
        found = uvloop.run(measure(options.rounds, chosen, checkouts, options.share))
    rows = {
        name: {column: median(row[column]) if column in row else None for column in _COLUMNS}
        for name, row in found.items()
    }
    measures: Measures = {}
    for column, told in _COLUMNS.items():
        for checkout in checkouts:
            add_value(measures, told, checkout, *found[checkout.at(_OURS)][column])
    for made in (shown(rows), *beside_tables(measures)):
        print(f"{markdown(made)}\n")
    write(options.json, before, {"rows": rows, "measures": measures})


def shown(rows: Mapping[str, Mapping[str, float | None]]) -> Table:
    """*rows* by contestant, the bare relay first."""
    base = next(iter(rows.values()))
    head = ["", "lock µs", "×", "fire µs", "×", "request ms", "tool turn ms", "KB a stream", "p50 ms", "p99 ms"]
    body = []
    for name, row in rows.items():
        cells = [name]
        for column in ("lock", "fire"):
            value, of = row[column], base[column]
            cells += [figure(value), figure(value / of if value is not None and of else None)]
        body.append([*cells, *(figure(row[column]) for column in ("request", "tool", "memory", "p50", "p99"))])
    return Table("The relay", head, body)


async def measure(
    rounds: int, python: Path | None, checkouts: Sequence[Checkout], share: float = 1.0
) -> dict[str, dict[str, list[float]]]:
    """By contestant and column, a value a round; of memory one. With *share* of the usual amounts."""
    figures: dict[str, dict[str, list[float]]] = {}
    async with AsyncExitStack() as stack:
        streams = Streams(PAIRS)
        model = await streams.serve_model()
        stack.callback(model.close)
        contestants = await _open(stack, model.sockets[0].getsockname()[1], python, checkouts)
        for round_number in range(-1, rounds):
            for contestant in contestants:
                measured = await _round(streams, contestant, share, warm=round_number < 0)
                if round_number >= 0:
                    for name, value in measured.items():
                        figures.setdefault(contestant.name, {}).setdefault(name, []).append(value)
        for contestant in contestants:
            figures[contestant.name]["memory"] = [await _memory(streams, contestant, share)]
    return figures


_OURS = "wicketgate"
_COLUMNS = {
    "lock": "a delta, one at a time, CPU µs",
    "fire": "a delta, all at once, CPU µs",
    "request": f"a chat request, {REQUEST_DELTAS} deltas, CPU ms",
    "tool": "a turn with a tool more, CPU ms",
    "memory": "an open stream, KB",
    "p50": "delay of a delta, median, ms",
    "p99": "delay of a delta, p99, ms",
}


async def _round(streams: Streams, contestant: Contestant, whole: float, *, warm: bool) -> dict[str, float]:
    share = whole * (0.1 if warm else 1.0)
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
        measured |= await _paced(streams, contestant, whole)
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
    """CPU milliseconds of a whole request, connections kept."""
    left = count

    async def ask() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            stream = await streams.open(contestant.url, contestant.headers, calls_tool=calls_tool)
            async with asyncio.timeout(_BOUND_S):
                await stream.opened
            stream.send(REQUEST_DELTAS - 1)
            stream.finish()
            await streams.close(stream)

    awake = asyncio.ensure_future(_stay_awake())
    began = cpu_s(contestant.pid)
    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    used = cpu_s(contestant.pid) - began
    awake.cancel()
    return used * 1000 / count


async def _paced(streams: Streams, contestant: Contestant, share: float) -> dict[str, float]:
    """Milliseconds between the model's write and the client's read, at 200 streams of twenty deltas a second."""
    open_streams = await _opened(streams, contestant, max(1, int(PACED_STREAMS * share)))
    late: list[float] = []
    sent_at: dict[int, list[float]] = {stream.number: [] for stream in open_streams}

    async def pace(stream: Stream, offset_s: float) -> None:
        times = sent_at[stream.number]
        stream.on_seen = lambda: late.append(now_ms() - times[stream.seen - 2])
        await asyncio.sleep(offset_s)
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(max(1, int(PACED_S * share / PACE_S))):
            times.append(now_ms())
            stream.send()
            due += PACE_S
            await asyncio.sleep(max(0.0, due - loop.time()))

    step_s = PACE_S / len(open_streams)
    await asyncio.gather(*(pace(stream, step_s * place) for place, stream in enumerate(open_streams)))
    await _closed(streams, open_streams)
    return {"p50": percentile(late, 50) or 0.0, "p99": percentile(late, 99) or 0.0}


async def _memory(streams: Streams, contestant: Contestant, share: float) -> float:
    """KB of resident memory that one more open stream takes."""
    first = await _opened(streams, contestant, max(1, int(MEMORY_BEFORE * share)))
    before = _resident_kb(contestant.pid)
    more = await _opened(streams, contestant, max(1, int(MEMORY_MORE * share)))
    taken = _resident_kb(contestant.pid) - before
    await _closed(streams, [*first, *more])
    return taken / len(more)


def _resident_kb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


async def _open(
    stack: AsyncExitStack, model_port: int, python: Path | None, checkouts: Sequence[Checkout]
) -> list[Contestant]:
    line = (sys.executable, "-m", "bench.engine_raw", str(model_port))
    raw = await stack.enter_async_context(quiet_process(*line))
    url = (await raw.wait_for(r"ready on (http://\S+)")).group(1)
    contestants = [Contestant("raw relay", url, raw.pid)]
    settings = {
        "engine": {"max_streams": 1_000},
        "model": {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{model_port}/v1", "model": "m"},
    }
    for checkout in checkouts:
        service = await stack.enter_async_context(serving(settings, checkout))
        headers = {"authorization": f"Bearer {service.key}"}
        contestants.append(Contestant(checkout.at(_OURS), service.url, service.pid, headers))
    for name in FRAMEWORKS if python is not None else ():
        assert python is not None
        contestants.append(await stack.enter_async_context(_framework(name, python, model_port)))
    for contestant in contestants:
        pin(contestant.pid, MEASURED)
    return contestants


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
