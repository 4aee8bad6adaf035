from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.storage.artifact_store_contract import ArtifactStoreContract, Clock, OpenStore, artifact, handle
from tests.support.requirement import requirement
from wicketgate.catalog.card import ChoiceCard
from wicketgate.ports import session_key
from wicketgate.storage.memory_store import MemoryArtifactStore, MemorySessionStore


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    yield partial(MemoryArtifactStore, now=Clock())


class TestMemoryStore(ArtifactStoreContract):
    async def test_closing_it_lets_everything_go(self, open_store: OpenStore) -> None:
        store = open_store()
        await store.put("ann", artifact("one"))
        await store.aclose()
        assert await store.get("ann", handle("one")) is None


def card(name: str) -> ChoiceCard:
    return ChoiceCard(f"a:{name}#00000000", name, "", (), "tool", "a", has_schema=False)


def names(cards: tuple[ChoiceCard, ...]) -> list[str]:
    return [shown.name for shown in cards]


@requirement("BROWSE-25")
def test_each_session_has_its_own_memory_until_it_was_long_unused() -> None:
    now = [0.0]
    store = MemorySessionStore(lambda: now[0], max_age_s=10)
    store.order("one", [card("a")])
    assert names(store.order("one", [card("a"), card("b")])) == ["a", "__cache_breakpoint__", "b"]
    assert names(store.order("two", [card("a"), card("b")])) == ["a", "b"]
    now[0] = 9.0
    store.hydrated("one", card("c").id)
    now[0] = 18.0
    assert names(store.order("one", [card("c"), card("d")])) == ["c", "__cache_breakpoint__", "d"]
    now[0] = 29.0
    assert names(store.order("one", [card("c"), card("e")])) == ["c", "e"]


@requirement("BROWSE-25")
def test_the_session_longest_unused_goes_first_by_number_and_by_cards() -> None:
    few = MemorySessionStore(lambda: 0.0, max_sessions=2)
    small = MemorySessionStore(lambda: 0.0, max_cards=2)
    for store in (few, small):
        store.order("one", [card("a")])
        store.order("two", [card("a")])
        store.order("one", [card("a")])
        store.order("three", [card("a")])
        assert names(store.order("one", [card("a"), card("b")]))[1] == "__cache_breakpoint__"
        assert "__cache_breakpoint__" not in names(store.order("two", [card("a"), card("b")]))


def test_one_session_alone_may_pass_the_bound_rather_than_forget_itself() -> None:
    store = MemorySessionStore(lambda: 0.0, max_cards=2)
    store.order("one", [card(name) for name in "abc"])
    assert names(store.order("one", [card("a"), card("d")])) == ["a", "__cache_breakpoint__", "d"]


def test_no_two_sessions_share_a_key_with_any_names() -> None:
    keys = {
        session_key(*parts)
        for parts in [("run", "a", "b:c"), ("run", "a:b", "c"), ("mcp", "a", "b:c"), ("run", "a", ""), ("run", "", "a")]
    }
    assert len(keys) == 5


@requirement("BROWSE-25")
def test_an_actor_that_invents_sessions_pushes_out_only_its_own() -> None:
    store = MemorySessionStore(lambda: 0.0, max_per_actor=2)
    victim = session_key("mcp", "victim", "s")
    store.order(victim, [card("a")])
    for number in range(100):
        store.order(session_key("named", "flooder", str(number)), [card("a")])
    assert "__cache_breakpoint__" in names(store.order(victim, [card("a"), card("b")]))
    for number, remembered in ((0, False), (99, True)):
        shown = store.order(session_key("named", "flooder", str(number)), [card("a"), card("b")])
        assert ("__cache_breakpoint__" in names(shown)) is remembered
