"""A Cluster that changes while it is used: slots on their way, nodes that die, more callers than connections."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from tests.storage.test_redis_link import FOREVER, linked, until
from tests.support.redis import RedisCluster, redis_cluster
from tests.support.requirement import requirement
from wicketgate.errors import NotAdmitted
from wicketgate.peers import NotReached
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.mail import MailPeers
from wicketgate.storage.redis.once import RedisOnceStore
from wicketgate.storage.redis.scripts import Script

_TWO = Script("return {redis.call('INCR', KEYS[1]), redis.call('INCR', KEYS[2])}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with redis_cluster(tmp_path_factory.mktemp("cluster"), "--appendfsync", "always") as made:
        yield made


def key_at(cluster: RedisCluster, number: int) -> str:
    """Returns a key at the node of that number."""
    ranges = cluster.ask(cluster.nodes[number], "CLUSTER", "SLOTS")
    own = next(each[:2] for each in ranges if each[2][1] == cluster.nodes[number].port)
    names = (secrets.token_hex(8) for _ in range(10_000))
    return next(name for name in names if own[0] <= key_slot(name.encode()) <= own[1])


async def count_at_once(link: RedisLink, key: str, times: int) -> list[list[int]]:
    keys = [f"{{{key}}}:a", f"{{{key}}}:b"]
    return list(await asyncio.gather(*(link.script(_TWO, keys, ()) for _ in range(times))))


@requirement("OPS-330")
async def test_a_slot_that_moves_is_used_all_the_way(cluster: RedisCluster) -> None:
    key = key_at(cluster, 1)
    slot = key_slot(key.encode())
    async with linked(cluster.url) as link:
        # Several connections to each node.
        for name in (key_at(cluster, 0), key, key_at(cluster, 2)):
            await count_at_once(link, name, 20)
        source, target = cluster.begin_move(slot)
        cluster.move_keys(slot, source, target)
        found = [pair for _ in range(3) for pair in await count_at_once(link, key, 5)]
        cluster.end_move(slot, source, target)
        found += [pair for _ in range(3) for pair in await count_at_once(link, key, 5)]
        assert sorted(found) == [[number, number] for number in range(21, 51)]
        assert not link.measures.errors


@requirement("OPS-330")
async def test_a_slot_half_way_costs_its_own_steps_only_and_they_wait_for_it(cluster: RedisCluster) -> None:
    key, other = key_at(cluster, 1), key_at(cluster, 2)
    slot = key_slot(key.encode())
    async with linked(cluster.url) as link:
        await count_at_once(link, key, 1)
        source, target = cluster.begin_move(slot)
        cluster.move_keys(slot, source, target, most=1)
        with pytest.raises(RedisAway) as moving:
            await count_at_once(link, key, 1)
        assert moving.value.trouble == "moving"
        assert link.trouble == "", "it answers"
        assert await count_at_once(link, other, 1) == [[1, 1]]
        cluster.move_keys(slot, source, target)
        cluster.end_move(slot, source, target)
        assert await count_at_once(link, key, 1) == [[2, 2]]


@requirement("OPS-330")
async def test_more_callers_than_connections_wait_for_one_another(cluster: RedisCluster) -> None:
    async with linked(cluster.url) as link:
        found = await count_at_once(link, key_at(cluster, 0), 500)
        assert sorted(found) == [[number, number] for number in range(1, 501)]


@requirement("OPS-331")
async def test_a_node_that_dies_is_missed_once_and_found_again(
    cluster: RedisCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wicketgate.storage")
    dead = cluster.nodes[1]
    async with linked(cluster.url) as link:
        once = RedisOnceStore(link, time.time)
        names = [secrets.token_hex(8) for _ in range(12)]
        assert all([await once.add(name, FOREVER) for name in names])
        dead.kill()
        for name in names:
            with contextlib.suppress(NotAdmitted):
                assert not await once.add(name, FOREVER)
        assert link.trouble
        # The others answer pings meanwhile, and see each other.
        give_up_at = asyncio.get_running_loop().time() + 2.0
        while asyncio.get_running_loop().time() < give_up_at:
            with contextlib.suppress(NotAdmitted):
                assert not await once.add(names[0], FOREVER)
            await asyncio.sleep(0.02)
        assert link.trouble
        dead.start()
        await until(lambda: not link.trouble)
        assert not any([await once.add(name, FOREVER) for name in names])
    said = [record.getMessage() for record in caplog.records if record.name == "wicketgate.storage"]
    assert [sum(part in line for line in said) for part in ("nothing is kept there", "is back after")] == [1, 1], said


@requirement("OPS-332")
async def test_a_process_whose_node_lost_its_mark_does_not_count_as_ended(cluster: RedisCluster) -> None:
    async with linked(cluster.url) as link:
        one, *others = (MailPeers(link) for _ in range(9))
        async with contextlib.AsyncExitStack() as stack:
            for peers in (one, *others):
                await stack.enter_async_context(peers.answering())
            for other in others:
                mark = other._mark(other.own_id)
                cluster.ask(cluster.owner(key_slot(mark.encode())), "FLUSHALL")
                with pytest.raises(NotReached) as unknown:
                    await one.alive(other.own_id)
                assert not unknown.value.gone
                one._sure_from = float("-inf")


@requirement("OPS-331")
async def test_a_replica_that_takes_over_is_found_without_a_restart(cluster: RedisCluster) -> None:
    old = cluster.nodes[1]
    new = cluster.add_replica(old)
    async with linked(cluster.url) as link:
        once = RedisOnceStore(link, time.time)
        names = [secrets.token_hex(8) for _ in range(12)]
        assert all([await once.add(name, FOREVER) for name in names])
        while "master_link_status:up" not in cluster.ask(new, "INFO", "replication") or "slave0" not in cluster.ask(
            old, "INFO", "replication"
        ):
            await asyncio.sleep(0.02)
        assert cluster.ask(old, "WAIT", 1, 5_000) == 1
        old.kill()
        with contextlib.suppress(NotAdmitted):
            assert not any([await once.add(name, FOREVER) for name in names])
        await until(lambda: not link.trouble)
        while True:
            with contextlib.suppress(NotAdmitted):
                assert not any([await once.add(name, FOREVER) for name in names])
                break
            await asyncio.sleep(0.05)
        assert "role:master" in cluster.ask(new, "INFO", "replication")
