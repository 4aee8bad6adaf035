"""The contract that every store of logins keeps (ACCESS-150, ACCESS-151).

A store is tested by a class that inherits this one, beside a fixture ``store`` that makes it and closes it, and
``other``, the same rows as another process has them.
"""

import asyncio
import time
from dataclasses import replace

from tests.support.requirement import requirement
from wicketgate.login.rows import Row, RowStore


def row(key: str = "k1", *, owner: str = "ann", version: int = 1, data: bytes = b"\0\xff one", **more: object) -> Row:
    return Row("grant", key, owner, data, version, **more)  # type: ignore[arg-type]


class RowStoreContract:
    @requirement("ACCESS-150")
    async def test_what_one_process_writes_every_other_reads(self, store: RowStore, other: RowStore) -> None:
        written = row(owner="änn \ud800", data=bytes(range(256)), expires_at=time.time() + 600.123456789)
        assert await store.write(written)
        assert await other.read("grant", "k1") == written
        assert await other.read("flow", "k1") is None
        assert await other.read("grant", "k2") is None
        assert list(await other.of_owner("grant", "änn \ud800")) == [written]

    @requirement("ACCESS-151")
    async def test_of_writers_of_one_version_one_wins(self, store: RowStore, other: RowStore) -> None:
        for version in (1, 2, 3):
            rows = [row(version=version, data=b"%d" % number) for number in range(12)]
            won = await asyncio.gather(
                *((store if number % 2 else other).write(each) for number, each in enumerate(rows))
            )
            assert sum(won) == 1
            assert await store.read("grant", "k1") == rows[won.index(True)]
        assert not await store.write(row(version=1)), "it is there"
        assert not await store.write(row(version=3)), "it is that version already"
        assert not await store.write(row(version=5)), "one was left out"
        assert not await store.write(row("k2", version=2)), "it is not there"

    @requirement("ACCESS-150")
    async def test_an_owner_has_so_many_rows_of_a_kind_and_no_more(self, store: RowStore, other: RowStore) -> None:
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
        assert await store.write(Row("flow", "f1", "ann", b"", 1), most_of_owner=5)
        assert await store.write(replace(kept, version=2), most_of_owner=5), "it takes no further room"
        assert await other.delete("grant", kept.key)
        assert await store.write(row("again"), most_of_owner=5)
        assert not await store.write(row("more"), most_of_owner=5)

    @requirement("ACCESS-150")
    async def test_rows_are_listed_by_owner_or_all(self, store: RowStore, other: RowStore) -> None:
        for number in range(450):
            assert await store.write(row(f"k{number}", owner=f"o{number % 3}"))
        assert await store.write(Row("registration", "r1", "", b"x", 1))
        assert {each.key for each in await other.of_owner("grant", "o1")} == {f"k{n}" for n in range(1, 450, 3)}
        assert len(await other.of_owner("grant", None)) == 450
        assert [each.key for each in await other.of_owner("registration", "")] == ["r1"]
        assert list(await other.of_owner("grant", "")) == []
        assert list(await other.of_owner("browser", None)) == []

    @requirement("ACCESS-150")
    async def test_a_row_is_deleted_once_and_may_come_again(self, store: RowStore, other: RowStore) -> None:
        await store.write(row())
        await store.write(row(version=2))
        assert await other.delete("grant", "k1")
        assert not await store.delete("grant", "k1")
        assert await store.read("grant", "k1") is None
        assert list(await store.of_owner("grant", None)) == []
        assert not await store.write(row(version=3))
        assert await store.write(row(data=b"again"))
        assert list(await other.of_owner("grant", "ann")) == [row(data=b"again")]

    @requirement("ACCESS-150")
    async def test_a_row_whose_time_is_over_is_none(self, store: RowStore, other: RowStore) -> None:
        assert await store.write(row(expires_at=time.time() - 1), most_of_owner=1)
        assert await other.read("grant", "k1") is None
        assert list(await other.of_owner("grant", "ann")) == []
        assert list(await other.of_owner("grant", None)) == []
        assert not await store.write(row(version=2))
        assert await store.write(row(expires_at=time.time() + 600), most_of_owner=1)
        assert not await store.write(row("k2"), most_of_owner=1)

    @requirement("ACCESS-151")
    async def test_a_lease_is_had_by_one_holder(self, store: RowStore, other: RowStore) -> None:
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
    async def test_a_lease_lapses(self, store: RowStore, other: RowStore) -> None:
        assert await store.lease("grant", "k1", "dead", 0.05)
        async with asyncio.timeout(30):
            while not await other.lease("grant", "k1", "next", 60):
                await asyncio.sleep(0.01)
        assert not await store.lease("grant", "k1", "dead", 60)
