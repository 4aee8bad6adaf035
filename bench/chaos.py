"""Replicas behind nginx over one store, under load at both doors, while faults are brought (``make chaos``).

Each answer is judged, each effect is counted in a file, and each event of a chat with a key must reach its client once.
The exit code is 1 if anything was lost, doubled or wrong. A table in Markdown comes at the end.

Three replicas run behind nginx over one Redis (master, replica and three Sentinels) with a model that streams slowly.
The tool server writes each effect to a file and syncs it to the disk before it answers. Callers: chats with an
``Idempotency-Key``, whose client returns with ``Last-Event-ID`` until its run has ended (one return in seven without
it, to read every event again); chats without a key and calls at ``/mcp`` in both eras, which are not repeated; tools
that ask the person behind the call, whose answer goes to any replica.

Faults, of a replica: ``kill``, ``pause`` (SIGSTOP for 2 to 15 s), ``roll`` (SIGTERM to all, one after another),
``clock`` (a step of 45 s and back). Of Redis: ``redis-kill``; ``failover`` (the master stays down until a Sentinel has
promoted the other one); ``disk`` (it cannot write, so with ``appendfsync always`` it ends); ``slow`` (answers 1.5 s
late), ``deaf``; ``full`` and ``read-only``; ``flush`` (all keys are lost; what runs at that moment is counted as
excused). ``proxy``: nginx is killed; ``lock``: the SQLite file is locked. A seed decides when, and each is checked to
have an effect. ``STORE=file`` uses one SQLite file, ``STORE=one`` a single Redis; ``ARGS="--replicas 2 --load 0.5"``
makes it smaller.

These counts must be 0: events lost, repeated or out of order; effects doubled; wrong answers, including a call that is
reported as done but never ran, or as not run but ran; sessions and questions reported as unknown although they had not
ended (*false 404*); runs with a key started again; calls and chats without an end after 90 s.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

from bench.chaos_callers import Caller, Load
from bench.chaos_faults import Faults
from bench.chaos_judge import Door, Ledger, judge
from bench.chaos_mcp_callers import KINDS as CALLERS
from bench.chaos_places import places, tool_ids
from bench.chaos_plan import KINDS, Kind, Store, possible
from bench.chaos_redis import Redis, running_redis
from bench.chaos_report import Report, reasons, tables, tracebacks

CALLERS_OF: Mapping[Door, int] = {
    "chat, key": 8,
    "chat": 3,
    "/mcp 2026": 4,
    "/mcp session": 4,
    "question 2026": 2,
    "question session": 2,
}
"""Callers of each door with ``--load 1``."""
_QUIET_S = 3.0
"""Without faults at the beginning and at the end."""


async def chaos(given: argparse.Namespace, folder: Path) -> Report:
    kinds = possible(given.faults, given.store)
    async with AsyncExitStack() as stack:
        store: Redis | Path = folder / "store.db"
        if given.store != "file":
            store = await stack.enter_async_context(running_redis(folder, sentinel=given.store == "sentinel"))
        clocks = given.replicas if "clock" in kinds else 0
        made = await stack.enter_async_context(
            places(folder, store, given.replicas, cold=True, clocks=clocks, logs=given.logs)
        )
        load = Load(Ledger(), made.nginx.url, tool_ids())
        faults = Faults(made, load.began, flushes=load.ledger.flushes)

        async def deeds() -> None:
            """Faults for so many minutes, but for a few seconds at both ends."""
            calm = asyncio.Event()
            await asyncio.sleep(_QUIET_S)
            raging = asyncio.create_task(faults.rage(kinds, given.seed, given.every_s, calm))
            await asyncio.wait([raging], timeout=max(0.0, given.minutes * 60 - 2 * _QUIET_S))
            calm.set()
            await raging
            await asyncio.sleep(_QUIET_S)

        telling = asyncio.create_task(_tell(load, faults))
        try:
            callers = make_callers(load, made.keys, given.seed, given.pause_s, _times(CALLERS_OF, given.load))
            seconds = await under_load(load, callers, deeds())
        finally:
            telling.cancel()
        effects = made.effects()
        for replica in made.replicas:
            await replica.stop(signal.SIGTERM)
            load.ledger.breaches += [("wrong answers", line) for line in replica.faults]
        return Report(made, load, faults, seconds, judge(load.ledger, effects), effects, given.seed)


async def under_load(load: Load, callers: Sequence[Caller], deeds: Coroutine[Any, Any, None]) -> float:
    """Calls while *deeds* are done, then until the last call is over. Returns the second at which the deeds ended."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for caller in callers:
            tasks.create_task(caller.live(stop))
        await deeds
        stop.set()
        done_s = load.now_s()
    return done_s  # noqa: RET504  after the callers, which the group waits for


def make_callers(
    load: Load, keys: Sequence[str], seed: int, pause_s: float, counts: Mapping[Door, int]
) -> list[Caller]:
    """So many of each door, with the keys in turn."""
    return [
        CALLERS[door](load, keys[number % len(keys)], random.Random(f"{seed} {door} {number}"), pause_s)
        for door, count in counts.items()
        for number in range(count)
    ]


def _times(counts: Mapping[Door, int], load: float) -> Mapping[Door, int]:
    return {door: max(1, round(count * load)) for door, count in counts.items()}


async def _tell(load: Load, faults: Faults) -> None:
    while True:
        await asyncio.sleep(10)
        ledger = load.ledger
        recent = [one for one in ledger.told if one.at_s > load.now_s() - 10]
        outcomes = Counter(one.outcome for one in recent)
        shown = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        under = f"; under way: {', '.join(sorted(faults.under_way))}" if faults.under_way else ""
        print(
            f"  {load.now_s():5.0f} s: {len(ledger.told)} calls and chats, {len(ledger.breaches)} breaches; "
            f"the last ten seconds: {shown or 'none'}{under}",
            flush=True,
        )


def read_line(line: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=_kinds, default=list(KINDS), help=f"of {','.join(KINDS)}; or none")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--store", choices=get_args(Store), default="sentinel", help="what the replicas share")
    parser.add_argument("--every-s", type=float, default=8.0, help="mean pause between two faults of a lane")
    parser.add_argument("--load", type=float, default=1.0, help="callers, as a multiple of the usual")
    parser.add_argument("--pause-s", type=float, default=0.3, help="mean pause of a caller between two calls")
    parser.add_argument("--logs", type=_folder, help="a folder for what the replicas write (default: nowhere)")
    return parser.parse_args(line)


def _folder(text: str) -> Path:
    folder = Path(text)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _kinds(text: str) -> list[Kind]:
    names = [] if text == "none" else [name for name in text.split(",") if name]
    for name in names:
        if name not in KINDS:
            raise argparse.ArgumentTypeError(f"no fault {name!r}; there are {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in names]


def main() -> int:
    given = read_line()
    print(f"chaos: {given.minutes:g} minutes, {given.replicas} replicas, faults {', '.join(given.faults)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="wicketgate-chaos-") as folder:
        began = time.monotonic()
        try:
            report = asyncio.run(chaos(given, Path(folder)))
        except KeyboardInterrupt:
            print(f"chaos: ended by hand after {time.monotonic() - began:.0f} s; nothing was judged")
            return 130
    print("\n" + tables(report) + "\n")
    for line in [*reasons(report.load.ledger), *tracebacks(report)]:
        print(line)
    for line in report.verdict.lines[:40]:
        print(f"BREACH: {line}")
    print("chaos: " + ("passed" if report.verdict.passed else "failed"))
    return 0 if report.verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
