import logging

import pytest

from app.edges.memory_store import ENTRY_BYTES, MemoryArtifactStore
from app.gateway.ports import Artifact, ArtifactStore
from tests.support.requirement import requirement


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def artifact(name: str, size_bytes: int = 100) -> Artifact:
    return Artifact(f"text:a:b@1:{name}", "text/plain", name, b"x" * size_bytes)


def room_for(count: int, size_bytes: int = 100) -> int:
    return count * (size_bytes + ENTRY_BYTES)


async def test_what_was_put_is_got() -> None:
    store: ArtifactStore = MemoryArtifactStore()
    await store.put("ann", artifact("one"))
    assert await store.get("ann", "text:a:b@1:one") == artifact("one")
    assert await store.get("ann", "text:a:b@1:two") is None


@requirement("gateway 98", "DESIGN §3 Results")
async def test_the_handle_of_another_actor_does_not_exist() -> None:
    store = MemoryArtifactStore()
    await store.put("ann", artifact("one"))
    assert await store.get("bob", "text:a:b@1:one") is None


async def test_an_artifact_ends_at_its_age_even_when_used() -> None:
    clock = Clock()
    store = MemoryArtifactStore(max_age_s=60, now=clock)
    await store.put("ann", artifact("one"))
    clock.now = 59
    assert await store.get("ann", "text:a:b@1:one") is not None
    clock.now = 60
    assert await store.get("ann", "text:a:b@1:one") is None


async def test_putting_again_renews_the_age() -> None:
    clock = Clock()
    store = MemoryArtifactStore(max_age_s=60, now=clock)
    await store.put("ann", artifact("one"))
    clock.now = 40
    await store.put("ann", artifact("one"))
    clock.now = 90
    assert await store.get("ann", "text:a:b@1:one") == artifact("one")


async def test_the_least_recently_used_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryArtifactStore(max_bytes=room_for(2))
    await store.put("ann", artifact("one"))
    await store.put("ann", artifact("two"))
    await store.get("ann", "text:a:b@1:one")
    with caplog.at_level(logging.INFO, "wicketgate.artifacts"):
        await store.put("bob", artifact("three"))
    assert await store.get("ann", "text:a:b@1:one") is not None
    assert await store.get("ann", "text:a:b@1:two") is None
    assert await store.get("bob", "text:a:b@1:three") is not None
    assert "0 by age, 1 for space" in caplog.text


async def test_expired_artifacts_give_their_room_back(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store = MemoryArtifactStore(max_bytes=room_for(2), max_age_s=60, now=clock)
    await store.put("ann", artifact("one"))
    await store.put("ann", artifact("two"))
    clock.now = 60
    with caplog.at_level(logging.INFO, "wicketgate.artifacts"):
        await store.put("ann", artifact("three"))
        await store.put("ann", artifact("four"))
    assert "2 by age, 0 for space" in caplog.text
    assert await store.get("ann", "text:a:b@1:three") is not None


async def test_putting_the_same_again_takes_no_more_room() -> None:
    store = MemoryArtifactStore(max_bytes=room_for(2))
    await store.put("ann", artifact("one"))
    for _ in range(5):
        await store.put("ann", artifact("two"))
    assert await store.get("ann", "text:a:b@1:one") is not None


async def test_one_larger_than_the_store_is_not_kept_and_pushes_nothing_out(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryArtifactStore(max_bytes=room_for(1))
    await store.put("ann", artifact("one"))
    await store.put("ann", artifact("huge", 10_000))
    assert await store.get("ann", "text:a:b@1:huge") is None
    assert await store.get("ann", "text:a:b@1:one") is not None
    assert "not kept" in caplog.text
