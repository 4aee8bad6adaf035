from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.catalog.card import ChoiceCard, card_json
from wicketgate.catalog.order import CACHE_BREAKPOINT, SeenCards, cache_order

MARKER = "__cache_breakpoint__"


def card(name: str, score: float | None = None) -> ChoiceCard:
    return ChoiceCard(name, name, "", (), "tool", "n", has_schema=True, score=score)


def ids(cards: tuple[ChoiceCard, ...]) -> list[str]:
    return [sent.id for sent in cards]


browses = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), max_size=8), max_size=8)


@requirement("S0 §5.3", "gateway 102")
def test_the_first_browse_has_no_marker_and_is_remembered() -> None:
    sent, seen = cache_order(SeenCards(), [card("b", 0.9), card("a", 0.1)])
    assert ids(sent) == ["a", "b"]
    assert seen.ids == {"a", "b"}


@requirement("S0 §5.3", "gateway 103")
def test_the_same_browse_again_is_the_same_without_a_marker() -> None:
    first, seen = cache_order(SeenCards(), [card("b"), card("a")])
    again, after = cache_order(seen, [card("a"), card("b")])
    assert again == first
    assert after is seen


@requirement("S0 §5.1", "gateway 104")
def test_seen_cards_come_first_as_they_were_and_new_ones_after_the_marker() -> None:
    _, seen = cache_order(SeenCards(), [card("m", 0.5), card("z", 0.4)])
    sent, after = cache_order(seen, [card("m", 0.9), card("y", 0.8), card("b", 0.7)])
    assert ids(sent) == ["m", MARKER, "b", "y"]
    assert [sent[0].score, sent[2].score, sent[3].score] == [0.5, 0.7, 0.8]
    assert after.ids == {"b", "m", "y", "z"}


@requirement("S0 §5.3")
def test_only_new_cards_have_no_marker() -> None:
    _, seen = cache_order(SeenCards(), [card("a")])
    assert ids(cache_order(seen, [card("c"), card("b")])[0]) == ["b", "c"]
    assert cache_order(seen, []) == ((), seen)


@requirement("S0 §5.1", "gateway 105", "gateway 107")
def test_a_hydrated_tool_stands_before_the_marker_and_keeps_the_score_it_is_first_sent_with() -> None:
    seen = SeenCards().hydrated("t")
    first, after = cache_order(seen, [card("a", 0.9), card("t", 0.3)])
    assert ids(first) == ["t", MARKER, "a"]
    assert first[0].score == 0.3
    second, _ = cache_order(after.hydrated("t"), [card("t", 0.7)])
    assert second[0].score == 0.3


@requirement("gateway 108", "gateway 109")
def test_nothing_is_cut() -> None:
    assert len(cache_order(SeenCards(), [card(f"t{i:02}") for i in range(60)])[0]) == 60


@requirement("S0 §5.4")
def test_the_marker_is_a_card_of_kind_internal() -> None:
    assert card_json(CACHE_BREAKPOINT)["kind"] == "internal"
    assert CACHE_BREAKPOINT.id == MARKER


@requirement("S0 §5.1", "S0 §5.3", "gateway 102", "gateway 104")
@given(browses)
def test_a_card_once_sent_never_changes_over_any_sequence_of_browses(sequence: list[dict[str, float]]) -> None:
    seen, sent_before = SeenCards(), dict[str, ChoiceCard]()
    for scores in sequence:
        earlier, former = seen, dict(seen.cards)
        sent, seen = cache_order(seen, [card(name, score) for name, score in scores.items()])
        old, new = sorted(scores.keys() & sent_before.keys()), sorted(scores.keys() - sent_before.keys())
        assert ids(sent) == old + ([MARKER] if old and new else []) + new
        for found in sent:
            if found.id != MARKER:
                assert sent_before.setdefault(found.id, found) == found
        assert dict(earlier.cards) == former
        assert seen.ids == set(sent_before)


@requirement("gateway 110")
def test_a_card_rebuilt_by_a_refresh_does_not_change_what_was_sent() -> None:
    first, seen = cache_order(SeenCards(), [card("a")])
    assert cache_order(seen, [replace(card("a"), description="new")])[0] == first
