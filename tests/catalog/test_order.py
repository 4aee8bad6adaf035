import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.fixtures import item, tokens
from tests.support.requirement import requirement
from wicketgate.catalog.card import ChoiceCard, card_json, render_cards
from wicketgate.catalog.order import CACHE_BREAKPOINT, SeenCards, cache_order, make_choice_cards
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.errors import CatalogError

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


ITEMS = [item(f"t{number}", _meta={"version": "1"}) for number in range(9)]


@requirement("S0 §2.5", "S1 make_choice_cards", "gateway 30")
@given(st.permutations(ITEMS))
def test_choice_cards_stand_by_score_then_id_and_are_the_same_bytes_each_time(drawn: list[SelectableItem]) -> None:
    scores = {one.id: [0.5, 0.9][number % 3] for number, one in enumerate(ITEMS) if number % 3 < 2}
    cards = make_choice_cards(drawn, scores=scores)
    assert [card.name for card in cards] == ["t1", "t4", "t7", "t0", "t3", "t6", "t2", "t5", "t8"]
    again = make_choice_cards(list(reversed(drawn)), scores=scores, tokens=tokens())
    assert bytes_of(cards) == bytes_of(again)
    assert render_cards(cards).encode() == render_cards(again).encode()


@requirement("S1 make_choice_cards", "gateway 31")
def test_choice_cards_are_as_many_as_asked_for_and_without_scores_in_the_order_given() -> None:
    backwards = list(reversed(ITEMS))
    assert [card.name for card in make_choice_cards(backwards, max_cards=3)] == ["t8", "t7", "t6"]
    assert make_choice_cards(backwards, max_cards=0) == []
    assert make_choice_cards([]) == []
    assert [card.score for card in make_choice_cards(ITEMS, scores={ITEMS[8].id: 0.25}, max_cards=2)] == [0.25, None]
    with pytest.raises(ValueError, match="max_cards"):
        make_choice_cards(ITEMS, max_cards=-1)


@requirement("S0 §2.3", "gateway 32")
def test_only_a_card_that_is_asked_for_can_be_too_large() -> None:
    huge = item("QXZ" * 40)
    scores = {ITEMS[0].id: 1.0}
    assert len(make_choice_cards([huge, ITEMS[0]], scores=scores, max_cards=1)) == 1
    with pytest.raises(CatalogError, match="hard cap"):
        make_choice_cards([huge, ITEMS[0]], scores=scores)


def bytes_of(cards: list[ChoiceCard]) -> bytes:
    return json.dumps([card_json(card) for card in cards], ensure_ascii=False).encode()
