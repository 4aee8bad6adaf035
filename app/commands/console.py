"""What people see of a command in a terminal: rich text, tables, progress. A file or a pipe gets plain text.

Foreign texts are data here: nothing in them is read as markup, and each goes through ``printable`` first.
"""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.commands.output import printable


def console(*, stderr: bool = False) -> Console:
    """Returns a console that respects NO_COLOR and TERM, and is plain where there is no terminal."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> Table:
    """Makes a table of foreign texts. *styles* are those of the columns, in order, as rich names them."""
    made = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in rows:
        made.add_row(*(Text(printable(cell), style) for cell, style in _styled(row, styles)))
    return made


def _styled(row: Sequence[str], styles: Sequence[str]) -> Iterable[tuple[str, str]]:
    return ((cell, styles[place] if place < len(styles) else "") for place, cell in enumerate(row))
