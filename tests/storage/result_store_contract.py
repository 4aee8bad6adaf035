"""The contract that every store of kept results keeps (EXEC-16, EXEC-54).

A store is tested by a class that inherits this one, beside a fixture ``kept`` that gives it with a way to let time
pass. The store takes three results at most.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.requirement import requirement
from wicketgate.call_state import Key, ResultStore

MAX_RESULTS = 3


def key(name: str, actor: str | None = "ann") -> Key:
    return (actor, "never", "", "v1", "a:x@1", "a", "x", name)


def result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"n": 1.5, "é": [None, True, "\ud800"]}}


@dataclass
class Kept:
    store: ResultStore
    later: Callable[[float], Awaitable[None]]

    async def keep(self, name: str, ttl_s: float = 60.0) -> None:
        found = await self.store.get(key(name))
        await self.store.put(key(name), result(name), ttl_s, found.since)

    async def has(self, *names: str) -> list[str]:
        return [name for name in names if await self.got(name) is not None]

    async def got(self, name: str, actor: str | None = "ann") -> Mapping[str, Any] | None:
        return (await self.store.get(key(name, actor))).result


class ResultStoreContract:
    @requirement("EXEC-16", "EXEC-54")
    async def test_a_result_is_given_as_it_came_while_it_is_fresh(self, kept: Kept) -> None:
        assert await kept.got("one") is None
        await kept.keep("one", 600)
        assert await kept.got("one") == result("one")
        assert [await kept.got("one", other) for other in ("bob", None, "")] == [None, None, None]
        await kept.later(300)
        assert await kept.has("one") == ["one"]
        await kept.later(300)
        assert await kept.has("one") == []

    @requirement("EXEC-16", "EXEC-54")
    async def test_the_number_is_bounded_and_the_oldest_goes_first(self, kept: Kept) -> None:
        for name in ("one", "two", "two", "three", "four"):
            await kept.keep(name)
            await kept.later(1)
        assert await kept.has("one", "two", "three", "four") == ["two", "three", "four"]

    @requirement("EXEC-16", "EXEC-54")
    async def test_nothing_is_left_when_it_was_cleared_nor_kept_of_what_was_asked_for_before(self, kept: Kept) -> None:
        await kept.keep("one")
        before = await kept.store.get(key("two"))
        await kept.store.clear()
        assert await kept.has("one") == []
        await kept.store.put(key("two"), result("two"), 60, before.since)
        assert await kept.has("two") == []
        await kept.keep("two")
        assert await kept.has("two") == ["two"]
