import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.schemas.patterns import safe_pattern


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
    lengths = (50_000, 10_000, 2_000, 1_000, 300, 100, 32, 8)
    text = next(
        text for length in lengths if safe.search(text := (unit * length)[: length - len(tail)] + tail) is not None
    )
    began = time.process_time()
    found = safe.search(text)
    assert time.process_time() - began < 0.25
    assert found is (re.search(pattern, text) is not None)


@requirement("gateway 77")
@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]{250}c",
        "(?:[ab]?[ac])?" * 60 + "x",
        "^(?:" + "|".join(chr(0x4E00 + n) for n in range(240)) + ")*$",
        "a?" * 99,
    ],
)
def test_a_long_pattern_is_searched_in_bounded_time_or_not_at_all(pattern: str) -> None:
    safe = safe_pattern(pattern)
    for text in ("a" * 50_000, chr(0x4E00 + 239) * 50_000, "a" * 1_000, "a" * 100):
        began = time.process_time()
        if safe is not None:
            safe.search(text)
        assert time.process_time() - began < 0.1


@pytest.mark.parametrize("pattern", ["[\u0100-\uffff]" * 100, "[\u00ff-\U000fffff]" * 60, "(?:a|b|c){64}" * 20])
def test_a_pattern_that_is_dear_to_compile_is_not_compiled(pattern: str) -> None:
    began = time.process_time()
    assert safe_pattern(pattern) is None
    assert time.process_time() - began < 0.05
