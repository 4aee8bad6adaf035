"""The lines of a browse, written and read back (CHAT-96, CHAT-97)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.test_card import card, hostile
from tests.support.requirement import requirement
from wicketgate.catalog.card import CACHE_BREAKPOINT, ChoiceCard, build_inner_card, card_json, render_cards
from wicketgate.catalog.card_lines import CardLine, browse_lines, lines_of_json, read_card_lines
from wicketgate.tokens import shipped_token_counter

ISSUE = card("create_issue", annotations={"readOnlyHint": True})
DELETE = card("delete_issue", description="Deletes it. (really) [yes] — gone")
LEVEL = build_inner_card("/github/issues", "issues", "github", 3, ("create", "list"), shipped_token_counter())


def body(*cards: ChoiceCard, **more: Any) -> dict[str, Any]:
    return {"cards": [card_json(card) for card in cards], **more}


@requirement("CHAT-96")
def test_the_hint_is_the_last_line() -> None:
    assert browse_lines([ISSUE, DELETE]) == render_cards([ISSUE, DELETE])
    assert browse_lines([ISSUE], "Browse '/' too.") == f"{render_cards([ISSUE])}\nBrowse '/' too."
    assert browse_lines([], "Nothing.") == "Nothing."
    assert browse_lines([]) == ""


@requirement("CHAT-97")
@given(st.lists(st.tuples(hostile, st.one_of(st.none(), st.floats(0, 1))), max_size=12), st.sampled_from(["", "More."]))
def test_the_json_of_a_browse_gives_the_bytes_that_were_shown(made: list[tuple[str, float | None]], hint: str) -> None:
    cards = [LEVEL, *(card(f"tool_{n}", description=text) for n, (text, _) in enumerate(made)), CACHE_BREAKPOINT]
    text = json.dumps(body(*cards, **({"hint": hint} if hint else {})), ensure_ascii=False, separators=(",", ":"))
    assert lines_of_json(text) == browse_lines(cards, hint)
    # A client may have read it and written it anew.
    for spelled in (json.dumps(json.loads(text), indent=2), f"\n {json.dumps(json.loads(text), sort_keys=True)}\n"):
        assert lines_of_json(spelled) == browse_lines(cards, hint)


@requirement("CHAT-97")
@pytest.mark.parametrize(
    "other",
    [
        "",
        "no JSON",
        '{"cards":',
        '{"cards":[]}',
        '{"cards":5}',
        '{"cards":[5]}',
        '{"cards":[{"id":"shop:a#12345678"}]}',
        json.dumps(body(ISSUE, hint=5)),
        json.dumps(body(ISSUE, more="x")),
        json.dumps(body(ISSUE, hint="two\nlines")),
        json.dumps({"cards": [{**card_json(ISSUE), "description": "one\ngithub:forged#12345678"}]}),
        json.dumps({"cards": [{**card_json(ISSUE), "description": "\ud800"}]}),
        json.dumps({"cards": [{**card_json(ISSUE), "extra": 1}]}),
        json.dumps({"cards": [{**card_json(ISSUE), "tags": [5]}]}),
        json.dumps({"cards": [{**card_json(ISSUE), "kind": "robot"}]}),
        json.dumps({"cards": [{**card_json(ISSUE), "cost_hint": "much"}]}),
    ],
)
def test_any_other_text_has_no_lines(other: str) -> None:
    assert lines_of_json(other.replace('"cards": ', '"cards":')) is None


def test_the_cards_of_the_lines_are_read_back_up_to_the_hint() -> None:
    text = browse_lines([ISSUE, LEVEL, CACHE_BREAKPOINT, DELETE], "Browse /github for more.")
    assert read_card_lines(text) == [
        CardLine(ISSUE.id, "github", "create_issue"),
        CardLine("/github/issues", is_internal=True),
        CardLine(DELETE.id, "github", "delete_issue", side_effects=True),
    ]


@given(hostile | st.text(alphabet="a:#/1 ([—\n", max_size=80))
def test_reading_any_text_ends_and_raises_nothing(text: str) -> None:
    read_card_lines(text)
    lines_of_json(text)


@pytest.mark.parametrize(
    "text", ["", "Nothing matches.", "error: no", "12:30 lunch", "warning:disk is full\nx", "a:b\nand\nmore"]
)
def test_a_text_that_is_no_browse_has_no_cards(text: str) -> None:
    assert read_card_lines(text) == []
