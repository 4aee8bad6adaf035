"""The contract that every artifact store keeps (EXEC-28 to EXEC-31).

A store is tested by a class that inherits this one, beside a fixture ``open_store`` that makes it and closes it.
"""

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable
from typing import Protocol

import pytest

from tests.support.requirement import requirement
from wicketgate.ports import Artifact, ArtifactStore
from wicketgate.storage.memory_store import ENTRY_BYTES, MAX_AGE_S, MAX_BYTES, size_bytes

LOGGER = "wicketgate.artifacts"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class OpenStore(Protocol):
    def __call__(
        self, *, max_bytes: int = MAX_BYTES, max_age_s: float = MAX_AGE_S, now: Callable[[], float] = ...
    ) -> ArtifactStore: ...


def artifact(name: str, length: int = 100) -> Artifact:
    return Artifact(handle(name), "text/plain", "full text", name.encode()[:1] * length)


def handle(name: str) -> str:
    return f"text:a:b@1:{name:>5}"


def sealed(data: bytes) -> Artifact:
    """Under a handle that is made of its content, as real ones are."""
    return Artifact(f"text:a:b@1:{hashlib.sha256(data).hexdigest()[:16]}", "application/octet-stream", "data", data)


def room_for(count: int, length: int = 100) -> int:
    return count * size_bytes(artifact("one", length))


async def held(store: ArtifactStore, owner: str, *names: str) -> list[str]:
    """Those of *names* that are there; asking is a use of each."""
    return [name for name in names if await store.get(owner, handle(name)) is not None]


