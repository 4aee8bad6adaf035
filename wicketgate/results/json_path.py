"""Paths into JSON: members, indexes, slices and ``*``, a part of RFC 9535 (DESIGN §3 "Results").

Filters, functions and recursive descent are left out: they cost more than they give, and ``grep`` finds deep values.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from wicketgate.errors import ViewFailed
from wicketgate.results.envelope import shorten

EXAMPLE = '{"type":"json_path","path":"$.a[0].b"}'
HELP = "A path is $ and then steps: .name, ['any name'], [0], [-1], [0:10], [*] or .*"

_MAX_PATH_CHARS = 500
_MAX_STEPS = 50
# The group that matched last says which kind of step it is.
_STEP = re.compile(
    r"""\.(?:(?P<all>\*)|(?P<name>[^\s.\[\]'"*?@()$]+))"""
    r"""|\[\s*(?:(?P<every>\*)|(?P<index>-?\d{1,15})|(?P<start>-?\d{0,15})\s*:\s*(?P<end>-?\d{0,15})"""
    r"""|'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)")\s*\]"""
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Key:
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """A negative *number* counts from the end."""

    number: int


@dataclass(frozen=True, slots=True)
class Slice:
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Every:
    """All members, or all elements."""


Step = Key | Index | Slice | Every


def parse_json_path(path: object) -> tuple[Step, ...]:
    """Reads the steps of *path*. Raises ViewFailed, whose text explains the valid steps."""
    if not isinstance(path, str) or not path.startswith("$") or len(path) > _MAX_PATH_CHARS:
        raise ViewFailed(f"path must be a string that begins with $, of at most {_MAX_PATH_CHARS} characters. {HELP}")
    # Each step begins where the last one ends.
    steps: list[Step] = []
    position = 1
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None or len(steps) == _MAX_STEPS:
            raise ViewFailed(f"path cannot be read from {shorten(path[position:], 40)!r} on. {HELP}")
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def is_definite(steps: Sequence[Step]) -> bool:
    """Returns true if the path leads to one value at most."""
    return all(isinstance(step, Key | Index) for step in steps)


def path_text(steps: Sequence[Step]) -> str:
    return "$" + "".join(map(_text, steps))


def _step(found: re.Match[str]) -> Step:
    match found.lastgroup:
        case "all" | "every":
            return Every()
        case "name":
            return Key(found["name"])
        case "index":
            return Index(int(found["index"]))
        case "single" | "double" as quoted:
            return Key(_unescaped(found[quoted]))
        case _:
            return Slice(_number(found["start"]), _number(found["end"]))


def _unescaped(name: str) -> str:
    """Reads the escapes of JSON; within single quotes a double quote needs none."""
    as_json = re.sub(r"\\.|\"", lambda each: {"\\'": "'", '"': '\\"'}.get(each[0], each[0]), name)
    try:
        return str(json.loads(f'"{as_json}"', strict=False))
    except ValueError:
        raise ViewFailed(f"path has a name that cannot be read: {shorten(name, 40)!r}. {HELP}") from None


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-") else None


def _text(step: Step) -> str:
    match step:
        case Key(name):
            return f".{name}" if _PLAIN.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]"
        case Index(number):
            return f"[{number}]"
        case Slice(start, end):
            return f"[{'' if start is None else start}:{'' if end is None else end}]"
        case _:
            return "[*]"
