import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.gateway.patterns import safe_pattern
from tests.support.requirement import requirement


@requirement("gateway 77", "DESIGN §3 Schemas")
@pytest.mark.parametrize(
    "pattern",
    [
        r"^(a+)+$",
        r"^(a*)*$",
        r"^(a|a)*$",
        r"^(a|ab|b)*$",
        r"(x+x+)+y",
        r"^(\w+\s?)*$",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        r"(?:a?){30}a{30}",
        r"(?:(?:a?)?(?:b?)?)c",
        r"(?:a?|b?)c",
        r".*.*.*.*=",
        "a?" * 40 + "a" * 40,
    ],
)
def test_a_pattern_that_can_take_very_long_is_refused(pattern: str) -> None:
    assert safe_pattern(pattern) is None


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?=a)b", r"(?i)a", r"a++", "[", r"\p{L}", "(" * 400, "a" * 501])
def test_a_pattern_whose_cost_is_not_known_is_refused(pattern: str) -> None:
    assert safe_pattern(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[a-z]+$", "abc", "aBc"),
        (r"^\d{4}-\d{2}-\d{2}$", "2025-01-31", "2025-1-31"),
        (r"^[a-zA-Z0-9_-]{1,64}$", "a_b-c", ""),
        (r"^(asc|desc)$", "desc", "descending"),
        (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "a@b.example", "a@b"),
        (r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "a-b", "a-"),
        (r"^https?://", "https://x", "ftp://x"),
        (r"^(?:[a-z]+\.)+[0-9]$", "a.b.1", "a.b."),
        (r"a*b", "xxaab", "aac"),
        ("^é+$", "éé", "e"),
        ("", "anything", None),
    ],
)
def test_an_ordinary_pattern_is_searched(pattern: str, good: str, bad: str | None) -> None:
    safe = safe_pattern(pattern)
    assert safe is not None
    assert safe.search(good) is True
    assert bad is None or safe.search(bad) is False


def test_a_text_too_long_for_its_pattern_is_not_searched() -> None:
    safe = safe_pattern("a*b")
    assert safe is not None
    assert (safe.search("a" * 1_001), safe.steps("a" * 1_001)) == (None, 0)


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\w", r"\d", "^", "$", r"\b"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda each: f"(?:{'|'.join(each)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@requirement("gateway 77")
@settings(max_examples=200, deadline=None)
@given(PATTERNS, st.sampled_from(["a", "b", "ab", "aab"]), st.sampled_from(["", "!", "b", "\n"]))
def test_whatever_is_accepted_is_fast_on_the_longest_text_allowed(pattern: str, unit: str, tail: str) -> None:
    safe = safe_pattern(pattern)
    if safe is None:
        return
    length = {1: 50_000, 2: 1_000, 3: 100, 4: 32}[safe.degree]
    text = (unit * length)[: length - len(tail)] + tail
    began = time.process_time()
    found = safe.search(text)
    assert time.process_time() - began < 0.25
    assert found is (re.search(pattern, text) is not None)
