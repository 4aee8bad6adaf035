"""Places counted in memory, in a SQLite file and in a real Redis, under one contract; the death of a process, and a
store that is away."""

import asyncio
import secrets
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.storage.shares_contract import (
    BOUND_S,
    Group,
    GroupContract,
    LifeEnd,
    OpenShares,
    OpenStore,
    SharesContract,
    refusal,
    taken,
    until_taken,
)
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from wicketgate.access.shares import CountedShares, Shares
from wicketgate.storage.fail_modes import USUAL, FailModes
from wicketgate.storage.group_shares import GroupShares, PlaceStore
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.places import RedisPlaces
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.sqlite_places import SQLitePlaces

pytestmark = pytest.mark.usefixtures("patient_stores")


@pytest.fixture
async def open_shares(open_store: OpenStore) -> AsyncIterator[OpenShares]:
    """Counters of one process, over the store of the class."""
    made: list[GroupShares] = []

    def make(most: int, per_actor: int) -> Shares:
        made.append(GroupShares("chat", most, per_actor, open_store(), FailModes()))
        return made[-1]

    yield make
    for shares in made:
        await shares.aclose()


class TestMemory(SharesContract):
    @pytest.fixture
    def open_shares(self) -> OpenShares:
        return lambda most, per_actor: CountedShares("chat", most, per_actor)


