"""Lines for a terminal: foreign text made harmless, and tools that are held back, suspicious or gone (ACCESS-19,
OPS-5)."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.printable import count as count
from app.printable import printable as printable
from app.printable import printable_text as printable_text
from wicketgate.catalog.card import one_line
from wicketgate.catalog.pins import Difference, Screened
from wicketgate.catalog.written_words import WordsGap
from wicketgate.log_text import Redactor

if TYPE_CHECKING:
    from rich.console import Console

_MAX_LINE_CHARS = 400


def console(*, stderr: bool = False) -> "Console":
    """Returns a console that respects NO_COLOR and TERM, and is plain if there is no terminal.

    It reads no markup. Foreign texts go through ``printable`` first.
    """
    from rich.console import Console  # here, because most commands do not need it

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def bounded_line(text: str) -> str:
    """Returns *text*, which a file may hold, as one line of bounded length."""
    line = printable(one_line(text))
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…"


class TerminalFormatter(logging.Formatter):
    """The warnings of a command on stderr: the message alone, secrets masked. Servers choose parts of it."""

    def __init__(self) -> None:
        super().__init__("%(message)s")
        self._redact = Redactor()

    def format(self, record: logging.LogRecord) -> str:
        # Text after a line break is indented, so that no server can imitate a line of this program.
        return printable_text(self._redact(super().format(record))).replace("\n", "\n    ")


class _NoRepeats(logging.Filter):
    """Leaves out a line that is the same as the one before it, such as that of a second attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        last, self._last = self._last, record.getMessage()
        return last != self._last


@contextmanager
def terminal_log() -> Iterator[None]:
    """Logs warnings to stderr while the context is open. A command that serves replaces this by its own log."""
    handler = logging.StreamHandler()
    handler.addFilter(_NoRepeats())
    handler.setLevel(logging.WARNING)
    handler.setFormatter(TerminalFormatter())
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def quarantine_lines(differences: Sequence[Difference]) -> Iterator[str]:
    """Yields the lines of ``wicketgate lock``: ``~`` changed, ``+`` new, ``-`` gone, ``!`` suspicious."""
    return map(printable, _difference_lines(differences))


def screened_lines(screened: Mapping[str, Screened]) -> Iterator[str]:
    """Yields the lines of ``wicketgate check``."""
    return map(printable, _screened_lines(screened))


def _difference_lines(differences: Sequence[Difference]) -> Iterator[str]:
    for difference in differences:
        match difference.kind:
            case "gone":
                yield f"- {difference.tool}: pinned, but the server no longer has it"
            case "suspicious":
                yield f"! {difference.tool}: {'; '.join(difference.signs)}"
            case kind:
                reason = difference.held.explanation if difference.held else ""
                yield f"{'~' if kind == 'changed' else '+'} {difference.tool}: {reason}"
                if difference.held and difference.held.change:
                    yield from (f"    {line}" for line in difference.held.change.lines)
                if difference.signs:
                    yield f"    ! {'; '.join(difference.signs)}"


def _screened_lines(screened: Mapping[str, Screened]) -> Iterator[str]:
    for server, each in screened.items():
        for name, held in each.held.items():
            yield f"quarantined: {server}:{name}: {held.explanation}"
            if held.change:
                yield from (f"    {line}" for line in held.change.lines)
        for name, signs in each.flagged.items():
            if name not in each.held:
                yield f"suspicious: {server}:{name}: {'; '.join(signs)}"
        for name in each.gone:
            yield f"gone: {server}:{name}: pinned, but the server no longer has it"


_GAPS = {
    "new": "+ {}: has no words yet",
    "changed": "~ {}: its definition changed since its words were written",
    "gone": "- {}: has words, but no longer exists",
}
_MOST_GAPS = 50


def gap_lines(found: Sequence[WordsGap]) -> list[str]:
    """Returns the lines of ``wicketgate words --diff``, a bounded number."""
    lines = [printable(_GAPS[each.kind].format(each.tool)) for each in found[:_MOST_GAPS]]
    return [*lines, f"... and {len(found) - _MOST_GAPS} more"] if len(found) > _MOST_GAPS else lines
