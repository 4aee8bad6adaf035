"""The contract of artifacts, over every store (EXEC-28 to EXEC-32, EXEC-51)."""

import logging
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from tests.support.artifacts import artifact, handle, held, room_for, sealed
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from wicketgate.errors import ViewFailed
from wicketgate.ports import Artifact
from wicketgate.storage import artifacts
from wicketgate.storage.artifacts import ENTRY_BYTES, MAX_BYTES, StoredArtifacts
from wicketgate.storage.encoding import hashed
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Drop, Kind, Op, Put, Store

pytestmark = pytest.mark.usefixtures("patient_stores")


class OpenStore(Protocol):
    def __call__(self, max_bytes: int = MAX_BYTES) -> StoredArtifacts: ...


@pytest.fixture
def open_store(stores: tuple[str, Callable[[], Store]]) -> OpenStore:
    """Opens the store as one more process does."""
    return lambda max_bytes=MAX_BYTES: StoredArtifacts(stores[1](), max_bytes)


async def test_what_was_put_is_got_with_media_type_and_label(open_store: OpenStore) -> None:
    store = open_store()
    picture = Artifact("image:a:b@1:0123", "image/png", "a picture, “quoted”", b"\x89PNG")
    assert await store.put("ann", picture) == "kept"
    assert await store.get("ann", picture.handle) == picture
    assert await store.get("ann", "image:a:b@1:4567") is None
    again = replace(picture, label="another label")
    await store.put("ann", again)
    assert await store.get("ann", picture.handle) == again


async def test_every_string_is_a_handle_an_owner_and_a_label_of_its_own(open_store: OpenStore) -> None:
    store = open_store()
    strings = ["", "\0", "a", "a\0b", "A", "a ", "'; --", "\ud800", "\ud83d\ude00", "😀", "e\u0301", "x" * 9_999]
    kept = {
        (owner, one): Artifact(one, owner, owner + one, f"{number}".encode())
        for owner in strings
        for number, one in enumerate(strings)
    }
    for (owner, _), each in kept.items():
        assert await store.put(owner, each) == "kept"
    for (owner, one), each in kept.items():
        assert await store.get(owner, one) == each


@requirement("EXEC-29")
async def test_the_handle_of_another_actor_does_not_exist(open_store: OpenStore) -> None:
    store = open_store()
    await store.put("ann", artifact("one"))
    assert await held(store, "bob", "one") == []
    await store.put("bob", artifact("one"))
    assert await held(store, "ann", "one") == await held(store, "bob", "one") == ["one"]


@requirement("EXEC-30")
async def test_an_artifact_ends_at_its_age_even_when_used() -> None:
    now = 1_000.0
    store = StoredArtifacts(MemoryStore(lambda: now), max_age_s=60)
    await store.put("ann", artifact("one"))
    now += 59
    assert await held(store, "ann", "one") == ["one"]
    now += 1
    assert await held(store, "ann", "one") == []


@requirement("EXEC-30")
async def test_what_was_put_longest_ago_makes_room(open_store: OpenStore) -> None:
    store = open_store(max_bytes=room_for(3))
    for name in ("one", "two", "three", "one", "four"):
        await store.put("ann", artifact(name))
    assert await held(store, "ann", "one", "two", "three", "four") == ["one", "three", "four"]


