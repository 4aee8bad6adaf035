"""``grep``: plain text, numbered lines, pages; never more than linear time (EXEC-37)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import bounded_effort
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.results.selector import select
from wicketgate.results.view import MAX_VIEW_CHARS, View

LOG = "start\nan Error here\nok\nok\nerror again\nend"


def grep(text: str, pattern: str, **fields: Any) -> View:
    return select(text.encode(), "text/plain", {"type": "grep", "pattern": pattern, **fields})


def pages(text: str, pattern: str, **fields: Any) -> list[View]:
    found = [grep(text, pattern, **fields)]
    while found[-1].next is not None:
        found.append(select(text.encode(), "text/plain", found[-1].next))
        assert len(found) < 1_000
    return found


@requirement("EXEC-37")
def test_matching_lines_come_with_their_numbers() -> None:
    assert grep(LOG, "error") == View("4:error again", 1, "matches", None)
    assert grep(LOG, "error", ignore_case=True) == View("1:an Error here\n4:error again", 2, "matches", None)
    assert grep(LOG, "none") == View("", 0, "matches", None)


@requirement("EXEC-37")
def test_the_number_of_a_line_is_what_the_lines_selector_takes() -> None:
    number = int(grep(LOG, "again").content.partition(":")[0])
    assert select(LOG.encode(), "text/plain", {"type": "lines", "start": number, "end": number + 1}).content == (
        "error again"
    )


def test_neighbours_are_marked_and_groups_are_parted() -> None:
    assert grep(LOG, "error", ignore_case=True, context=1).content == (
        "0-start\n1:an Error here\n2-ok\n3-ok\n4:error again\n5-end"
    )
    assert grep("a\nb\nc\nd\na", "a", context=1).content == "0:a\n1-b\n--\n3-d\n4:a"


@requirement("EXEC-37")
def test_a_pattern_is_text_and_never_an_expression() -> None:
    assert grep("(a+)+$\naaaa", "(a+)+$").content == "0:(a+)+$"
    assert grep("ab", "a.").total == 0


def test_in_a_long_line_each_stretch_with_a_match_is_shown_with_its_place() -> None:
    text = "é" * 5_000 + "needle" + "é" * 5_000 + "needle" + "é" * 5_000
    found = grep("first\n" + text, "needle")
    assert found.total == 2
    places = [line.partition(":")[0] for line in found.content.split("\n")]
    assert places == ["1@5006", "1@10012"]
    head = select(("first\n" + text).encode(), "text/plain", {"type": "head", "start": 5_006, "chars": 6})
    assert head.content == "needle"


LINES = st.lists(st.text("abA é€", max_size=6), max_size=40)


@settings(max_examples=examples(150), deadline=None)
@given(LINES, st.text("abA é", min_size=1, max_size=3), st.booleans())
def test_the_lines_found_are_those_that_hold_the_text(lines: list[str], pattern: str, ignore_case: bool) -> None:
    def folded(text: str) -> str:
        return text.replace("A", "a") if ignore_case else text

    expected = [f"{n}:{line}" for n, line in enumerate(lines) if folded(pattern) in folded(line)]
    found = pages("\n".join(lines), pattern, ignore_case=ignore_case)
    assert "\n".join(page.content for page in found if page.content) == "\n".join(expected)
    assert {page.total for page in found} == {len(expected)}


def test_all_matches_of_a_large_text_can_be_paged_through() -> None:
    text = "".join(f"line {number} {'x' * 200}\n" for number in range(500))
    found = pages(text, "line", context=2)
    numbers = [int(line.partition(":")[0]) for page in found for line in page.content.split("\n") if ":" in line]
    assert numbers == list(range(500))
    assert all(len(page.content) <= MAX_VIEW_CHARS for page in found)


@requirement("EXEC-37")
@pytest.mark.parametrize("text", ["a" * 8_000_000, ("a" * 2_400 + "\n") * 3_300], ids=["one line", "lines"])
@pytest.mark.parametrize("pattern", ["a" * 199 + "b", "b" + "a" * 199, "a" * 100 + "b" + "a" * 99])
def test_hostile_text_and_pattern_take_linear_time(text: str, pattern: str) -> None:
    with bounded_effort():
        assert grep(text, pattern).total == 0
