"""Results in words hold what the results hold, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.models.scripted.arguments import known_arguments
from wicketgate.models.scripted.wording import MOST_LINES, in_words


@requirement("OPS-100")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            {"id": "ord_1", "total_cents": 5, "paid": True, "note": None},
            "id ord_1, total cents 5, paid yes, note none.",
        ),
        (
            {
                "timezone": "Asia/Tokyo",
                "datetime": "2026-11-22T18:51:33+09:00",
                "day_of_week": "Sunday",
                "is_dst": False,
            },
            "It is 18:51 on Sunday in Asia/Tokyo (2026-11-22T18:51:33+09:00).",
        ),
        ({"timezone": "Asia/Tokyo", "datetime": 5}, "timezone Asia/Tokyo, datetime 5."),
        ({"total": 1, "orders": [{"id": "a", "by": {"north": 1}}]}, "total 1.\norders:\n- id a, by (north 1)"),
        ({"figures": {"cust_0020": 7}}, "figures:\n- cust_0020: 7"),
        ({"notes": []}, "notes: none."),
        ({"total": 9, "orders": [7, 8], "page": 1}, "page 1.\norders, 2 of 9:\n- 7\n- 8"),
        ({"total": 25, "rows": [*range(20)]}, "rows, 10 of 25:\n" + "\n".join(f"- {n}" for n in range(10))),
        ({"total": 3, "a": [1], "b": [2]}, "total 3.\na:\n- 1\nb:\n- 2"),
        ([1, 2], "entries:\n- 1\n- 2"),
    ],
)
def test_json_becomes_words(value: Any, words: str) -> None:
    assert in_words(json.dumps(value)) == words


@pytest.mark.parametrize("text", ["Commit history:\nCommit: 1", "", "5", "{}", "[" * 100_000])
def test_any_other_text_stays_as_it_is(text: str) -> None:
    assert in_words(text) == text


def test_a_long_list_is_cut_and_says_so() -> None:
    words = in_words(json.dumps({"rows": [{"n": n} for n in range(25)]}))
    assert words.splitlines()[0] == f"rows, the first {MOST_LINES} of 25:"
    assert words.splitlines()[-1] == f"- n {MOST_LINES - 1}"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(json_values)
def test_every_json_value_becomes_a_text(value: Any) -> None:
    assert isinstance(in_words(json.dumps(value)), str)


def test_a_known_tool_takes_its_arguments_from_the_message_alone() -> None:
    filling = known_arguments("the time in Lisbon", "get_current_time")
    assert filling is not None
    assert (filling.arguments, filling.missing) == ({"timezone": "Europe/Lisbon"}, ())
    lacking = known_arguments("what time is it", "get_current_time")
    assert lacking is not None
    assert lacking.missing == ("timezone",)
    assert known_arguments("the time in Lisbon", "get_time") is None
