"""Results that a process keeps, at most three of them here (EXEC-16)."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.call_state import Key
from wicketgate.storage.memory_results import MemoryResultStore


def key(name: str, actor: str | None = "ann") -> Key:
    return (actor, "never", "", "v1", "a:x@1", "a", "x", name)


def result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"n": 1.5, "é": [None, True, "\ud800"]}}


class Kept:
    def __init__(self) -> None:
        self.now = 0.0
        self.store = MemoryResultStore(lambda: self.now, max_results=3)

    def keep(self, name: str, ttl_s: float = 60.0) -> None:
        found = self.store.get(key(name))
        self.store.put(key(name), result(name), ttl_s, found.since)

    def has(self, *names: str) -> list[str]:
        return [name for name in names if self.got(name) is not None]

    def got(self, name: str, actor: str | None = "ann") -> Mapping[str, Any] | None:
        return self.store.get(key(name, actor)).result


@pytest.fixture
def kept() -> Kept:
    return Kept()


@requirement("EXEC-16")
def test_a_result_is_given_as_it_came_while_it_is_fresh(kept: Kept) -> None:
    assert kept.got("one") is None
    kept.keep("one", 600)
    assert kept.got("one") == result("one")
    assert [kept.got("one", other) for other in ("bob", None, "")] == [None, None, None]
    kept.now += 300
    assert kept.has("one") == ["one"]
    kept.now += 300
    assert kept.has("one") == []


@requirement("EXEC-16")
def test_the_number_is_bounded_and_the_oldest_goes_first(kept: Kept) -> None:
    for name in ("one", "two", "two", "three", "four"):
        kept.keep(name)
        kept.now += 1
    assert kept.has("one", "two", "three", "four") == ["two", "three", "four"]


@requirement("EXEC-16")
def test_nothing_is_left_when_it_was_cleared_nor_kept_of_what_was_asked_for_before(kept: Kept) -> None:
    kept.keep("one")
    before = kept.store.get(key("two"))
    kept.store.clear()
    assert kept.has("one") == []
    kept.store.put(key("two"), result("two"), 60, before.since)
    assert kept.has("two") == []
    kept.keep("two")
    assert kept.has("two") == ["two"]
