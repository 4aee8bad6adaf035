"""``make chaos``, short: two replicas behind a real nginx over a real Redis, each of which dies."""

import asyncio
from pathlib import Path

import pytest

from bench.chaos import make_callers, under_load
from bench.chaos_callers import Load
from bench.chaos_faults import Faults
from bench.chaos_judge import DOORS, Ledger, judge
from bench.chaos_places import places, tool_ids
from bench.chaos_plan import Strike
from bench.chaos_redis import running_redis
from bench.chaos_report import story
from tests.support.requirement import requirement

KILL, REDIS_KILL, ROLL = Strike(0, "kill", 0.0, 0.0), Strike(0, "redis-kill", 0.0, 0.2), Strike(0, "roll", 0.0, 0.0)
KILLS = 6
CALLERS = 2
SLOWNESS = 0.5
"""A stop waits for the chats that are under way."""
BOUND_S = 240


@requirement("OPS-203", "OPS-204")
async def test_nothing_is_lost_doubled_or_wrong_while_replicas_and_redis_die(tmp_path: Path) -> None:
    async with (
        running_redis(tmp_path, sentinel=False) as redis,
        places(tmp_path, redis, 2, cold=False, slowness=SLOWNESS) as made,
    ):
        load = Load(Ledger(), made.nginx.url, tool_ids())
        faults = Faults(made, load.began)

        async def deeds() -> None:
            for _ in range(KILLS):
                await load.answers(10)
                await faults.bring(KILL)
                if load.ledger.came_back:
                    break
            for strike in (REDIS_KILL, ROLL):
                await load.answers(10)
                await faults.bring(strike)
            await load.answers(1, DOORS)

        callers = make_callers(load, made.keys, 1, 0.05, dict.fromkeys(DOORS, CALLERS))
        try:
            async with asyncio.timeout(BOUND_S):
                await under_load(load, callers, deeds())
        except Exception as error:
            pytest.fail(f"{error!r} while this was so:\n{story(load, faults)}")
        verdict, told = judge(load.ledger, made.effects()), story(load, faults)
    assert verdict.passed, "\n".join([*verdict.lines[:40], told])
    assert load.ledger.came_back, f"no chat was met by a fault\n{told}"
    assert [line for replica in made.replicas for line in replica.faults] == [], told
