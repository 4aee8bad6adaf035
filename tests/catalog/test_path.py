from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.fixtures import vectors
from tests.support.requirement import requirement
from wicketgate.catalog.graph import parse_path
from wicketgate.errors import PathInvalid


@requirement("S0 §3.2", "gateway 46", "gateway 47", "gateway 48", "vectors parse_path")
@pytest.mark.parametrize("row", vectors("parse_path"), ids=lambda row: ascii(row["in"])[:40])
def test_a_path_is_parsed_as_the_grammar_says(row: dict[str, Any]) -> None:
    if isinstance(row["expected"], dict):
        with pytest.raises(PathInvalid) as refused:
            parse_path(row["in"])
        assert (refused.value.code, refused.value.path) == (row["expected"]["error"], row["in"])
    else:
        assert parse_path(row["in"]) == tuple(row["expected"])


@requirement("gateway 48")
@pytest.mark.parametrize("value", [5, None, [], b"/a"])
def test_what_is_not_a_string_is_no_path(value: object) -> None:
    with pytest.raises(PathInvalid):
        parse_path(value)


@requirement("S0 §3.2")
@given(
    st.from_regex(r"[a-z][a-z0-9_-]{0,63}", fullmatch=True),
    st.lists(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True), max_size=4),
    st.sampled_from([(), ("*",)]),
)
def test_legal_segments_come_back_as_they_went_in(first: str, more: list[str], wildcard: tuple[str, ...]) -> None:
    segments = (first, *more, *wildcard)
    assert parse_path("/" + "/".join(segments)) == segments


@requirement("S0 §3.2")
@given(st.text(alphabet="/ab0_-*.A \n", max_size=12))
def test_a_text_is_either_refused_or_exactly_a_path(text: str) -> None:
    try:
        segments = parse_path(text)
    except PathInvalid:
        return
    assert "/" + "/".join(segments) == text
