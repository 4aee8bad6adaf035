"""``make chaos``, short: two replicas behind a real nginx over a real Redis, a kill, a stop, a dead Redis."""

from pathlib import Path

from bench.chaos import make_callers, under_load
from bench.chaos_callers import Load
from bench.chaos_faults import Faults
from bench.chaos_judge import DOORS, Ledger, judge
from bench.chaos_places import places, tool_ids
from bench.chaos_plan import Strike
from bench.chaos_redis import running_redis
from tests.support.requirement import requirement

# In this order and one after the other: the first replica is killed, then Redis, then both replicas are stopped.
STRIKES = (Strike(0, "kill", 0.0, 0.0), Strike(0, "redis-kill", 0.0, 0.2), Strike(0, "roll", 0.0, 0.0))
CALLERS = 2


@requirement("OPS-203", "OPS-204")
async def test_nothing_is_lost_doubled_or_wrong_while_replicas_and_redis_die(tmp_path: Path) -> None:
    async with running_redis(tmp_path, sentinel=False) as redis, places(tmp_path, redis, 2, cold=False) as made:
        load = Load(Ledger(), made.nginx.url, tool_ids())
        faults = Faults(made, load.began)

        async def deeds() -> None:
            for strike in STRIKES:
                await load.answers(10)
                await faults.bring(strike)
            await load.answers(10)

        await under_load(load, make_callers(load, made.keys, 1, 0.05, dict.fromkeys(DOORS, CALLERS)), deeds())
        verdict = judge(load.ledger, made.effects())
    assert verdict.passed, "\n".join(verdict.lines[:40])
    assert {one.door for one in load.ledger.told if one.outcome == "ok"} == {*DOORS}
    assert load.ledger.came_back, "no chat was met by a fault"
    assert [line for replica in made.replicas for line in replica.faults] == []
