"""Tables of foreign texts for a terminal."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from app.printable import printable


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> Table:
    """Makes a table of foreign texts. *styles* are those of the columns, in order, as rich names them."""
    made = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in rows:
        made.add_row(*(Text(printable(cell), style) for cell, style in _styled(row, styles)))
    return made


def _styled(row: Sequence[str], styles: Sequence[str]) -> Iterable[tuple[str, str]]:
    return ((cell, styles[place] if place < len(styles) else "") for place, cell in enumerate(row))
