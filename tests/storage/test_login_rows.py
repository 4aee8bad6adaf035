"""The rows of logins, over each store."""

import asyncio
import logging
import time
from dataclasses import replace

import pytest

from tests.storage.test_used_approvals import Stores
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.errors import StoreUnavailable
from wicketgate.login.sealed_rows import Row, RowSeal, SealedRows
from wicketgate.storage.login_rows import LIFE_S, LoginRows
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Kind, Put, Store

pytestmark = pytest.mark.usefixtures("patient_stores")

GRANT = Kind("login_grant", listed=True)
SEAL = RowSeal(["k" * 40], b"own")


@pytest.fixture
def store(stores: Stores) -> SealedRows:
    return LoginRows(stores[1](), SEAL, time.time)


@pytest.fixture
def other(stores: Stores) -> SealedRows:
    """The same rows, as another process has them."""
    return LoginRows(stores[1](), SEAL, time.time)


def row(key: str = "k1", *, owner: str = "ann", version: int = 1, data: str = "one \ud800", **more: object) -> Row:
    return Row("grant", key, owner, {"data": data}, version, **more)  # type: ignore[arg-type]


@requirement("ACCESS-150")
async def test_what_one_process_writes_every_other_reads(store: SealedRows, other: SealedRows) -> None:
    written = row(owner="änn \ud800", expires_at=time.time() + 600.123456789)
    assert await store.write(written)
    assert await other.read("grant", "k1") == written
    assert await other.read("flow", "k1") is None
    assert await other.read("grant", "k2") is None
    assert list(await other.of_owner("grant", "änn \ud800")) == [written]


@requirement("ACCESS-151")
async def test_of_writers_of_one_version_one_wins(store: SealedRows, other: SealedRows) -> None:
    for version in (1, 2, 3):
        rows = [row(version=version, data=str(number)) for number in range(12)]
        won = await asyncio.gather(*((store if number % 2 else other).write(each) for number, each in enumerate(rows)))
        assert sorted(won) == [*[0] * 11, version]
        assert await store.read("grant", "k1") == rows[won.index(version)]
    assert not await store.write(row(version=1)), "it is there"
    assert not await store.write(row(version=3)), "it is that version already"
    assert not await store.write(row(version=5)), "one was left out"
    assert not await store.write(row("k2", version=2)), "it is not there"


@requirement("ACCESS-150")
async def test_an_owner_has_so_many_rows_of_a_kind_and_no_more(store: SealedRows, other: SealedRows) -> None:
    rows = [row(f"k{number}") for number in range(12)]
    won = await asyncio.gather(
        *((store if number % 2 else other).write(each, most_of_owner=5) for number, each in enumerate(rows))
    )
    assert sum(won) == 5
    kept = rows[won.index(True)]
    assert sorted(each.key for each in await other.of_owner("grant", "ann")) == sorted(
        each.key for each, is_kept in zip(rows, won, strict=True) if is_kept
    )
    assert await store.write(row("b1", owner="bob"), most_of_owner=5)
    assert await store.write(Row("flow", "f1", "ann", {}, 1), most_of_owner=5)
    assert await store.write(replace(kept, version=2), most_of_owner=5), "it takes no further room"
    assert await other.delete("grant", kept.key)
    assert await store.write(row("again"), most_of_owner=5)
    assert not await store.write(row("more"), most_of_owner=5)


@requirement("ACCESS-150")
async def test_rows_are_listed_by_owner_or_all(store: SealedRows, other: SealedRows) -> None:
    for number in range(45):
        assert await store.write(row(f"k{number}", owner=f"o{number % 3}"))
    assert await store.write(Row("registration", "r1", "", {}, 1))
    assert {each.key for each in await other.of_owner("grant", "o1")} == {f"k{n}" for n in range(1, 45, 3)}
    assert len(await other.of_owner("grant", None)) == 45
    assert [each.key for each in await other.of_owner("registration", "")] == ["r1"]
    assert list(await other.of_owner("grant", "")) == []
    assert list(await other.of_owner("browser", None)) == []


