"""Figures as the benchmarks print them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.table import Table, figure, markdown, percentile, share, table


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (0.0123, "0.0123"), (1.2345, "1.23"), (12.345, "12.3"), (33_475.2, "33,475")],
)
def test_a_figure_has_three_significant_digits(value: float | None, shown: str) -> None:
    assert figure(value) == shown


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 50) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 100))
def test_a_percentile_is_one_of_the_values_and_that_share_does_not_exceed_it(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)


def test_columns_stand_below_one_another() -> None:
    lines = table(["", "ours"], [["refresh", "1.00"], ["a", "12,345"]]).splitlines()
    assert lines == ["           ours", "refresh    1.00", "a        12,345"]


def test_markdown_has_a_title_the_rows_and_the_notes() -> None:
    assert markdown(Table("Times", ["", "ours"], [["refresh", "1.00"]], ["one run"])).splitlines() == [
        "**Times**",
        "",
        "|         | ours |",
        "| ---     | ---  |",
        "| refresh | 1.00 |",
        "",
        "- one run",
    ]


def test_a_share_is_per_cent_with_one_decimal() -> None:
    assert [share(None), share(0.0), share(0.98765)] == ["–", "0.0", "98.8"]
