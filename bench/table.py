"""Prints figures of the benchmarks: plain columns, and a dash where there is nothing to compare."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

NONE = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """*notes* are lines below it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def markdown(made: Table) -> str:
    """Ready to be pasted, with columns that stand below one another."""
    lines = [made.head, ["---"] * len(made.head), *made.rows]
    widths = [max(3, *(len(row[column]) for row in lines)) for column in range(len(made.head))]
    shown = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in lines]
    return "\n".join([f"**{made.title}**", "", *shown, *([""] if made.notes else []), *(f"- {n}" for n in made.notes)])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column flush left, the others flush right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in (head, *rows))
    )


def figure(value: float | None) -> str:
    """Three significant digits, no exponent."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    """Per cent, with one decimal."""
    return NONE if value is None else f"{100 * value:.1f}"


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that *percent* of all do not exceed; None of none."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]
