"""Many callers of one process at once, and a machine that stands still meanwhile (EXEC-56)."""

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.storage.test_redis_link import linked
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from wicketgate.storage.memory_journal import JournalBounds
from wicketgate.storage.redis.client import WAIT_S, RedisLink
from wicketgate.storage.redis.lanes import LANES
from wicketgate.storage.redis.runs import RedisRunStore
from wicketgate.storage.redis.scripts import Script

_ONE = Script("return 1")


@requirement("EXEC-56")
async def test_a_burst_takes_few_connections_and_is_not_late(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            store = RedisRunStore(link, JournalBounds(max_runs=100_000), "here")
            names = [f"r{number}" for number in range(500)]
            assert await asyncio.gather(*(store.claim(name, "run", "digest", "bob") for name in names)) == [None] * 500
            assert all(await asyncio.gather(*(store.claim_call(name, "c1") for name in names)))
            assert not link.measures.errors
            clients = await link.run(lambda client: client.client_list())
            assert len(clients) <= LANES + 1


@requirement("EXEC-56")
async def test_a_process_that_stood_still_does_not_take_redis_for_late(link: RedisLink) -> None:
    await link.script(_ONE, [], [])

    async def stand() -> None:
        await asyncio.sleep(0)
        time.sleep(1.1 * WAIT_S)

    asked = [asyncio.create_task(link.script(_ONE, [], [])) for _ in range(20)]
    await stand()
    assert await asyncio.gather(*asked) == [1] * 20
    assert link.trouble == ""


@requirement("EXEC-56")
async def test_a_caller_who_goes_disturbs_no_other(link: RedisLink) -> None:
    async def ask() -> Any:
        return await link.script(_ONE, [], [])

    for moment in range(12):
        asked = [asyncio.create_task(ask()) for _ in range(9)]
        for _ in range(moment):
            await asyncio.sleep(0)
        for task in asked[::2]:
            task.cancel()
        assert await asyncio.gather(*asked[1::2]) == [1] * 4
