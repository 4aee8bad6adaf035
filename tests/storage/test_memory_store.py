from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.storage.artifact_store_contract import ArtifactStoreContract, Clock, OpenStore, artifact, handle
from wicketgate.ports import session_key
from wicketgate.storage.memory_store import MemoryArtifactStore


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    yield partial(MemoryArtifactStore, now=Clock())


class TestMemoryStore(ArtifactStoreContract):
    async def test_closing_it_lets_everything_go(self, open_store: OpenStore) -> None:
        store = open_store()
        await store.put("ann", artifact("one"))
        await store.aclose()
        assert await store.get("ann", handle("one")) is None


def test_no_two_sessions_share_a_key_with_any_names() -> None:
    keys = {
        session_key(*parts)
        for parts in [("run", "a", "b:c"), ("run", "a:b", "c"), ("mcp", "a", "b:c"), ("run", "a", ""), ("run", "", "a")]
    }
    assert len(keys) == 5