@requirement("ACCESS-150")
async def test_a_row_is_deleted_once_and_may_come_again(store: SealedRows, other: SealedRows) -> None:
    await store.write(row())
    await store.write(row(version=2))
    assert await other.delete("grant", "k1")
    assert not await store.delete("grant", "k1")
    assert await store.read("grant", "k1") is None
    assert list(await store.of_owner("grant", None)) == []
    assert not await store.write(row(version=3))
    assert await store.write(row(data="again"))
    assert list(await other.of_owner("grant", "ann")) == [row(data="again")]


@requirement("ACCESS-150")
async def test_a_row_whose_time_is_over_is_none(store: SealedRows, other: SealedRows) -> None:
    assert await store.write(row(expires_at=time.time() - 1), most_of_owner=1)
    assert await other.read("grant", "k1") is None
    assert list(await other.of_owner("grant", "ann")) == []
    assert list(await other.of_owner("grant", None)) == []
    assert not await store.write(row(version=2))
    assert await store.write(row(expires_at=time.time() + 600), most_of_owner=1)
    assert not await store.write(row("k2"), most_of_owner=1)


@requirement("ACCESS-151")
async def test_a_lease_is_had_by_one_holder(store: SealedRows, other: SealedRows) -> None:
    taken = await asyncio.gather(
        *((store if number % 2 else other).lease("grant", "k1", f"h{number}", 60) for number in range(12))
    )
    assert sum(taken) == 1
    holder = f"h{taken.index(True)}"
    assert await other.lease("grant", "k1", holder, 60), "it may be made longer"
    assert not await store.lease("grant", "k1", "stranger", 60)
    assert await store.lease("grant", "k2", "stranger", 60)
    assert await store.lease("flow", "k1", "stranger", 60)
    await store.release("grant", "k1", "stranger")
    assert not await store.lease("grant", "k1", "stranger", 60)
    await other.release("grant", "k1", holder)
    assert await store.lease("grant", "k1", "stranger", 60)


@requirement("ACCESS-151")
async def test_a_lease_lapses(store: SealedRows, other: SealedRows) -> None:
    assert await store.lease("grant", "k1", "dead", 0.05)
    await until(lambda: other.lease("grant", "k1", "next", 60))
    assert not await store.lease("grant", "k1", "dead", 60)


@requirement("ACCESS-150")
async def test_a_row_without_an_end_is_kept_for_a_year_after_its_last_write() -> None:
    now = time.time()
    store = LoginRows(MemoryStore(lambda: now), SEAL, lambda: now)
    assert await store.write(row(expires_at=now + 10))
    assert await store.write(row(version=2))
    now += LIFE_S - 1
    assert await store.read("grant", "k1") == row(version=2)
    now += 1
    assert await store.read("grant", "k1") is None


@requirement("ACCESS-151")
async def test_a_repeated_step_is_no_other_holder() -> None:
    store = FailingStore()
    rows = LoginRows(store, SEAL, time.time)
    store.repeats = 2
    assert await rows.lease("grant", "k1", "h", 60)
    await rows.release("grant", "k1", "h")
    assert store.repeats == 0
    assert await rows.lease("grant", "k1", "next", 60)


@requirement("ACCESS-152")
async def test_a_store_that_is_unavailable_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore()
    rows = LoginRows(store, SEAL, time.time)
    store.unavailable = True
    with caplog.at_level(logging.INFO):
        for doing in (rows.write(row()), rows.lease("grant", "k1", "h", 1), rows.delete("grant", "k1")):
            with pytest.raises(StoreUnavailable):
                await doing
    assert caplog.messages == ["logins can neither be read nor kept at the moment: it is unavailable"]


@requirement("ACCESS-154")
@pytest.mark.parametrize("data", [b"", b"\xff\n", b"[1]\n", b"{}\n", b"[1,null]\n", b'["ann","soon"]\n'])
async def test_a_damaged_row_counts_as_removed_is_logged_and_written_over(
    stores: Stores, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store: Store = stores[1]()
    await store.step([Put(GRANT, "k1", data, expect=0, life_s=60)])
    rows = LoginRows(store, SEAL, time.time)
    assert await rows.read("grant", "k1") is None
    assert await rows.of_owner("grant", None) == []
    assert "damaged row (login_grant 'k1')" in caplog.text
    assert await rows.write(row()) == 2
    assert await rows.read("grant", "k1") == row(version=2)
