"""The contract that every store of learned words keeps (BROWSE-44, BROWSE-48, BROWSE-49).

A store is tested by a class that inherits this one, beside a fixture ``open_store`` that makes it and closes it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from tests.support.requirement import requirement
from wicketgate.catalog.learned_words import HALF_LIFE_S, MAX_ACTOR_TOOLS, MAX_SIZE, Lesson, ToolWords
from wicketgate.ports import LearnedRows, LearnedStore


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class OpenLearned(Protocol):
    def __call__(
        self, *, now: Callable[[], float] = ..., max_size: int = MAX_SIZE, max_actor_tools: int = MAX_ACTOR_TOOLS
    ) -> LearnedStore: ...


def lesson(actor: str, tool_id: str, words: str, *, first: bool = False) -> Lesson:
    return Lesson(actor, tool_id, tuple(words.split()), first)


async def learned(store: LearnedStore, *lessons: Lesson, since: int = 0) -> LearnedRows:
    rows = await store.learn(lessons, since)
    assert rows is not None
    return rows


async def held(store: LearnedStore) -> dict[tuple[str, str], ToolWords]:
    rows = await learned(store)
    return {(actor, tool_id): words for actor, tool_id, words in rows.rows}


class LearnedStoreContract:
    @requirement("BROWSE-44")
    async def test_lessons_are_counted_by_actor_and_tool(self, open_store: OpenLearned) -> None:
        store = open_store()
        await learned(
            store, lesson("ann", "a:x", "film new"), lesson("ann", "a:x", "film"), lesson("bob", "a:x", "play")
        )
        await learned(store, lesson("ann", "a:x", "film song", first=True), lesson("ann", "a:y", ""))
        found = await held(store)
        assert found.keys() == {("ann", "a:x"), ("bob", "a:x"), ("ann", "a:y")}
        assert found["ann", "a:x"].runs == 3
        assert dict(found["ann", "a:x"].counts) == {"film": 3.0, "new": 1.0}

    @requirement("BROWSE-44")
    async def test_only_what_changed_since_a_version_is_given(self, open_store: OpenLearned) -> None:
        store = open_store()
        first = await learned(store, lesson("ann", "a:x", "film"))
        second = await learned(store, lesson("bob", "a:x", "play"), since=first.version)
        assert [row[:2] for row in second.rows] == [("bob", "a:x")]
        assert not second.whole
        assert (await learned(store, since=second.version)).rows == []

    @requirement("BROWSE-44")
    async def test_any_string_is_an_actor_a_tool_and_a_word(self, open_store: OpenLearned) -> None:
        store = open_store()
        odd = ["", "\0", "é", "\ud800", "x" * 5_000, "天気", "'; --", "100%", "a b"]
        await learned(store, *(Lesson(name, name, (name,)) for name in odd))
        found = await held(store)
        assert {(name, name): {name: 1.0} for name in odd} == {key: dict(words.counts) for key, words in found.items()}

    @requirement("BROWSE-49")
    async def test_counts_fade_with_the_clock_of_the_store(self, open_store: OpenLearned) -> None:
        clock = Clock()
        store = open_store(now=clock)
        await learned(store, *(lesson("ann", "a:x", "film") for _ in range(4)))
        clock.now += HALF_LIFE_S
        assert store.now() == clock.now
        await learned(store, lesson("ann", "a:x", "play"))
        found = (await held(store))["ann", "a:x"]
        assert (found.runs, dict(found.counts), found.at) == (3.0, {"film": 2.0, "play": 1.0}, clock.now)

    @requirement("BROWSE-48")
    async def test_one_actor_pushes_out_no_other(self, open_store: OpenLearned) -> None:
        clock = Clock()
        store = open_store(now=clock, max_size=100)
        await learned(store, *(lesson("ann", f"a:{number}", "film play song") for number in range(5)))
        for number in range(200):
            clock.now += 1
            await learned(store, lesson("mallory", f"m:{number}", f"w{number} v{number}"))
        found = await held(store)
        assert {key for key in found if key[0] == "ann"} == {("ann", f"a:{number}") for number in range(5)}
        assert sum(words.size for words in found.values()) <= 100
        assert ("mallory", "m:199") in found
        assert ("mallory", "m:0") not in found

    @requirement("BROWSE-48")
    async def test_an_actor_has_so_many_tools_and_no_more(self, open_store: OpenLearned) -> None:
        clock = Clock()
        store = open_store(now=clock, max_actor_tools=10)
        known = 0
        for number in range(30):
            clock.now += 1
            rows = await learned(store, lesson("ann", f"a:{number}", "film"), since=known)
            known = rows.version
        found = await held(store)
        assert len(found) <= 10
        assert ("ann", "a:29") in found

    @requirement("BROWSE-48", "OPS-54")
    async def test_a_reader_learns_what_was_taken_out(self, open_store: OpenLearned) -> None:
        store = open_store()
        before = await learned(
            store, lesson("ann", "a:x", "film"), lesson("bob", "a:x", "film"), lesson("bob", "b:y", "z")
        )
        assert await store.reset(actor="bob", tool_id="a:x") == 1
        after = await learned(store, since=before.version)
        assert after.whole
        assert sorted(row[:2] for row in after.rows) == [("ann", "a:x"), ("bob", "b:y")]
        assert await store.reset(tool_id="a:x") == 1
        assert await store.reset(actor="nobody") == 0
        assert await store.reset() == 1
        assert await held(store) == {}
        again = await learned(store, lesson("ann", "a:x", "film"))
        assert [row[:2] for row in again.rows] == [("ann", "a:x")]

    async def test_many_at_once_are_all_counted(self, open_store: OpenLearned) -> None:
        store = open_store()
        await asyncio.gather(*(learned(store, lesson("ann", "a:x", "film")) for _ in range(30)))
        assert (await held(store))["ann", "a:x"].counts["film"] == 30
