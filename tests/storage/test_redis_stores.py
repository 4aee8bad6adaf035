"""Artifacts, used approvals and learned words in a real Redis, which keeps the contracts of the other stores."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.storage import artifact_store_contract as artifacts
from tests.storage import learned_store_contract as words
from tests.storage.artifact_store_contract import ArtifactStoreContract, OpenStore
from tests.storage.learned_store_contract import LearnedStoreContract, OpenLearned, held, learned, lesson
from tests.storage.once_store_contract import Clock, OnceStoreContract, OpenOnce
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from wicketgate.catalog.learned_words import MAX_ACTOR_TOOLS, MAX_SIZE
from wicketgate.storage.memory_store import MAX_AGE_S, MAX_BYTES
from wicketgate.storage.redis.artifacts import RedisArtifactStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.learned import RedisLearnedStore
from wicketgate.storage.redis.once import RedisOnceStore
from wicketgate.storage.redis.url import read_url

pytestmark = pytest.mark.usefixtures("patient_stores")


@asynccontextmanager
async def other_replica(redis: RedisServer, link: RedisLink) -> AsyncIterator[RedisLink]:
    """The link of another process to the same keys."""
    other = RedisLink(read_url(redis.url), names=link.names)
    try:
        yield other
    finally:
        await other.aclose()


async def keys_without_an_end(link: RedisLink) -> list[bytes]:
    async def look(client: Any) -> list[bytes]:
        names = [name async for name in client.scan_iter(f"{link.names.space}:*")]
        assert names
        return [name for name in names if await client.pttl(name) <= 0]

    return await link.run(look)


@requirement("EXEC-51")
class TestArtifacts(ArtifactStoreContract):
    @pytest.fixture
    def open_store(self, link: RedisLink) -> OpenStore:
        still = artifacts.Clock()

        def make(
            *, max_bytes: int = MAX_BYTES, max_age_s: float = MAX_AGE_S, now: Callable[[], float] = still
        ) -> RedisArtifactStore:
            return RedisArtifactStore(link, max_bytes, max_age_s, now)

        return make

    @requirement("EXEC-51")
    async def test_what_one_replica_keeps_every_other_has(
        self, open_store: OpenStore, redis: RedisServer, link: RedisLink
    ) -> None:
        one = open_store(max_bytes=artifacts.room_for(2))
        async with other_replica(redis, link) as elsewhere:
            other = RedisArtifactStore(elsewhere, artifacts.room_for(2), MAX_AGE_S, artifacts.Clock())
            await one.put("ann", artifacts.artifact("one"))
            await other.put("ann", artifacts.artifact("two"))
            assert await artifacts.held(one, "ann", "two", "one") == ["two", "one"]
            await other.put("ann", artifacts.artifact("three"))
            assert await artifacts.held(one, "ann", "one", "two", "three") == ["one", "three"]

    @requirement("OPS-163")
    async def test_every_key_has_an_end_and_a_version(self, open_store: OpenStore, link: RedisLink) -> None:
        await open_store().put("ann", artifacts.artifact("one"))
        assert await keys_without_an_end(link) == []

    async def test_bytes_that_are_not_ours_are_no_artifact(self, open_store: OpenStore, link: RedisLink) -> None:
        store = open_store()
        await store.put("ann", artifacts.artifact("one"))

        async def spoil(client: Any) -> None:
            async for name in client.scan_iter(f"{link.names.space}:*"):
                if await client.type(name) == b"string":
                    await client.set(name, b"\xff\xff\xff\xffnothing")

        await link.run(spoil)
        assert await store.get("ann", artifacts.handle("one")) is None


@requirement("ACCESS-86")
class TestUsedApprovals(OnceStoreContract):
    @pytest.fixture
    def open_store(self, link: RedisLink) -> OpenOnce:
        return lambda clock: RedisOnceStore(link, clock)

    @requirement("ACCESS-86")
    async def test_of_many_replicas_one_uses_it(self, redis: RedisServer, link: RedisLink) -> None:
        clock = Clock()
        async with other_replica(redis, link) as elsewhere:
            stores = [RedisOnceStore(link, clock), RedisOnceStore(elsewhere, clock)]
            added = await asyncio.gather(*(store.add("a", clock.now + 10) for _ in range(10) for store in stores))
        assert sorted(added) == [False] * 19 + [True]

    @requirement("OPS-163")
    async def test_every_key_has_an_end(self, link: RedisLink) -> None:
        clock = Clock()
        await RedisOnceStore(link, clock).add("a", clock.now + 10)
        assert await keys_without_an_end(link) == []


@requirement("EXEC-51")
class TestLearned(LearnedStoreContract):
    @pytest.fixture
    def open_store(self, link: RedisLink) -> OpenLearned:
        still = words.Clock()

        def make(
            *, now: Callable[[], float] = still, max_size: int = MAX_SIZE, max_actor_tools: int = MAX_ACTOR_TOOLS
        ) -> RedisLearnedStore:
            return RedisLearnedStore(link, now, max_size=max_size, max_actor_tools=max_actor_tools)

        return make

    @requirement("EXEC-51")
    async def test_replicas_that_teach_at_once_lose_nothing(
        self, open_store: OpenLearned, redis: RedisServer, link: RedisLink
    ) -> None:
        one = open_store()
        async with other_replica(redis, link) as elsewhere:
            other = RedisLearnedStore(elsewhere, words.Clock())
            taught = [learned(store, lesson("ann", "a:x", "film")) for _ in range(20) for store in (one, other)]
            await asyncio.gather(*taught)
            assert (await held(one))["ann", "a:x"].counts["film"] == 40

    @requirement("EXEC-51")
    async def test_words_that_redis_lost_are_forgotten_here_too(self, open_store: OpenLearned, link: RedisLink) -> None:
        store = open_store()
        for _ in range(3):
            before = await learned(store, lesson("ann", "a:x", "film"))

        async def lose(client: Any) -> None:
            async for name in client.scan_iter(f"{link.names.space}:*"):
                await client.delete(name)

        await link.run(lose)
        for number in range(5):
            after = await learned(store, lesson("bob", f"a:{number}", "play"), since=before.version)
            if not number:
                assert after.whole
        assert {key[0] for key in await held(store)} == {"bob"}

    @requirement("OPS-163")
    async def test_every_key_has_an_end(self, open_store: OpenLearned, link: RedisLink) -> None:
        await learned(open_store(), lesson("ann", "a:x", "film"))
        assert await keys_without_an_end(link) == []
