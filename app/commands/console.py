"""Rich text, tables and progress for people in a terminal. A file or a pipe gets plain text.

Foreign texts are data here: nothing in them is read as markup, and each goes through ``printable`` first.
"""

from rich.console import Console

from app.tables import table

__all__ = ["console", "table"]


def console(*, stderr: bool = False) -> Console:
    """Returns a console that respects NO_COLOR and TERM, and is plain where there is no terminal."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
