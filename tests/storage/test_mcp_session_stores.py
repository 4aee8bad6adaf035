"""Sessions of the handshake era in memory, in SQLite and in a real Redis."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.storage.mcp_session_store_contract import HOLDER, McpSessionStoreContract, session
from tests.storage.test_redis_stores import keys_without_an_end
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from wicketgate.faces.mcp.kept_sessions import (
    ENDED_S,
    IDLE_S,
    MEMBER_S,
    RESERVED_S,
    McpSessionStore,
    Renewal,
    SessionsAway,
)
from wicketgate.storage.memory_mcp_sessions import MemoryMcpSessionStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.mcp_sessions import RedisMcpSessionStore
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.sqlite_mcp_sessions import SQLiteMcpSessionStore

pytestmark = pytest.mark.usefixtures("patient_stores")


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class WithClock(McpSessionStoreContract):
    """The clauses that can be shown where the time is the test's."""

    @requirement("FACE-115")
    async def test_a_session_lapses_when_nobody_has_used_it_for_long(
        self, store: McpSessionStore, clock: Clock
    ) -> None:
        await store.open("s1", session(), "one", HOLDER)
        clock.now += IDLE_S - 1
        await store.renew({"s1": Renewal(session(), IDLE_S - 1, HOLDER)}, "one")
        assert await store.join("s1", "ann", "two", HOLDER) is not None
        clock.now += IDLE_S - 1
        await store.renew({"s1": Renewal(session(), 10, HOLDER)}, "one")
        clock.now += IDLE_S - 11
        assert await store.members("s1") == await store.leave("s1", "three")
        clock.now += 1
        assert await store.join("s1", "ann", "two", HOLDER) is None

    @requirement("FACE-118")
    async def test_a_process_that_does_not_renew_it_has_it_no_more(self, store: McpSessionStore, clock: Clock) -> None:
        await store.open("s1", session(), "one", HOLDER)
        clock.now += MEMBER_S / 2
        await store.join("s1", "ann", "two", HOLDER)
        clock.now += MEMBER_S / 2
        assert list(await store.members("s1")) == ["two"]

    @requirement("FACE-116")
    async def test_an_end_is_not_remembered_for_ever(self, store: McpSessionStore, clock: Clock) -> None:
        await store.open("s1", session(), "one", HOLDER)
        await store.end("s1", HOLDER)
        clock.now += ENDED_S
        await store.renew({}, "one")
        assert list(await store.renew({"s1": Renewal(session(), 0.0, HOLDER)}, "one")) == []

    @requirement("ACCESS-102")
    async def test_places_lapse_with_the_sessions(self, store: McpSessionStore, clock: Clock) -> None:
        assert await store.reserve("s1", HOLDER, 1)
        clock.now += RESERVED_S
        assert await store.reserve("s2", HOLDER, 1), "no session came to it"
        await store.open("s2", session(), "one", HOLDER)
        clock.now += IDLE_S - 1
        assert not await store.reserve("s3", HOLDER, 1)
        await store.join("s2", "ann", "two", HOLDER)
        clock.now += IDLE_S - 1
        assert not await store.reserve("s3", HOLDER, 1)
        clock.now += 1
        assert await store.reserve("s3", HOLDER, 1)
        await store.renew({}, "one")


class TestMemory(WithClock):
    @pytest.fixture
    def store(self, clock: Clock) -> McpSessionStore:
        return MemoryMcpSessionStore(clock)

    async def test_its_size_is_bounded(self, clock: Clock) -> None:
        store = MemoryMcpSessionStore(clock, max_kept=2)
        for name in "abc":
            await store.open(name, session(), "one", HOLDER)
        assert [await store.join(name, "ann", "one", HOLDER) is None for name in "abc"] == [True, False, False]
        for name in "abc":
            await store.end(name, HOLDER)
        await store.renew({name: Renewal(session(), 0.0, HOLDER) for name in "abc"}, "one")
        assert [await store.join(name, "ann", "one", HOLDER) is None for name in "abc"] == [False, True, True]