class TestSQLite(SharesContract, GroupContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "store.db"

    @pytest.fixture
    async def open_store(self, path: Path) -> AsyncIterator[OpenStore]:
        made: list[SQLitePlaces] = []

        def make(*, lapse_s: float = 6.0) -> PlaceStore:
            made.append(SQLitePlaces(path, secrets.token_hex(4), time.time, lapse_s=lapse_s))
            return made[-1]

        yield make
        for store in made:
            await store.aclose()

    @pytest.fixture
    def life_end(self, path: Path) -> LifeEnd:
        async def look(kind: str, member: str) -> float:
            with closing(sqlite3.connect(path)) as disk:
                row = disk.execute("SELECT until FROM place_member WHERE kind = ? AND member = ?", (kind, member))
                return float(row.fetchone()[0])

        return look

    @requirement("ACCESS-98")
    async def test_a_clock_that_was_set_back_keeps_no_place_of_a_dead_process(
        self, path: Path, open_store: OpenStore
    ) -> None:
        async with Group(open_store) as group:
            ahead = SQLitePlaces(path, "ahead", lambda: time.time() + 3_600)
            early = GroupShares("chat", 9, 5, ahead, FailModes())
            assert len(await taken(early, "bob")) == 5
            assert len(await taken(group.member(), "bob")) == 5
            await early.aclose()
            await ahead.aclose()


class TestRedis(SharesContract, GroupContract):
    @pytest.fixture
    def open_store(self, link: RedisLink) -> OpenStore:
        return lambda *, lapse_s=60.0: RedisPlaces(link, secrets.token_hex(4), lapse_s)

    @pytest.fixture
    def life_end(self, link: RedisLink) -> LifeEnd:
        async def look(kind: str, member: str) -> float:
            key = link.names.key("places", kind, "lives")
            return float(await link.run(lambda client: client.zscore(key, member)))

        return look

    @requirement("ACCESS-98", "OPS-163")
    async def test_what_redis_has_lost_is_set_there_again(self, link: RedisLink, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = group.member(renew_s=0.02), group.member(renew_s=0.02)
            leases = await taken(one, "bob")

            async def forget(client: Any) -> None:
                names = [name async for name in client.scan_iter(f"{link.names.space}:*")]
                assert [await client.pttl(name) > 0 for name in names] == [True] * len(names)
                await client.unlink(*names)

            await link.run(forget)
            key = link.names.key("places", "chat", "lives")
            async with asyncio.timeout(BOUND_S):
                while not await link.run(lambda client: client.exists(key)):
                    await asyncio.sleep(0)
            assert (await refusal(other, "bob")).held == len(leases) == 5


@requirement("ACCESS-98")
@pytest.mark.parametrize("kind", ["redis", "sqlite"])
async def test_the_places_of_a_killed_process_are_free_again(
    kind: str, redis: RedisServer, link: RedisLink, tmp_path: Path
) -> None:
    file = tmp_path / "store.db"
    where = [redis.url, link.names.space] if kind == "redis" else [str(file), ""]
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.storage.killed_holder", *where, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        async with asyncio.timeout(BOUND_S):
            assert await holder.stdout.readline() == b"5\n"
        store = RedisPlaces(link, "heir") if kind == "redis" else SQLitePlaces(file, "heir", time.time)
        heir = GroupShares("chat", 9, 5, store, FailModes())
        assert (await refusal(heir, "bob")).held == 5
    finally:
        holder.kill()
        await holder.wait()
    assert len(await until_taken(heir, "bob", 5)) == 5
    await heir.aclose()
    await store.aclose()


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[RedisServer, Callable[[FailModes], RedisLink]]]:
    """A Redis that may be killed, and links to it, as two processes have them."""
    made: list[RedisLink] = []

    def link(fail: FailModes) -> RedisLink:
        made.append(RedisLink(read_url(server.url), measures=StorageMeasures(fail)))
        return made[-1]

    with redis_server(tmp_path) as server:
        yield server, link
        for each in made:
            await each.aclose()


OwnRedis = tuple[RedisServer, Callable[[FailModes], RedisLink]]


@requirement("ACCESS-100", "OPS-192")
async def test_open_places_are_counted_by_each_process_while_redis_is_away_and_together_when_it_is_back(
    own: OwnRedis,
) -> None:
    server, link = own
    fails = FailModes(), FailModes()
    links = [link(fail) for fail in fails]
    stores = [RedisPlaces(each, name) for each, name in zip(links, "ab", strict=True)]
    one, other = (
        GroupShares("chat", 9, 5, store, fail, renew_s=0.02) for store, fail in zip(stores, fails, strict=True)
    )
    first = await taken(one, "bob", 2)
    server.kill()
    leases = await taken(one, "bob"), await taken(other, "bob")
    assert (len(leases[0]), len(leases[1])) == (3, 5)
    assert (await refusal(one, "bob")).scope == "actor"
    assert fails[0].counts["places", "open"] == 3
    assert fails[0].degraded(away=False) == {"places": "open"}
    one.give_back(first.pop())
    server.start()
    # What was taken meanwhile is counted, without a request.
    async with asyncio.timeout(BOUND_S):
        while any(fail.degraded(away=False) for fail in fails):
            await asyncio.sleep(0.01)
    for lease in leases[1]:
        other.give_back(lease)
    await until_taken(other, "bob")
    refused = await refusal(other, "bob")
    assert (refused.scope, refused.held) == ("actor", 5)
    for shares in (one, other):
        await shares.aclose()


@requirement("ACCESS-100", "OPS-191")
async def test_closed_places_are_refused_while_redis_is_away(own: OwnRedis) -> None:
    server, link = own
    fail = FailModes({**USUAL, "places": "closed"})
    shares = GroupShares("chat", 9, 5, RedisPlaces(link(fail), "a"), fail, renew_s=0.02)
    (held,) = await taken(shares, "bob", 1)
    server.kill()
    assert (await refusal(shares, "bob")).scope == "away"
    assert (shares.held, shares.refused["away"], fail.counts["places", "closed"]) == (1, 1, 1)
    shares.give_back(held)
    server.start()
    assert len(await until_taken(shares, "bob", 5)) == 5
    await shares.aclose()


@requirement("ACCESS-100")
@pytest.mark.usefixtures("real_waits")
async def test_a_redis_that_stands_still_holds_nobody_up_for_longer_than_its_second(own: OwnRedis) -> None:
    server, link = own
    fail = FailModes()
    shares = GroupShares("chat", 500, 50, RedisPlaces(link(fail), "a"), fail)
    await taken(shares, "bob", 1)
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        found = await asyncio.gather(*(shares.take(f"actor{number}") for number in range(100)))
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert (len(found), fail.counts["places", "open"]) == (100, 100)
    await shares.aclose()


@requirement("ACCESS-100", "OPS-192")
async def test_a_file_that_cannot_be_written_leaves_places_to_each_process(tmp_path: Path) -> None:
    path, fail = tmp_path / "store.db", FailModes()
    store = SQLitePlaces(path, "a", time.time)
    shares = GroupShares("chat", 9, 5, store, fail)
    path.unlink()
    path.mkdir()
    assert len(await taken(shares, "bob")) == 5
    assert fail.counts["places", "open"] == 5
    await shares.aclose()
    await store.aclose()
