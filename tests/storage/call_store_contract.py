"""The contract that every store of long calls keeps (FACE-109).

A store is tested by a class that inherits this one, beside a fixture ``open_store`` that makes it and closes it.
"""

from typing import Protocol

from tests.storage.once_store_contract import Clock
from tests.support.requirement import requirement
from wicketgate.gateway.kept_calls import CallStore


class OpenCalls(Protocol):
    def __call__(self, clock: Clock, most_bytes: int = ...) -> CallStore: ...


class CallStoreContract:
    @requirement("FACE-109")
    async def test_a_row_is_its_owners_and_the_last_one_counts(self, open_store: OpenCalls) -> None:
        store = open_store(Clock())
        assert await store.put("ann", "1", b"running", 60, ended=False)
        assert await store.put("ann", "1", b"\x00ended", 60, ended=True)
        assert await store.put("ann", "2", b"", 60, ended=True)
        assert [await store.get("ann", id) for id in ("1", "2", "3")] == [b"\x00ended", b"", None]
        assert await store.get("bob", "1") is None
        await store.drop("ann", "1")
        await store.drop("ann", "1")
        assert [await store.get("ann", id) for id in ("1", "2")] == [None, b""]

    @requirement("FACE-109")
    async def test_any_string_is_an_owner_and_an_id_of_its_own(self, open_store: OpenCalls) -> None:
        store = open_store(Clock())
        odd = ["", "a", "A", "a ", "a\nb", "é", "e\u0301", "😀", "\ud800", "x" * 9_999, "{a}", "a:b"]
        names = [(owner, id) for owner in odd for id in odd]
        for at, (owner, id) in enumerate(names):
            assert await store.put(owner, id, str(at).encode(), 60, ended=True)
        assert [await store.get(*name) for name in names] == [str(at).encode() for at in range(len(names))]

    @requirement("FACE-109")
    async def test_a_large_row_is_whole(self, open_store: OpenCalls) -> None:
        store, row = open_store(Clock()), bytes(range(256)) * 4_096
        assert await store.put("ann", "1", row, 60, ended=True)
        assert await store.get("ann", "1") == row

    @requirement("OPS-350")
    async def test_who_holds_most_loses_its_oldest_result_first(self, open_store: OpenCalls) -> None:
        store = open_store(Clock(), 100)

        async def put(name: str, size: int) -> None:
            assert await store.put(name[:-1], name, b"x" * size, 60, ended=True)

        for name, size in (("ann1", 20), ("ann2", 20), ("bob1", 30), ("cid1", 20), ("dan1", 20)):
            await put(name, size)
        assert await kept(store, "ann1", "ann2", "bob1", "cid1", "dan1") == ["ann2", "bob1", "cid1", "dan1"]
        await store.drop("bob", "bob1")
        await put("eve1", 30)
        assert await kept(store, "ann2", "bob1", "cid1", "dan1", "eve1") == ["ann2", "cid1", "dan1", "eve1"]

    @requirement("OPS-351")
    async def test_one_actor_has_half_of_the_room(self, open_store: OpenCalls) -> None:
        store = open_store(Clock(), 100)
        for name in ("ann1", "ann2", "ann3"):
            assert await store.put("ann", name, b"x" * 20, 60, ended=True)
        assert await kept(store, "ann1", "ann2", "ann3") == ["ann2", "ann3"]
        assert not await store.put("ann", "ann4", b"x" * 51, 60, ended=True)
        assert await kept(store, "ann2", "ann3", "ann4") == ["ann2", "ann3"]

    @requirement("OPS-352")
    async def test_a_call_that_runs_gives_way_to_none(self, open_store: OpenCalls) -> None:
        store = open_store(Clock(), 100)
        assert await store.put("ann", "ann1", b"r" * 20, 60, ended=False)
        assert await store.put("ann", "ann2", b"x" * 20, 60, ended=True)
        assert await store.put("ann", "ann3", b"r" * 20, 60, ended=False)
        assert await kept(store, "ann1", "ann2", "ann3") == ["ann1", "ann3"]
        assert not await store.put("ann", "ann4", b"x" * 20, 60, ended=True)
        assert await store.put("ann", "ann1", b"x" * 30, 60, ended=True), "it takes the room of its own row"
        assert await store.put("ann", "ann5", b"x" * 30, 60, ended=True), "and has ended now"
        assert await kept(store, "ann1", "ann3", "ann5") == ["ann3", "ann5"]


async def kept(store: CallStore, *names: str) -> list[str]:
    return [name for name in names if await store.get(name[:-1], name) is not None]