class TestSQLite(WithClock):
    @pytest.fixture
    async def store(self, tmp_path: Path, clock: Clock) -> AsyncIterator[McpSessionStore]:
        store = SQLiteMcpSessionStore(tmp_path / "store.db", clock)
        yield store
        await store.aclose()

    @requirement("FACE-119")
    @pytest.mark.usefixtures("real_waits")
    async def test_a_locked_file_is_away(self, store: McpSessionStore, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(SessionsAway):
                await store.join("s1", "ann", "one", HOLDER)

    @requirement("FACE-117")
    async def test_a_file_that_was_removed_gets_the_sessions_back(self, store: McpSessionStore, tmp_path: Path) -> None:
        await store.open("s1", session(), "one", HOLDER)
        for file in tmp_path.iterdir():
            file.unlink()
        await store.renew({"s1": Renewal(session(), 0.0, HOLDER)}, "one")
        assert await store.join("s1", "ann", "two", HOLDER) == session()


class TestRedis(McpSessionStoreContract):
    @pytest.fixture
    def store(self, link: RedisLink) -> McpSessionStore:
        return RedisMcpSessionStore(link)

    @requirement("OPS-163", "FACE-116")
    async def test_every_key_has_an_end(self, store: McpSessionStore, link: RedisLink) -> None:
        await store.open("s1", session(), "one", HOLDER)
        await store.open("s2", session(), "one", HOLDER)
        await store.end("s2", HOLDER)
        await store.renew({f"r{n}": Renewal(session(), IDLE_S - 60 * (n % 2), HOLDER) for n in range(40)}, "one")
        assert await keys_without_an_end(link) == []
        assert await store.join("r0", "ann", "one", HOLDER) is None, "its time was over"
        assert await store.join("r1", "ann", "one", HOLDER) is not None

    @requirement("FACE-118")
    async def test_a_process_that_does_not_renew_it_has_it_no_more(
        self, store: McpSessionStore, link: RedisLink
    ) -> None:
        await store.open("s1", session(), "one", HOLDER)

        async def age(client: Any) -> None:
            (key,) = [key async for key in client.scan_iter(f"{link.names.space}:wg1:mcp-session:*")]
            await client.hset(key, "m:dead", 1_000)

        await link.run(age)
        assert list(await store.members("s1")) == ["one"]

    @requirement("FACE-115")
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("facts", b'{"actor": 1}'),
            ("facts", b"\xff"),
            ("facts", b'{"actor": "ann", "version": "2999-01-01", "client": {}}'),
            ("key", b"\xff"),
            ("level", b"\xff"),
            (b"u:\xff", b""),
        ],
    )
    async def test_damaged_facts_are_no_session(
        self, store: McpSessionStore, link: RedisLink, field: str | bytes, value: bytes
    ) -> None:
        await store.open("s1", session(), "one", HOLDER)

        async def spoil(client: Any) -> None:
            (key,) = [key async for key in client.scan_iter(f"{link.names.space}:wg1:mcp-session:*")]
            await client.hset(key, field, value)

        await link.run(spoil)
        assert await store.join("s1", "ann", "one", HOLDER) is None


@requirement("FACE-119")
async def test_a_redis_that_is_gone_is_away(tmp_path: Path) -> None:
    server: RedisServer
    with redis_server(tmp_path) as server:
        link = RedisLink(read_url(server.url))
        store = RedisMcpSessionStore(link)
        await store.open("s1", session(), "one", HOLDER)
        server.kill()
        for doing in (
            store.join("s1", "ann", "one", HOLDER),
            store.members("s1"),
            store.renew({"s1": Renewal(session(), 0, HOLDER)}, "one"),
        ):
            with pytest.raises(SessionsAway):
                await doing
        await link.aclose()
