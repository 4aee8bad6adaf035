"""The check value of the seal ring: who may start on a store, and how it follows a rotation (ACCESS-330 to 333)."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.storage.test_redis_store import GUIDE
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.errors import ConfigError
from wicketgate.storage import ring_check
from wicketgate.storage.process import Process
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.ring_check import CHECK, DAMAGED, EPHEMERAL, FOREIGN, RING, RingCheck
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.store import Drop, Put, Row, Store

OLD, NEW, OTHER = "o" * 32, "n" * 32, "x" * 32
Stores = tuple[str, Callable[[], Store]]
MARK_S, BEAT_S, LOOK_S = 0.6, 0.15, 0.2


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_check, "MARK_S", MARK_S)
    monkeypatch.setattr(ring_check, "LOOK_S", LOOK_S)
    monkeypatch.setattr(ring_check, "BEAT_S", BEAT_S)
    monkeypatch.setattr(ring_check, "_PAUSE_S", 0.02)


def make(store: Store, *keys: str, own: bytes = b"") -> tuple[Process, RingCheck]:
    process = Process(store, mark_s=MARK_S, beat_s=BEAT_S)
    return process, RingCheck(store, process, own or process.id.encode(), keys)


@asynccontextmanager
async def started(store: Store, *keys: str, own: bytes = b"") -> AsyncIterator[RingCheck]:
    process, check = make(store, *keys, own=own)
    async with process.running(), check.running():
        yield check


async def kill(store: Store, *keys: str, own: bytes = b"") -> None:
    """Starts a process and leaves its mark and its row as a kill does."""
    process, check = make(store, *keys, own=own)
    await store.beat(process.id, mark_s=MARK_S)
    await check._admit()


async def row(store: Store) -> Row:
    found = await store.get(RING, CHECK)
    assert found is not None
    return found


@requirement("ACCESS-330", "ACCESS-332")
async def test_a_store_belongs_to_processes_that_share_a_key(stores: Stores) -> None:
    _, open_store = stores
    async with started(open_store(), OLD):
        async with started(open_store(), OTHER, OLD):
            pass
        # The second has put the row under its front key, which the first does not have.
        with pytest.raises(ConfigError, match=r"other auth\.seal_keys"):
            async with started(open_store(), OLD):
                pass
    with pytest.raises(ConfigError, match=r"other auth\.seal_keys"):
        async with started(open_store(), NEW):
            pass
    with pytest.raises(ConfigError, match=r"other auth\.seal_keys"):
        async with started(open_store()):
            pass


@requirement("ACCESS-330")
async def test_processes_that_start_together_agree_on_one_ring(stores: Stores) -> None:
    _, open_store = stores
    rings = (OLD, NEW, OTHER, OLD, NEW, OTHER)
    checks = [make(open_store(), key)[1] for key in rings]
    outcomes = await asyncio.gather(*(check._admit() for check in checks), return_exceptions=True)
    admitted = {key for key, outcome in zip(rings, outcomes, strict=True) if outcome is None}
    assert len(admitted) == 1
    assert [outcome for outcome in outcomes if outcome is None] == [None, None]


@requirement("ACCESS-331")
async def test_a_process_without_keys_holds_the_store_against_another(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    _, open_store = stores
    for keys in ((), (NEW,)):
        async with started(open_store()):
            with pytest.raises(ConfigError) as refused:
                async with started(open_store(), *keys):
                    pass
            assert str(refused.value) == EPHEMERAL
            assert "waiting up to" in caplog.text
    # Each has stopped in order, so the next one does not wait.
    caplog.clear()
    async with started(open_store()):
        pass
    async with started(open_store(), NEW):
        assert (await row(open_store())).holder is None
    assert "waiting" not in caplog.text


@requirement("ACCESS-331")
async def test_the_next_process_without_keys_takes_the_store_of_one_that_was_killed(stores: Stores) -> None:
    _, open_store = stores
    await kill(open_store())
    async with asyncio.timeout(MARK_S + LOOK_S + 3):
        async with started(open_store()) as check:
            assert (await row(open_store())).holder == check._process.id


@requirement("ACCESS-331")
async def test_workers_that_share_a_random_key_keep_the_row_while_one_of_them_lives(stores: Stores) -> None:
    _, open_store = stores
    async with started(open_store(), own=b"w"):
        await asyncio.sleep(MARK_S + 0.1)  # patience of a start
        async with started(open_store(), own=b"w"):
            pass
    # The holder is killed, another worker goes on.
    await kill(open_store(), own=b"w")
    async with started(open_store(), own=b"w") as other:
        with pytest.raises(ConfigError):
            async with started(open_store()):
                pass
        await until(lambda: row(open_store()), lambda found: found.holder == other._process.id)
    assert (await row(open_store())).holder == ""


@requirement("ACCESS-332")
async def test_the_row_follows_the_front_key(stores: Stores) -> None:
    _, open_store = stores
    store = open_store()
    async with started(store, OLD) as one, started(open_store(), OLD) as two:
        for keys in ([OLD, NEW], [NEW, OLD], [NEW]):
            for each in (one, two):
                before = await row(store)
                await each.check(keys)
                assert await row(store) == before
                await each.follow(keys)
        with pytest.raises(ConfigError, match=r"other auth\.seal_keys"):
            await one.check([OLD])
    async with started(open_store(), NEW):
        pass


@requirement("ACCESS-332")
async def test_keys_that_are_configured_later_take_the_place_of_a_random_one(stores: Stores) -> None:
    _, open_store = stores
    async with started(open_store()) as check:
        await check.check([NEW])
        await check.follow([NEW])
        assert (await row(open_store())).holder is None
        async with started(open_store(), NEW):
            pass
        with pytest.raises(ConfigError):
            await check.check([])


@requirement("ACCESS-333")
async def test_a_store_that_was_unavailable_at_the_start_is_checked_afterwards(stores: Stores) -> None:
    _, open_store = stores
    async with started(open_store(), OLD):
        pass
    for key in (OLD, NEW):
        store = FailingStore(open_store())
        store.unavailable = True
        _, check = make(store, key)
        refused: list[ConfigError] = []
        check.refused = refused.append
        async with check.running():
            with pytest.raises(ConfigError, match="cannot be changed at the moment"):
                await check.check([NEW])
            assert not refused
            store.unavailable = False
            await until(lambda: check._looking is None or check._looking.done())
        assert [str(error) for error in refused] == ([FOREIGN] if key == NEW else [])


@requirement("ACCESS-333")
async def test_a_row_that_the_store_has_lost_is_written_again(stores: Stores) -> None:
    _, open_store = stores
    store = open_store()
    async with started(store, OLD) as check:
        await store.step([Drop(RING, CHECK)])
        await store.beat(check._process.id, mark_s=0)
        await until(lambda: store.get(RING, CHECK))


@requirement("ACCESS-333")
@pytest.mark.parametrize("data", [b"", b"x" * 47, b"x" * 49, b"x" * 100_000])
async def test_a_damaged_row_refuses_start_and_change(
    stores: Stores, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _, open_store = stores
    async with started(open_store(), OLD) as check:
        await open_store().step([Put(RING, CHECK, data)])
        with pytest.raises(ConfigError) as refused:
            await check.check([NEW, OLD])
        assert str(refused.value) == DAMAGED
    with pytest.raises(ConfigError, match="damaged row"):
        async with started(open_store(), OLD):
            pass
    assert (await row(open_store())).data == data
    assert "seal_ring" in caplog.text


@requirement("ACCESS-333")
async def test_a_row_of_a_wrong_type_refuses_the_start(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    async with started(store, OLD):
        pass
    with sqlite3.connect(tmp_path / "store.db") as disk:
        disk.execute("UPDATE row SET data = 5 WHERE kind = 'seal_ring'")
    with pytest.raises(ConfigError, match="damaged row"):
        async with started(store, OLD):
            pass
    await store.aclose()


@requirement("ACCESS-333")
async def test_the_row_has_the_key_that_the_guide_removes(link: RedisLink) -> None:
    (key,) = re.findall(r"Redis key\s+`([^`]+)`", GUIDE.read_text())
    async with started(RedisStore(link), OLD):
        pass
    assert await link.run(lambda client: client.delete(key)) == 1
    async with started(RedisStore(link), NEW):
        pass