@requirement("EXEC-31")
async def test_more_than_half_of_the_store_is_refused_and_pushes_nothing_out(
    open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(max_bytes=room_for(4))
    for name in ("one", "two", "three", "four"):
        await store.put("ann", artifact(name))
    half = room_for(2) - room_for(1, 0)
    assert await store.put("ann", artifact("huge", half + 1)) == "too_large"
    assert "not kept" in caplog.text
    assert await held(store, "ann", "one", "two", "three", "four", "huge") == ["one", "two", "three", "four"]
    assert await store.put("ann", artifact("large", half)) == "kept"
    assert await held(store, "ann", "one", "two", "three", "four", "large") == ["three", "four", "large"]


async def test_a_flood_of_empty_artifacts_is_bounded(open_store: OpenStore) -> None:
    store = open_store(max_bytes=20 * ENTRY_BYTES)
    names = [str(number) for number in range(100)]
    for name in names:
        await store.put("ann", artifact(name, 0))
    assert 10 <= len(await held(store, "ann", *names)) <= 20


async def test_long_labels_count(open_store: OpenStore) -> None:
    store = open_store(max_bytes=100_000)
    for number in range(10):
        assert await store.put("ann", Artifact(str(number), "text/plain", "😀" * 10_000, b"")) == "kept"
    assert [number for number in range(10) if await store.get("ann", str(number))] == [8, 9]


@requirement("EXEC-30")
async def test_who_floods_the_store_pushes_out_only_their_own(open_store: OpenStore) -> None:
    store = open_store(max_bytes=room_for(10))
    for name in ("one", "two", "three"):
        await store.put("ann", artifact(name))
    flood = [str(number) for number in range(50)]
    for owner in ("bob", "cyd"):
        for name in flood:
            await store.put(owner, artifact(name))
    assert await held(store, "ann", "one", "two", "three") == ["one", "two", "three"]
    assert len(await held(store, "bob", *flood)) + len(await held(store, "cyd", *flood)) == 7


def whole(head: bytes, data: bytes = b"") -> bytes:
    return len(head).to_bytes(4) + head + data


@requirement("EXEC-131")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xffnothing",
        whole(b'["text/plain","full text"]', b"data"),
        whole(b'["text/plain","full text",5]', b"data"),
        whole(b'["text/plain",1,4]', b"data"),
        whole(b'[null,"full text",4]', b"data"),
        whole(b"4", b"data"),
        whole(b"\xff", b"data"),
    ],
)
async def test_a_damaged_artifact_is_refused_and_logged_until_it_is_put_again(
    stores: tuple[str, Callable[[], Store]], caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    shared = stores[1]()
    store = StoredArtifacts(shared)
    key = f"{hashed('ann')}.{hashed(handle('one'))}"
    await shared.step([Put(Kind("artifact", most_bytes=MAX_BYTES, gives="row"), key, data, hashed("ann"))])
    with pytest.raises(ViewFailed) as refused:
        await store.get("ann", handle("one"))
    assert refused.value.path == handle("one")
    assert f"damaged row (artifact '{key}')" in caplog.text
    await store.put("ann", artifact("one"))
    assert await store.get("ann", handle("one")) == artifact("one")


@requirement("EXEC-53", "OPS-192", "OPS-193")
async def test_an_outage_is_logged_once_and_loses_only_what_would_be_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    shared, fail = FailingStore(), FailModes()
    store = StoredArtifacts(shared, fail=fail)
    await store.put("ann", artifact("one"))
    shared.unavailable = True
    assert [await store.put("ann", artifact("two")) for _ in range(3)] == ["failed"] * 3
    with pytest.raises(ViewFailed):
        await store.get("ann", handle("one"))
    assert [record.getMessage() for record in caplog.records] == ["artifact of 100 bytes not kept: it is unavailable"]
    assert fail.degraded(away=False) == {"artifacts": "partial"}
    assert fail.counts == {("artifacts", "partial"): 4}
    shared.unavailable = False
    assert await store.put("ann", artifact("two")) == "kept"
    assert fail.degraded(away=False) == {}
    assert await held(store, "ann", "one", "two") == ["one", "two"]


@requirement("EXEC-27")
async def test_the_event_loop_copies_no_large_artifact(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def watched(copy: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            threads.append(threading.get_ident())
            return copy(*given)

        return run

    for name in ("_packed", "_unpacked"):
        monkeypatch.setattr(artifacts, name, watched(getattr(artifacts, name)))
    store = StoredArtifacts(MemoryStore())
    large = sealed(b"x" * 2_000_000)
    await store.put("ann", large)
    assert await store.get("ann", large.handle) == large
    assert len(threads) == 2
    assert threading.get_ident() not in threads


LARGE = Kind("large", most_rows=1, gives="row")


@requirement("EXEC-27")
@pytest.mark.parametrize(
    "ops",
    [
        [Put(LARGE, "a", b"small")],
        [Put(LARGE, "a", b"")],
        [Drop(LARGE, "a")],
        [Put(LARGE, "another", b"")],
        [Put(LARGE, "a", b"", life_s=0.0)],
    ],
)
async def test_memory_keeps_large_data_as_it_came_and_no_longer_than_its_row(ops: Sequence[Op]) -> None:
    data = random.Random(1).randbytes(1_000_000)
    alone = sys.getrefcount(data)
    store = MemoryStore()
    await store.step([Put(LARGE, "a", data)])
    row = await store.get(LARGE, "a")
    assert row is not None
    assert row.data is data
    del row
    assert sys.getrefcount(data) == alone + 1
    await store.step(ops)
    await store.beat("process")
    assert sys.getrefcount(data) == alone
