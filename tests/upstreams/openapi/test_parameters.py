"""Arguments written into URLs and headers: other readers read them back as they were given (RFC 6570)."""

import json
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.upstreams.openapi.parameters import (
    STYLES,
    Parameter,
    Place,
    Style,
    cookie_text,
    header_text,
    path_text,
    query_pairs,
    text_of,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
COLORS = ["blue", "black", "brown"]
RGB = {"R": 100, "G": 200, "B": 150}


def parameter(
    place: Place = "query", style: Style | None = None, explode: bool | None = None, **more: Any
) -> Parameter:
    known = style or STYLES[place][0]
    return Parameter("color", "color", place, known, known == "form" if explode is None else explode, **more)


@requirement("UP-98")
@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        # The examples of the specification's table.
        ("form", False, "blue", "color=blue"),
        ("form", False, COLORS, "color=blue,black,brown"),
        ("form", False, RGB, "color=R,100,G,200,B,150"),
        ("form", True, COLORS, "color=blue&color=black&color=brown"),
        ("form", True, RGB, "R=100&G=200&B=150"),
        ("form", True, "", "color="),
        ("spaceDelimited", False, COLORS, "color=blue%20black%20brown"),
        ("spaceDelimited", True, COLORS, "color=blue&color=black&color=brown"),
        ("pipeDelimited", False, COLORS, "color=blue%7Cblack%7Cbrown"),
        ("deepObject", True, RGB, "color[R]=100&color[G]=200&color[B]=150"),
        ("deepObject", True, {"a": {"b": [1, 2]}}, "color[a][b][0]=1&color[a][b][1]=2"),
        ("deepObject", True, ["a&b", "c"], "color[0]=a%26b&color[1]=c"),
        ("deepObject", True, [{"a": 1, "b": [{"c": 2}]}, {"a": 3}], "color[0][a]=1&color[0][b][0][c]=2&color[1][a]=3"),
        ("deepObject", True, {"a": [], "b": {}}, ""),
        ("deepObject", True, [[1]], "color[0][0]=1"),
        ("form", False, ["a,b", "c"], "color=a%2Cb,c"),
        ("form", True, [], ""),
        ("form", False, {}, ""),
        ("form", True, {"x": {"y": 1}}, "x=%7B%22y%22%3A1%7D"),
    ],
)
def test_query_values_are_written_as_the_specification_shows(
    style: Style, explode: bool, value: object, written: str
) -> None:
    assert "&".join(query_pairs(parameter("query", style, explode), value)) == written


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("simple", False, COLORS, "blue,black,brown"),
        ("simple", False, RGB, "R,100,G,200,B,150"),
        ("simple", True, RGB, "R=100,G=200,B=150"),
        ("label", False, COLORS, ".blue,black,brown"),
        ("label", True, COLORS, ".blue.black.brown"),
        ("matrix", False, COLORS, ";color=blue,black,brown"),
        ("matrix", True, COLORS, ";color=blue;color=black;color=brown"),
        ("matrix", True, RGB, ";R=100;G=200;B=150"),
        ("simple", False, "a/b?c#d;e", "a%2Fb%3Fc%23d%3Be"),
    ],
)
def test_path_values_are_written_as_the_specification_shows(
    style: Style, explode: bool, value: object, written: str
) -> None:
    assert path_text(parameter("path", style, explode), value) == written


@requirement("UP-29")
@given(NAMES, TEXT)
def test_a_query_value_is_read_back_and_brings_no_other_parameter(name: str, value: str) -> None:
    written = "&".join(query_pairs(Parameter("x", name, "query", "form", True), value))
    assert parse_qsl(written, keep_blank_values=True, strict_parsing=True) == [(name, value)]


@given(TEXT)
def test_reserved_characters_that_stay_cannot_begin_another_parameter(value: str) -> None:
    written = "&".join(query_pairs(parameter(allow_reserved=True), value))
    assert parse_qsl(written, keep_blank_values=True) == [("color", value)]
    assert "#" not in written


@given(st.lists(TEXT, min_size=1, max_size=5), st.sampled_from(["form", "spaceDelimited", "pipeDelimited"]))
def test_a_list_that_repeats_its_name_is_read_back(values: list[str], style: Style) -> None:
    written = "&".join(query_pairs(parameter("query", style, True), values))
    assert parse_qs(written, keep_blank_values=True) == {"color": values}


@given(
    st.lists(TEXT, min_size=1, max_size=5),
    st.sampled_from([("form", ","), ("spaceDelimited", "%20"), ("pipeDelimited", "%7C")]),
)
def test_a_list_in_one_value_is_read_back_where_its_delimiter_cannot_be_meant(
    values: list[str], how: tuple[Style, str]
) -> None:
    style, delimiter = how
    if delimiter != "," and any(unquote(delimiter) in value for value in values):
        return  # what these styles cannot tell apart
    written = "&".join(query_pairs(parameter("query", style, False), values)).removeprefix("color=")
    assert [unquote(part) for part in written.split(delimiter)] == values


@given(st.dictionaries(NAMES, TEXT, min_size=1, max_size=4))
def test_an_object_is_read_back_from_pairs_and_from_brackets(value: dict[str, str]) -> None:
    pairs = parse_qsl("&".join(query_pairs(parameter(), value)), keep_blank_values=True)
    assert dict(pairs) == value
    deep = parse_qsl("&".join(query_pairs(parameter("query", "deepObject"), value)), keep_blank_values=True)
    assert {key.removeprefix("color[").removesuffix("]"): text for key, text in deep} == value


@given(TEXT, st.sampled_from(["simple", "label", "matrix"]))
def test_a_path_value_ends_no_segment_and_begins_no_query(value: str, style: Style) -> None:
    written = path_text(parameter("path", style), value)
    assert not set(written) & set("/?#\\ ")
    assert unquote(written).endswith(value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner), max_leaves=5))
def test_a_value_declared_by_a_media_type_is_sent_as_json(value: object) -> None:
    [pair] = query_pairs(parameter(as_json=True), value)
    assert json.loads(parse_qsl(pair)[0][1]) == value
    assert json.loads(unquote(cookie_text(parameter("cookie", as_json=True), value).removeprefix("color="))) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (3.0, "3"),
        (0.5, "0.5"),
        (10**30, "1" + "0" * 30),
        (None, ""),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_single_values_are_written_as_servers_read_them(value: object, text: str) -> None:
    assert text_of(value) == text


def test_headers_and_cookies_join_by_commas() -> None:
    assert header_text(parameter("header"), COLORS) == "blue,black,brown"
    assert header_text(parameter("header"), RGB) == "R,100,G,200,B,150"
    assert header_text(parameter("header", explode=True), RGB) == "R=100,G=200,B=150"
    assert cookie_text(parameter("cookie"), "a;b=c") == "color=a%3Bb%3Dc"
