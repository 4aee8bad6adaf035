"""The number of cards and the hint of an answer, read from the scores."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.fixtures import item, tokens
from tests.support.requirement import requirement
from wicketgate.catalog.card import (
    CACHE_BREAKPOINT,
    HARD_CAP_TOKENS,
    ChoiceCard,
    SeenCards,
    build_card,
    cache_order,
    render_card,
    render_cards,
)
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.shortlist import (
    HINT_TOKENS,
    LEAST_SHOWN,
    MOST_SHOWN,
    NAMED_BEST,
    NAMED_NAMESPACES,
    answer_text,
    best_namespaces,
    count_deserved,
    hints,
    is_clear,
)
from wicketgate.errors import CatalogError

score_lists = st.lists(st.floats(0.0001, 1), max_size=60).map(lambda scores: sorted(scores, reverse=True))
# As the server may write it: anything, and ends that are read as one piece with the line break behind them.
hostile = st.one_of(
    st.text(max_size=400),
    st.text("abcdefgh .", max_size=900),
    st.builds(
        lambda words, end: words + end, st.text("xyz0 ", max_size=300), st.text("*<–-(}`${.)]…’”!?", max_size=14)
    ),
)


@requirement("BROWSE-30")
def test_a_clear_winner_has_few_beside_it_and_equal_tools_are_all_shown() -> None:
    assert count_deserved([0.8, *[0.2] * 30]) == LEAST_SHOWN
    assert count_deserved([0.3] * 60) == MOST_SHOWN
    assert count_deserved([0.5, 0.5, 0.49, 0.48, 0.47, *[0.1] * 30]) == 5
    assert [count_deserved([0.5] * few) for few in (0, 1, 2, 3)] == [0, 1, 2, 3]


@requirement("BROWSE-30")
@given(score_lists)
def test_the_number_is_within_its_bounds_and_depends_on_the_best_twenty_alone(scores: list[float]) -> None:
    number = count_deserved(scores)
    assert min(LEAST_SHOWN, len(scores)) <= number <= min(MOST_SHOWN, len(scores))
    assert count_deserved(scores[:MOST_SHOWN]) == number


@requirement("BROWSE-30")
@given(st.floats(0.2, 1), st.lists(st.floats(0.1, 0.9), min_size=19, max_size=19))
def test_the_further_the_others_fall_behind_the_fewer_are_shown(best: float, shares: list[float]) -> None:
    others = sorted((best * share for share in shares), reverse=True)
    numbers = [count_deserved([best, *(other * part for other in others)]) for part in (1.0, 0.5, 0.0001)]
    assert all(more >= fewer for more, fewer in pairwise(numbers))
    assert numbers[-1] == LEAST_SHOWN or best < 0.3


@requirement("BROWSE-32")
def test_a_match_is_clear_if_its_score_is_not_low_and_few_are_like_it() -> None:
    assert is_clear([0.5, 0.2, 0.1])
    assert is_clear([0.3, 0.3, 0.3])
    assert not is_clear([0.3] * 20)
    assert not is_clear([0.05, 0.01])
    assert not is_clear([])


@requirement("BROWSE-32")
def test_the_namespaces_are_those_of_the_best_tools() -> None:
    scores = [0.5, 0.48, 0.47, 0.46, 0.2, 0.2, 0.1]
    assert best_namespaces(scores, ["a", "b", "b", "b", "d", "c", "e"]) == ("b", "a", "c", "d")
    assert best_namespaces([0.3, 0.3], ["z", "y"]) == ("y", "z")
    assert best_namespaces([], []) == ()


@requirement("BROWSE-31", "BROWSE-32", "CARD-32")
def test_a_hint_gets_shorter_by_names() -> None:
    assert list(hints(["a", "b"], None)) == ["Best for this query: a, b.", "Best for this query: a."]
    assert list(hints([], None)) == []
    forms = list(hints(["a"], ("git", "shop")))
    weak = "No clear match. Try other words, look in /git, /shop, or browse '/'."
    assert forms[0] == f"Best for this query: a. {weak}"
    assert "Best for this query: a." in forms
    assert weak in forms
    assert forms[-1] == "No clear match. Try other words, or browse '/'."


def hostile_cards(descriptions: list[str], long_id: str) -> list[ChoiceCard]:
    cards = []
    for number, description in enumerate(descriptions):
        tags = {"tags": [f"{number}{description[:30]}", description[-30:]]}
        made = item(f"{long_id}{number}", description=description, _meta=tags, annotations={"costHint": number})
        try:
            cards.append(build_card(made, tokens(), 0.5))
        except CatalogError:
            continue  # quarantined: no answer has it
    return cards


def counted(card: ChoiceCard) -> int:
    return tokens().count(f"{render_card(card)}\n")


@requirement("BROWSE-110")
@given(st.lists(hostile, max_size=12), st.sampled_from(["t", "QXZ_" * 12, "a.b_" * 20]), st.text(max_size=20))
def test_the_tokens_of_an_answer_are_the_sum_of_those_known_of_its_cards(
    descriptions: list[str], long_id: str, end: str
) -> None:
    made = Catalog(
        item(
            f"{long_id}{number}", description=text + end, _meta={"tags": [text[:30]]}, annotations={"costHint": number}
        )
        for number, text in enumerate(descriptions)
    )
    cards = [made.card(each.id, 0.5) for each in made.all()]
    assert [made.line_tokens(card) for card in cards] == [counted(card) for card in cards]
    other = [replace(card, description=f"{text}{end}.") for card, text in zip(cards, descriptions, strict=False)]
    sent = [CACHE_BREAKPOINT, *cards]
    lines = render_cards(sent)
    assert sum(map(made.line_tokens, sent)) == tokens().count(f"{lines}\n")
    assert list(map(made.line_tokens, other)) == list(map(counted, other))


@requirement("BROWSE-110")
def test_an_answer_with_room_for_its_hint_counts_no_token() -> None:
    made = Catalog(item(f"t{number}", description="Does one thing.") for number in range(9))
    cards = [made.card(each.id, 0.5) for each in made.all()]
    uncountable: Any = None
    _, hint = answer_text(cards, hints([card.id for card in cards[:NAMED_BEST]], None), uncountable, made.line_tokens)
    assert hint == f"Best for this query: {', '.join(card.id for card in cards[:NAMED_BEST])}."


@requirement("CARD-23", "CARD-32", "CARD-33")
@given(
    st.lists(hostile, max_size=12), st.sampled_from(["t", "QXZ_" * 12, "a.b_" * 20]), st.integers(0, 12), st.booleans()
)
def test_an_answer_of_n_cards_takes_at_most_80_n_and_32_tokens(
    descriptions: list[str], long_id: str, seen: int, weak: bool
) -> None:
    cards = hostile_cards(descriptions, long_id)
    _, known = cache_order(SeenCards(), cards[:seen])
    sent, _ = cache_order(known, cards)
    named = [card.id for card in cards[:NAMED_BEST]]
    namespaces = [f"name{number}" * 8 for number in range(NAMED_NAMESPACES)] if weak else None
    text, hint = answer_text(sent, hints(named, namespaces), tokens(), counted)
    assert tokens().count(text) <= HARD_CAP_TOKENS * len(cards) + HINT_TOKENS
    lines = render_cards(sent)
    assert text == "\n".join(part for part in (lines, hint) if part)
    assert len(text.splitlines()) == len(sent) + bool(hint)
    # It is left out only if no form of it fits.
    if named and not hint:
        shortest = min(map(tokens().count, hints(named, namespaces)))
        assert tokens().count(f"{lines}\n") + shortest > HARD_CAP_TOKENS * len(cards) + HINT_TOKENS


@requirement("CARD-32")
def test_a_hint_without_room_gives_up_names_and_then_itself() -> None:
    one = build_card(item("t"), tokens(), 0.5)
    huge = ["x:" + "QXZ" * 60, "y:" + "QXZ" * 30, "z"]
    _, hint = answer_text([one], hints(huge, None), tokens(), counted)
    assert hint == ""
    _, hint = answer_text([one] * 4, hints(huge, None), tokens(), counted)
    assert hint == f"Best for this query: {huge[0]}."
    assert answer_text([], iter(["Nothing."]), tokens(), counted) == ("Nothing.", "Nothing.")
    assert answer_text([one], iter(()), tokens(), counted) == (render_cards([one]), "")
