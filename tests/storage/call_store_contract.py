"""The contract that every store of long calls keeps (FACE-109).

A store is tested by a class that inherits this one, beside a fixture ``open_store`` that makes it and closes it.
"""

from collections.abc import Callable

from tests.storage.once_store_contract import Clock
from tests.support.requirement import requirement
from wicketgate.gateway.kept_calls import CallStore

OpenCalls = Callable[[Clock], CallStore]


class CallStoreContract:
    @requirement("FACE-109")
    async def test_a_row_is_its_owners_and_the_last_one_counts(self, open_store: OpenCalls) -> None:
        store = open_store(Clock())
        assert await store.put("ann", "1", b"running", 60)
        assert await store.put("ann", "1", b"\x00ended", 60)
        assert await store.put("ann", "2", b"", 60)
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
            assert await store.put(owner, id, str(at).encode(), 60)
        assert [await store.get(*name) for name in names] == [str(at).encode() for at in range(len(names))]

    @requirement("FACE-109")
    async def test_a_large_row_is_whole(self, open_store: OpenCalls) -> None:
        store, row = open_store(Clock()), bytes(range(256)) * 4_096
        assert await store.put("ann", "1", row, 60)
        assert await store.get("ann", "1") == row
