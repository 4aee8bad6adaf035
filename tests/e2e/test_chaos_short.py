"""``make chaos``, short: two replicas behind a real nginx over a real store, under each fault."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.chaos import make_callers, under_load
from bench.chaos_callers import Load
from bench.chaos_faults import Faults
from bench.chaos_judge import DOORS, Door, Ledger, judge
from bench.chaos_places import Places, places, tool_ids
from bench.chaos_plan import Store, Strike
from bench.chaos_redis import Redis, running_redis
from bench.chaos_report import story
from tests.support.requirement import requirement

KILL, REDIS_KILL, ROLL = Strike(0, "kill", 0.0, 0.0), Strike(0, "redis-kill", 0.0, 0.2), Strike(0, "roll", 0.0, 0.0)
KILLS = 6
CALLERS = 2
NUMBERS = 1_000_000
"""Between those of two phases of one test."""
SLOWNESS = 0.5
"""A stop waits for the chats that are under way."""
BOUND_S = 240


UNASKED: Sequence[Door] = ("chat, key", "chat", "/mcp 2026", "/mcp session")
STORES: Mapping[Store, Sequence[tuple[Sequence[Door], Sequence[Strike]]]] = {
    "one": [
        (
            DOORS,
            [
                Strike(0, "clock", 0.0, 1),
                Strike(0, "slow", 0.0, 2),
                Strike(0, "deaf", 0.0, 2),
                Strike(0, "full", 0.0, 1),
                Strike(0, "read-only", 0.0, 1),
            ],
        ),
        # A question that is on its way between two processes is lost with the keys, and its call waits for minutes.
        (UNASKED, [Strike(0, "flush", 0.0, 0)]),
    ],
    "file": [(DOORS, [Strike(0, "lock", 0.0, 2), KILL])],
}
"""By the store of the replicas: doors with callers, and the faults that are brought one after the other."""


@asynccontextmanager
async def running_places(folder: Path, store: Store, clocks: int = 0) -> AsyncIterator[Places]:
    async with AsyncExitStack() as stack:
        shared: Redis | Path = folder / "store.db"
        if store != "file":
            shared = await stack.enter_async_context(running_redis(folder, sentinel=False))
        yield await stack.enter_async_context(places(folder, shared, 2, cold=False, clocks=clocks, slowness=SLOWNESS))


async def judged(
    made: Places,
    deeds: Callable[[Load, Faults], Coroutine[Any, Any, None]],
    doors: Sequence[Door] = DOORS,
    first_number: int = 1,
) -> tuple[Ledger, str]:
    """The ledger of calls at *doors* while *deeds* are done, and the story. Fails if an invariant does not hold."""
    load = Load(Ledger(), made.nginx.url, tool_ids(), numbers=itertools.count(first_number))
    faults = Faults(made, load.began, flushes=load.ledger.flushes)
    callers = make_callers(load, made.keys, 1, 0.05, dict.fromkeys(doors, CALLERS))
    try:
        async with asyncio.timeout(BOUND_S):
            await under_load(load, callers, deeds(load, faults))
    except Exception as error:
        pytest.fail(f"{error!r} while this was so:\n{story(load, faults)}")
    verdict, told = judge(load.ledger, made.effects()), story(load, faults)
    assert verdict.passed, "\n".join([*verdict.lines[:40], told])
    return load.ledger, told


@requirement("OPS-203", "OPS-204")
async def test_nothing_is_lost_doubled_or_wrong_while_replicas_and_redis_die(tmp_path: Path) -> None:
    async def deeds(load: Load, faults: Faults) -> None:
        for _ in range(KILLS):
            await load.answers(10)
            await faults.bring(KILL)
            if load.ledger.came_back:
                break
        for strike in (REDIS_KILL, ROLL):
            await load.answers(10)
            await faults.bring(strike)
        await load.answers(1, DOORS)

    async with running_places(tmp_path, "one") as made:
        ledger, told = await judged(made, deeds)
    assert ledger.came_back, f"no chat was met by a fault\n{told}"
    assert [line for replica in made.replicas for line in replica.faults] == [], told


@requirement("OPS-397", "OPS-398")
@pytest.mark.parametrize("store", STORES)
async def test_nothing_is_lost_doubled_or_wrong_under_each_fault_of_the_store(tmp_path: Path, store: Store) -> None:
    async with running_places(tmp_path, store, clocks=int(store == "one")) as made:
        for phase, (doors, strikes) in enumerate(STORES[store]):

            async def deeds(
                load: Load, faults: Faults, doors: Sequence[Door] = doors, strikes: Sequence[Strike] = strikes
            ) -> None:
                for strike in strikes:
                    await load.answers(5)
                    await faults.bring(strike)
                await load.answers(1, doors)

            await judged(made, deeds, doors, phase * NUMBERS + 1)
