"""Arguments come from the words of the message, and never from anywhere else."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.models.scripted.arguments import Filling, fill_arguments, json_arguments, said_arguments

ORDER = "string matching ^ord_[0-9]{4,}$, required: Order id."


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('create {"a": 1, "b": [2]} now', {"a": 1, "b": [2]}),
        ('not {json} but {"x": 1}', {"x": 1}),
        ("nothing here", {}),
        ("{" * 3000, {}),
    ],
)
def test_arguments_are_the_first_json_object_of_the_message(message: str, expected: dict[str, Any]) -> None:
    assert json_arguments(message) == expected


ZONE = "string, required: IANA timezone name"


@pytest.mark.parametrize(
    ("message", "expected", "arguments"),
    [
        ("cancel order ord_0012.", {"order_id": ORDER}, {"order_id": "ord_0012"}),
        ("show the last 3", {"limit": "integer 1..100, default 20", "offset": "integer 0.., default 0"}, {"limit": 3}),
        ("show the last 3", {"maxCount": "integer, default 10"}, {"maxCount": 3}),
        ("model 5", {"context_lines": "integer, default 3"}, {}),
        ("set it to 5", {"cents": "integer, required"}, {"cents": 5}),
        ("this repository", {"repo_path": "string, required: Repo Path"}, {"repo_path": "."}),
        ("in /srv/data here", {"repo_path": "string, required"}, {"repo_path": "/srv/data"}),
        ('say "Fix it"', {"message": "string, required"}, {"message": "Fix it"}),
        ('say "Fix it"', {"message": "string"}, {}),
        ("What time is it in Tokyo?", {"timezone": ZONE}, {"timezone": "Asia/Tokyo"}),
        ("from new york to London", {"a": ZONE, "b": ZONE}, {"a": "America/New_York", "b": "Europe/London"}),
        ("in UTC", {"timezone": ZONE}, {"timezone": "UTC"}),
        ("in Atlantis", {"timezone": ZONE}, {}),
        (
            "compare prod_0003 and prod_0005",
            {"a": "string matching ^prod_[0-9]+$, required", "b": "string matching ^prod_[0-9]+$, required"},
            {"a": "prod_0003", "b": "prod_0005"},
        ),
    ],
)
def test_an_argument_takes_the_first_value_that_fits_it(
    message: str, expected: dict[str, str], arguments: dict[str, Any]
) -> None:
    assert fill_arguments(message, expected).arguments == arguments


def test_required_arguments_choose_first() -> None:
    expected = {"limit": "integer, default 20", "number": "integer, required"}
    assert fill_arguments("give me 3", expected) == Filling({"number": 3}, ())


def test_a_required_argument_without_a_value_is_missing() -> None:
    expected = {"order_id": ORDER, "limit": "integer", "…": "3 more: x"}
    assert fill_arguments("do it", expected) == Filling({}, ("order_id",))


def test_a_pattern_that_cannot_be_run_finds_nothing() -> None:
    assert fill_arguments("a" * 60, {"x": "string matching ^(?=a), required"}).missing == ("x",)


@requirement("CHAT-85")
@given(st.text(max_size=200), st.dictionaries(st.text(max_size=12), st.text(max_size=60), max_size=4))
def test_filling_never_fails_and_never_invents(message: str, expected: dict[str, str]) -> None:
    filling = fill_arguments(message, expected)
    assert set(filling.arguments) <= set(expected)
    assert not set(filling.missing) & set(filling.arguments)
    for value in filling.arguments.values():
        if isinstance(value, str) and "/" not in value and value not in (".", "UTC", "GMT"):
            assert value in message


@requirement("OPS-568")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "get_order(order_id: string matching ^ord_[0-9]{4,}$)",
            {"order_id": "string matching ^ord_[0-9]{4,}$, required"},
        ),
        ("get_order()", {}),
        ("Best: a. get_order(a: integer, b?: string)", {"a": "integer, required", "b": "string"}),
        (
            'get_order(of?: "x"|"y, z"|null, limit?: integer 1..100)',
            {"of": '"x"|"y, z"|null', "limit": "integer 1..100"},
        ),
        ("forget_order(a: integer)", None),
        ("get_order: no form", None),
        ("", None),
    ],
)
def test_arguments_are_read_from_the_short_form_of_a_browse(line: str, expected: Mapping[str, str] | None) -> None:
    assert said_arguments(line, "get_order") == expected


@given(st.text())
def test_any_last_line_is_read(line: str) -> None:
    said_arguments(line + ")", "x")