class ArtifactStoreContract:
    async def test_what_was_put_is_got_with_media_type_and_label(self, open_store: OpenStore) -> None:
        store = open_store()
        picture = Artifact("image:a:b@1:0123", "image/png", "a picture, “quoted”", b"\x89PNG")
        assert await store.put("ann", picture) == "kept"
        assert await store.get("ann", picture.handle) == picture
        assert await store.get("ann", "image:a:b@1:4567") is None

    @pytest.mark.parametrize("length", [0, 1, 2**18 - 1, 2**18, 2**18 + 1, 3 * 2**18, 20 * 2**20])
    async def test_bytes_come_back_exactly(self, open_store: OpenStore, length: int) -> None:
        store = open_store()
        data = random.Random(length).randbytes(length)
        assert await store.put("ann", sealed(data)) == "kept"
        found = await store.get("ann", sealed(data).handle)
        assert found is not None
        assert type(found.data) is bytes
        assert found.data == data

    async def test_every_string_is_a_handle_an_owner_and_a_label_of_its_own(self, open_store: OpenStore) -> None:
        store = open_store()
        strings = [
            "",
            "\0",
            "a",
            "a\0",
            "a\0b",
            "A",
            "a ",
            "%",
            "'; --",
            "\ud800",
            "\ud83d\ude00",
            "😀",
            "é",
            "e\u0301",
            "x" * 9_999,
        ]
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
    async def test_the_handle_of_another_actor_does_not_exist(self, open_store: OpenStore) -> None:
        store = open_store()
        await store.put("ann", artifact("one"))
        assert await held(store, "bob", "one") == []
        await store.put("bob", artifact("one"))
        assert await held(store, "ann", "one") == await held(store, "bob", "one") == ["one"]

    @requirement("EXEC-30")
    async def test_an_artifact_ends_at_its_age_even_when_used(self, open_store: OpenStore) -> None:
        clock = Clock()
        store = open_store(max_age_s=60, now=clock)
        await store.put("ann", artifact("one"))
        clock.now += 59
        assert await held(store, "ann", "one") == ["one"]
        clock.now += 1
        assert await held(store, "ann", "one") == []

    async def test_putting_again_renews_the_age(self, open_store: OpenStore) -> None:
        clock = Clock()
        store = open_store(max_age_s=60, now=clock)
        await store.put("ann", artifact("one"))
        clock.now += 40
        assert await store.put("ann", artifact("one")) == "kept"
        clock.now += 50
        await store.put("ann", artifact("two"))
        assert await store.get("ann", handle("one")) == artifact("one")
        clock.now += 10
        assert await held(store, "ann", "one", "two") == ["two"]

    @requirement("EXEC-28")
    async def test_putting_again_takes_no_more_room(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=room_for(2))
        await store.put("ann", artifact("one"))
        for _ in range(5):
            await store.put("ann", artifact("two"))
        assert await held(store, "ann", "one", "two") == ["one", "two"]

    async def test_putting_again_under_another_label_shows_the_new_one(self, open_store: OpenStore) -> None:
        store = open_store()
        first, second = Artifact("h", "text/plain", "a", b"x"), Artifact("h", "text/csv", "b", b"x")
        await store.put("ann", first)
        await store.put("ann", second)
        assert await store.get("ann", "h") == second

    @requirement("EXEC-30")
    async def test_the_least_recently_used_makes_room(
        self, open_store: OpenStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = open_store(max_bytes=room_for(3))
        for name in ("one", "two", "three"):
            await store.put("ann", artifact(name))
        await store.get("ann", handle("one"))
        await store.put("ann", artifact("two"))
        with caplog.at_level(logging.INFO, LOGGER):
            await store.put("ann", artifact("four"))
        assert f"0 by age, 1 for space, {room_for(1)} bytes" in caplog.text
        assert await held(store, "ann", "one", "two", "three", "four") == ["one", "two", "four"]
        await store.put("ann", artifact("five"))
        assert await held(store, "ann", "one", "two", "four", "five") == ["two", "four", "five"]

    async def test_expired_artifacts_give_their_room_back(
        self, open_store: OpenStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock()
        store = open_store(max_bytes=room_for(3), max_age_s=60, now=clock)
        await store.put("ann", artifact("one"))
        await store.put("bob", artifact("two"))
        clock.now += 60
        with caplog.at_level(logging.INFO, LOGGER):
            for name in ("three", "four", "five"):
                await store.put("ann", artifact(name))
        assert [record.getMessage() for record in caplog.records] == [
            f"artifacts evicted: 2 by age, 0 for space, {room_for(2)} bytes"
        ]
        assert await held(store, "ann", "three", "four", "five") == ["three", "four", "five"]

    @requirement("EXEC-31")
    async def test_more_than_half_of_the_store_is_refused_and_pushes_nothing_out(
        self, open_store: OpenStore, caplog: pytest.LogCaptureFixture
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

    async def test_a_flood_of_empty_artifacts_is_bounded(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=20 * ENTRY_BYTES)
        names = [str(number) for number in range(100)]
        for name in names:
            await store.put("ann", artifact(name, 0))
        assert 10 <= len(await held(store, "ann", *names)) <= 20

    async def test_long_labels_count(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=100_000)
        for number in range(10):
            assert await store.put("ann", Artifact(str(number), "text/plain", "😀" * 10_000, b"")) == "kept"
        assert [number for number in range(10) if await store.get("ann", str(number))] == [8, 9]

    @requirement("EXEC-30")
    async def test_who_floods_the_store_pushes_out_only_their_own(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=room_for(10))
        for name in ("one", "two", "three"):
            await store.put("ann", artifact(name))
        flood = [str(number) for number in range(50)]
        for owner in ("bob", "cyd"):
            for name in flood:
                await store.put(owner, artifact(name))
        assert await held(store, "ann", "one", "two", "three") == ["one", "two", "three"]
        assert len(await held(store, "bob", *flood)) + len(await held(store, "cyd", *flood)) == 7

    @requirement("EXEC-30")
    async def test_who_is_alone_may_fill_the_store_and_gives_way_to_another(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=room_for(6))
        names = [str(number) for number in range(6)]
        for name in names:
            await store.put("ann", artifact(name))
        assert await held(store, "ann", *names) == names
        for name in names:
            await store.put("bob", artifact(name))
        assert await held(store, "ann", *names) == await held(store, "bob", *names) == names[3:]

    async def test_between_equals_who_puts_gives_way(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=room_for(5))
        for owner, name in (("bob", "one"), ("bob", "two"), ("cyd", "one"), ("cyd", "two"), ("ann", "one")):
            await store.put(owner, artifact(name))
        await store.put("ann", artifact("two"))
        assert await held(store, "bob", "one", "two") == await held(store, "cyd", "one", "two") == ["one", "two"]
        assert await held(store, "ann", "one", "two") == ["two"]

    async def test_a_large_artifact_leaves_others_half_of_the_store(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=room_for(8))
        for owner in ("ann", "bob"):
            for name in ("one", "two", "three", "four"):
                await store.put(owner, artifact(name))
        half = room_for(4) - room_for(1, 0)
        for name in ("a", "b", "c"):
            assert await store.put("cyd", artifact(name, half)) == "kept"
        assert await held(store, "ann", "one", "two", "three", "four") == ["three", "four"]
        assert await held(store, "bob", "one", "two", "three", "four") == ["three", "four"]
        assert await held(store, "cyd", "a", "b", "c") == ["c"]

    async def test_puts_and_gets_at_the_same_time_do_not_mix(self, open_store: OpenStore) -> None:
        store = open_store()
        chance = random.Random(1)
        pieces = [sealed(chance.randbytes(chance.choice([0, 10, 5_000, 600_000]))) for _ in range(40)]

        async def round_trip(number: int) -> None:
            own, owner = pieces[number], f"actor-{number % 7}"
            assert await store.put(owner, own) == "kept"
            assert await store.get(owner, own.handle) == own
            again, found = await asyncio.gather(store.put(owner, own), store.get(owner, own.handle))
            assert (again, found) == ("kept", own)

        await asyncio.gather(*map(round_trip, range(len(pieces))))
        for number, own in enumerate(pieces):
            assert await store.get(f"actor-{number % 7}", own.handle) == own

    async def test_what_is_read_while_the_store_overflows_is_whole_or_gone(self, open_store: OpenStore) -> None:
        store = open_store(max_bytes=6_000)
        pieces = [sealed(bytes([number]) * 900) for number in range(250)]
        put = 0

        async def write() -> None:
            nonlocal put
            for own in pieces:
                assert await store.put("ann", own) == "kept"
                put += 1

        async def read(ago: int) -> None:
            while put < len(pieces):
                own = pieces[max(put - ago, 0)]
                assert await store.get("ann", own.handle) in (None, own)
                await asyncio.sleep(0)

        await asyncio.gather(write(), *map(read, (1, 3, 4, 5)))
        assert await store.get("ann", pieces[-1].handle) == pieces[-1]
