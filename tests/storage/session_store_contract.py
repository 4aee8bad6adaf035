"""The contract that every store of seen cards keeps (BROWSE-20 to BROWSE-27, BROWSE-71).

A store is tested by a class that inherits this one, beside a fixture ``open_sessions`` that makes it with bounds, and
gives a way to let time pass.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.support.requirement import requirement
from wicketgate.call_state import SessionStore
from wicketgate.catalog.card import ChoiceCard, cache_order
from wicketgate.ports import session_key
from wicketgate.storage.memory_store import SESSION_BOUNDS, SessionBounds

MARKER = "__cache_breakpoint__"


def card(name: str, score: float | None = None) -> ChoiceCard:
    return ChoiceCard(f"a:{name}#00000000", name, "", (), "tool", "a", has_schema=False, score=score)


@dataclass
class Sessions:
    store: SessionStore
    later: Callable[[float], Awaitable[None]]

    async def sent(
        self, session: str, cards: Sequence[ChoiceCard], digests: Mapping[str, str] | None = None
    ) -> tuple[ChoiceCard, ...]:
        ids = [card.id for card in cards]
        sent = await self.store.update(session, ids, lambda seen: cache_order(seen, cards, digests or {}))
        # No two of a session's steps are at the same moment, as no two of Redis are.
        await self.later(0.001)
        return sent

    async def order(self, session: str, *names: str) -> list[str]:
        return [shown.name for shown in await self.sent(session, [card(name) for name in names])]

    async def hydrated(self, session: str, name: str, digest: str = "") -> None:
        tool_id = card(name).id
        await self.store.update(session, [tool_id], lambda seen: (None, seen.hydrated(tool_id, digest)))
        await self.later(0.001)


OpenSessions = Callable[[SessionBounds], Sessions]


class SessionStoreContract:
    @requirement("BROWSE-25", "BROWSE-71")
    async def test_each_session_has_its_own_memory_until_it_was_long_unused(self, open_sessions: OpenSessions) -> None:
        here = open_sessions(SessionBounds(max_age_s=1_000))
        await here.order("one", "a")
        assert await here.order("one", "a", "b") == ["a", MARKER, "b"]
        assert await here.order("two", "a", "b") == ["a", "b"]
        await here.later(900)
        await here.hydrated("one", "c")
        await here.later(900)
        assert await here.order("one", "c", "d") == ["c", MARKER, "d"]
        await here.later(900)
        assert await here.order("one", "a", "d") == ["a", "d"], "a look is a use"
        await here.later(1_100)
        assert await here.order("one", "c", "e") == ["c", "e"]

    @requirement("BROWSE-22", "BROWSE-26", "BROWSE-71")
    async def test_a_card_comes_back_byte_for_byte(self, open_sessions: OpenSessions) -> None:
        here = open_sessions(SESSION_BOUNDS)
        tool = ChoiceCard("a:é#1", "é \ud800", "wörds", ("x", "y"), "tool", "a", has_schema=True, score=1 / 3)
        level = ChoiceCard("/a", "a", "2 tools", (), "internal", "a", has_schema=False, score=0.1)
        cards, digests = [tool, level], {tool.id: "d1"}
        assert set(await here.sent("s", cards, digests)) == set(cards)
        later = [replace(each, score=0.9) for each in cards]
        assert set(await here.sent("s", later, digests)) == set(cards)
        changed = [replace(tool, description="others", score=0.5), replace(level, description="3 tools")]
        assert [await here.sent("s", [each], {tool.id: "d2"}) for each in changed] == [(each,) for each in changed]
        assert set(await here.sent("s", changed, {tool.id: "d2"})) == set(changed)

    @requirement("BROWSE-23", "BROWSE-71")
    async def test_a_tool_that_was_hydrated_gets_its_card_when_it_is_first_sent(
        self, open_sessions: OpenSessions
    ) -> None:
        here = open_sessions(SESSION_BOUNDS)
        await here.hydrated("s", "b", "d1")
        await here.hydrated("s", "b", "d1")
        sent = await here.sent("s", [card("a", 0.1), card("b", 0.2)], {card("b").id: "d1"})
        assert [each.name for each in sent] == ["b", MARKER, "a"]
        assert (await here.sent("s", [card("b", 0.7)], {card("b").id: "d1"})) == (card("b", 0.2),)

    @requirement("BROWSE-25", "BROWSE-71")
    async def test_the_session_longest_unused_goes_first_by_number_and_by_cards(
        self, open_sessions: OpenSessions
    ) -> None:
        here = open_sessions(SessionBounds(max_sessions=2))
        for session in ("one", "two", "one", "three"):
            await here.order(session, "a")
        assert await here.order("one", "a", "b") == ["a", MARKER, "b"]
        assert await here.order("two", "a", "b") == ["a", "b"]

    @requirement("BROWSE-25", "BROWSE-71")
    async def test_the_session_longest_unused_makes_room_for_cards(self, open_sessions: OpenSessions) -> None:
        here = open_sessions(SessionBounds(max_cards=2))
        for session in ("one", "two", "one", "three"):
            await here.order(session, "a")
        assert await here.order("one", "a") == ["a"]
        assert await here.order("two", "a", "b") == ["a", "b"]
        assert await here.order("two", "b", "d", "e", "f") == ["b", MARKER, "d", "e", "f"], "it forgets not itself"
        assert await here.order("two", "a", "f", "g") == ["a", "f", MARKER, "g"]

    @requirement("BROWSE-25", "BROWSE-71")
    async def test_an_actor_that_invents_sessions_pushes_out_only_its_own(self, open_sessions: OpenSessions) -> None:
        here = open_sessions(SessionBounds(max_per_actor=2))
        victim = session_key("mcp", "victim", "s")
        await here.order(victim, "a")
        for number in range(9):
            await here.order(session_key("named", "flooder", str(number)), "a")
        assert MARKER in await here.order(victim, "a", "b")
        for number, remembered in ((8, True), (0, False)):
            shown = await here.order(session_key("named", "flooder", str(number)), "a", "b")
            assert (MARKER in shown) is remembered
