"""Seen cards in the memory of a process (BROWSE-20 to BROWSE-27)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.support.requirement import requirement
from wicketgate.catalog.card import ChoiceCard, cache_order
from wicketgate.ports import session_key
from wicketgate.storage.seen_cards import SESSION_BOUNDS, MemorySessionStore, SessionBounds

MARKER = "__cache_breakpoint__"


def card(name: str, score: float | None = None) -> ChoiceCard:
    return ChoiceCard(f"a:{name}#00000000", name, "", (), "tool", "a", has_schema=False, score=score)


class Sessions:
    def __init__(self, bounds: SessionBounds = SESSION_BOUNDS) -> None:
        self.now = 1_000.0
        self._store = MemorySessionStore(lambda: self.now, bounds)

    def sent(
        self, session: str, cards: Sequence[ChoiceCard], digests: Mapping[str, str] | None = None
    ) -> tuple[ChoiceCard, ...]:
        return self._store.update(session, lambda seen: cache_order(seen, cards, digests or {}))

    def order(self, session: str, *names: str) -> list[str]:
        return [shown.name for shown in self.sent(session, [card(name) for name in names])]

    def hydrated(self, session: str, name: str, digest: str = "") -> None:
        self._store.update(session, lambda seen: (None, seen.hydrated(card(name).id, digest)))


@requirement("BROWSE-25")
def test_each_session_has_its_own_memory_until_it_was_long_unused() -> None:
    here = Sessions(SessionBounds(max_age_s=1_000))
    here.order("one", "a")
    assert here.order("one", "a", "b") == ["a", MARKER, "b"]
    assert here.order("two", "a", "b") == ["a", "b"]
    here.now += 900
    here.hydrated("one", "c")
    here.now += 900
    assert here.order("one", "c", "d") == ["c", MARKER, "d"]
    here.now += 900
    assert here.order("one", "a", "d") == ["a", "d"], "a look is a use"
    here.now += 1_100
    assert here.order("one", "c", "e") == ["c", "e"]


@requirement("BROWSE-22", "BROWSE-26")
def test_a_card_comes_back_byte_for_byte() -> None:
    here = Sessions()
    tool = ChoiceCard("a:é#1", "é \ud800", "wörds", ("x", "y"), "tool", "a", has_schema=True, score=1 / 3)
    level = ChoiceCard("/a", "a", "2 tools", (), "internal", "a", has_schema=False, score=0.1)
    cards, digests = [tool, level], {tool.id: "d1"}
    assert set(here.sent("s", cards, digests)) == set(cards)
    later = [replace(each, score=0.9) for each in cards]
    assert set(here.sent("s", later, digests)) == set(cards)
    changed = [replace(tool, description="others", score=0.5), replace(level, description="3 tools")]
    assert [here.sent("s", [each], {tool.id: "d2"}) for each in changed] == [(each,) for each in changed]
    assert set(here.sent("s", changed, {tool.id: "d2"})) == set(changed)


@requirement("BROWSE-23")
def test_a_tool_that_was_hydrated_gets_its_card_when_it_is_first_sent() -> None:
    here = Sessions()
    here.hydrated("s", "b", "d1")
    here.hydrated("s", "b", "d1")
    sent = here.sent("s", [card("a", 0.1), card("b", 0.2)], {card("b").id: "d1"})
    assert [each.name for each in sent] == ["b", MARKER, "a"]
    assert (here.sent("s", [card("b", 0.7)], {card("b").id: "d1"})) == (card("b", 0.2),)


@requirement("BROWSE-25")
def test_the_session_longest_unused_goes_first_by_number_and_by_cards() -> None:
    here = Sessions(SessionBounds(max_sessions=2))
    for session in ("one", "two", "one", "three"):
        here.order(session, "a")
    assert here.order("one", "a", "b") == ["a", MARKER, "b"]
    assert here.order("two", "a", "b") == ["a", "b"]


@requirement("BROWSE-25")
def test_the_session_longest_unused_makes_room_for_cards() -> None:
    here = Sessions(SessionBounds(max_cards=2))
    for session in ("one", "two", "one", "three"):
        here.order(session, "a")
    assert here.order("one", "a") == ["a"]
    assert here.order("two", "a", "b") == ["a", "b"]
    assert here.order("two", "b", "d", "e", "f") == ["b", MARKER, "d", "e", "f"], "it forgets not itself"
    assert here.order("two", "a", "f", "g") == ["a", "f", MARKER, "g"]


@requirement("BROWSE-25")
def test_an_actor_that_invents_sessions_pushes_out_only_its_own() -> None:
    here = Sessions(SessionBounds(max_per_actor=2))
    victim = session_key("mcp", "victim", "s")
    here.order(victim, "a")
    for number in range(9):
        here.order(session_key("named", "flooder", str(number)), "a")
    assert MARKER in here.order(victim, "a", "b")
    for number, remembered in ((8, True), (0, False)):
        shown = here.order(session_key("named", "flooder", str(number)), "a", "b")
        assert (MARKER in shown) is remembered
