"""Log lines for people: one line of text a record, with colours in a terminal (OPS-96).

The codes of the colours are made once, by click; a table or a layout engine would cost each line a hundred times as
much.
"""

import json
import logging
import os
from collections.abc import Callable
from time import localtime, strftime
from typing import Any, TextIO

import click

from app.printable import printable, printable_text
from wicketgate.log_text import correlation_id

_SHORT_ID_CHARS = 12
_INDENT = "    "
_LEVEL_STYLES: dict[str, dict[str, Any]] = {
    "debug": {"dim": True},
    "info": {"fg": "green"},
    "warning": {"fg": "yellow"},
    "error": {"fg": "red"},
    "critical": {"fg": "red", "bold": True},
}
_WIDTH = max(map(len, _LEVEL_STYLES)) - 1  # critical is seldom


def is_coloured(stream: TextIO) -> bool:
    """Returns true for a terminal, unless NO_COLOR is set or the terminal knows no colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class TextFormatter(logging.Formatter):
    """Masks secrets with *redact* in the caller's texts, and escapes whatever is not printable."""

    def __init__(self, redact: Callable[[str], str], *, coloured: bool) -> None:
        super().__init__()
        self._redact = redact
        style = click.style if coloured else _plain
        self._dim = style("{}", dim=True).format
        self._levels = {level: style(f"{level:<{_WIDTH}}", **how) for level, how in _LEVEL_STYLES.items()}

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        component = printable(record.name.removeprefix("wicketgate."))
        parts = [
            self._dim(strftime("%H:%M:%S", localtime(record.created))),
            self._levels.get(level, level),
            self._dim(component),
            printable(self._redact(record.getMessage())),
        ]
        if fields := getattr(record, "fields", None):
            parts.append(self._dim(" ".join([f"{key}={self._value(value)}" for key, value in fields.items()])))
        if (trace := correlation_id.get()) != "-":
            parts.append(self._dim(trace[:_SHORT_ID_CHARS]))
        line = " ".join(parts)
        if record.exc_info:
            trouble = printable_text(self._redact(self.formatException(record.exc_info)))
            line = "\n".join([line, *(_INDENT + each for each in trouble.split("\n"))])
        return line

    def _value(self, value: object) -> str:
        if isinstance(value, int | float):
            return str(value)
        text = self._redact(value if isinstance(value, str) else json.dumps(value, default=str))
        if isinstance(value, str) and (not text or not _NEEDS_QUOTES.isdisjoint(text)):
            text = json.dumps(text, ensure_ascii=False)
        return printable(text)


_NEEDS_QUOTES = frozenset(' "=')


def _plain(text: str, **how: object) -> str:
    return text
