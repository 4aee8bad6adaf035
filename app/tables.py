"""Tables of foreign texts for a terminal."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from app.printable import printable


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Makes a table of foreign texts."""
    made = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made
