"""A rolling restart of replicas behind a real nginx, under load at both doors."""

from pathlib import Path

from bench.chaos import make_callers, under_load
from bench.chaos_callers import Load
from bench.chaos_faults import Faults
from bench.chaos_judge import Door, Ledger, judge
from bench.chaos_places import places, tool_ids
from bench.chaos_plan import Strike
from bench.chaos_redis import running_redis
from tests.support.requirement import requirement

CALLERS: dict[Door, int] = {"chat, key": 4, "chat": 4, "/mcp 2026": 4}
ROLL = Strike(0, "roll", 0.0, 0.0)


@requirement("OPS-205")
async def test_a_rolling_restart_on_passed_sockets_refuses_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async with (
        running_redis(tmp_path, sentinel=False) as redis,
        places(tmp_path, redis, 2, cold=False, passed=True) as made,
    ):
        load = Load(Ledger(), made.nginx.url, tool_ids())
        faults = Faults(made, load.began)

        async def deeds() -> None:
            await load.answers(10)
            await faults.bring(ROLL)
            await load.answers(10)

        await under_load(load, make_callers(load, made.keys, 1, 0.02, CALLERS), deeds())
        verdict = judge(load.ledger, made.effects())
        exits = [[*replica.exits] for replica in made.replicas]
    assert verdict.passed, "\n".join(verdict.lines[:40])
    assert [one for one in load.ledger.told if one.outcome != "ok"] == []
    assert {one.door for one in load.ledger.told} == {*CALLERS}
    assert exits == [["SIGTERM: 0"]] * 2
