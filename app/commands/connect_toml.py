"""Puts one table into a TOML file that a person keeps, and leaves every other byte as it is (OPS-72).

A new table goes to the end of the file. One that is there is replaced where it stands, if it stands under a header of
its own. What comes out is read again: if anything but the wanted table differs, the edit is refused.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from app.commands.connect_json import NotEditable

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def read_toml(text: str) -> dict[str, Any]:
    """Raises NotEditable."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotEditable(str(error)) from None
    except RecursionError:
        raise NotEditable("it cannot be read as TOML") from None


def render_toml(path: Sequence[str], table: Mapping[str, Any]) -> str:
    document: dict[str, Any] = dict(table)
    for key in reversed(path):
        document = {key: document}
    import tomlkit  # here, because every command imports this module

    return tomlkit.dumps(document)


def set_table(text: str, path: Sequence[str], table: Mapping[str, Any]) -> str:
    """Sets the table at *path*. Raises NotEditable."""
    root = read_toml(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    written = render_toml(path, table).replace("\n", newline)
    expected = deepcopy(root)
    inner: Any = expected
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise NotEditable(f"{key} is not a table")
    there = path[-1] in inner
    inner[path[-1]] = dict(table)
    if there:
        start, end = _span(text, path)
        done = text[:start] + written + text[end:]
    else:
        gap = "" if not text or text.endswith(newline * 2) else newline if text.endswith("\n") else newline * 2
        done = text + gap + written
    try:
        same = json.dumps(read_toml(done), default=str, sort_keys=True) == json.dumps(
            expected, default=str, sort_keys=True
        )
    except NotEditable:
        same = False
    if not same:
        raise NotEditable(f"{'.'.join(path)} cannot be changed in one place only")
    return done


def _span(text: str, path: Sequence[str]) -> tuple[int, int]:
    """The part of *text* that holds the table and the tables in it."""
    keys = r"\s*\.\s*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in path)
    ours = re.compile(rf"[ \t]*\[\s*{keys}\s*[\].]")
    headers = [*_headers(text), len(text)]
    numbers = [number for number, at in enumerate(headers[:-1]) if ours.match(text, at)]
    if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise NotEditable(f"{'.'.join(path)} does not stand under a header of its own")
    start, end = headers[numbers[0]], headers[numbers[-1] + 1]
    # What stands before the next header, an empty line or a comment, belongs to it.
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        end -= len(lines.pop())
    return start, end


def _headers(text: str) -> Iterator[int]:
    """The places of headers: lines that begin with a bracket, where the text before is complete by itself."""
    for match in _HEADER.finditer(text):
        try:
            tomllib.loads(text[: match.start()])
        except tomllib.TOMLDecodeError:
            continue
        yield match.start()
