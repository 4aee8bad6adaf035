"""Arguments for a tool call, taken from the words of a message and from nowhere else (EXEC-3).

Names and types come from ``details.expected`` of a refused call. An argument that the message does not give is omitted,
so that the answer can ask for it. The script knows the arguments of two well-known servers in advance, as a model does
from its training; a wrong guess costs one refusal, which teaches the right arguments.
"""

import json
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from wicketgate.schemas.patterns import compile_pattern

MAX_MESSAGE_CHARS = 4_000

_LINE = re.compile(r"(?P<shape>.*?)(?P<required>, required)?(?:, default .*?)?(?:: (?P<description>.*))?", re.S)
_MATCHING = "string matching "
_TOKEN = re.compile(r"[^\s,;\"“”`'()<>]+")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`")
_NUMBER = re.compile(r"(?<![\w.:/~^-])-?\d{1,15}(?![\w:/-]|\.\d)")
_PATH = re.compile(r"(?<!\S)\.{0,2}/[^\s,;\"']*")
# Commits without a path are those of the repository at hand.
_HERE = re.compile(
    r"\b(?:this|the current) (?:repository|repo|directory|folder|project|checkout)\b|\bhere\b|\bcommits?\b", re.I
)
# A number goes into an optional argument only if the argument's name counts something.
_COUNTING = frozenset({"amount", "count", "first", "last", "limit", "max", "number", "quantity", "top"})
_PLACES = frozenset({"path", "repo", "repository", "dir", "directory", "folder"})
_REGIONS = frozenset(
    {"Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"}
)
_MAX_PATTERN_TOKENS = 200
_MAX_TOKEN_CHARS = 64
_MAX_CITY_WORDS = 3


@dataclass(frozen=True, slots=True)
class Filling:
    """*missing*: the required arguments for which the message gives nothing."""

    arguments: dict[str, Any]
    missing: tuple[str, ...]


def json_arguments(message: str) -> dict[str, Any]:
    """Returns the first JSON object in *message*; empty without one."""
    text = message[:MAX_MESSAGE_CHARS]
    decoder = json.JSONDecoder()
    for brace in re.finditer("{", text):
        try:
            found, _ = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def said_arguments(line: str, name: str) -> dict[str, str] | None:
    """Returns the arguments of *name* as a refusal would describe them, from the short form at the end of *line*; None
    if it is not there. ``get_order(order_id: string, limit?: integer)`` has one that is required."""
    form = re.search(rf"(?<![\w.-]){re.escape(name)}\((.*)\)$", line)
    if form is None:
        return None
    # An argument begins with its name and a colon; shapes and patterns may have commas.
    parts = re.split(r"(?:^|, )([A-Za-z_][\w.-]*)(\??): ", form[1])[1:]
    each = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {name: shape if optional else f"{shape}, required" for name, optional, shape in each}


def fill_arguments(message: str, expected: Mapping[str, Any]) -> Filling:
    """Gives each argument of *expected* the first value of *message* that fits it; no value is used twice."""
    text = message[:MAX_MESSAGE_CHARS]
    found: dict[str, Any] = {}
    missing: list[str] = []
    used: set[str | int] = set()
    # The expression matches every line, because each of its parts may be empty.
    matches = [(name, _LINE.fullmatch(str(line))) for name, line in expected.items() if name != "…"]
    lines = [(name, match) for name, match in matches if match is not None]
    # Required arguments choose first: an optional one must not take the only value.
    for name, line in sorted(lines, key=lambda one: one[1]["required"] is None):
        required = line["required"] is not None
        candidates = _candidates(text, name, line["shape"], line["description"] or "", required)
        value = next((value for value in candidates if value not in used), None)
        if value is not None:
            found[name] = value
            used.add(value)
        elif required:
            missing.append(name)
    return Filling({name: found[name] for name, _ in lines if name in found}, tuple(missing))


def _candidates(text: str, name: str, shape: str, description: str, required: bool) -> Sequence[str | int]:
    """Values of *text* that the argument may take, in the order of the text."""
    # ``maxCount`` and ``max_count`` are both max and count.
    words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
    if shape.startswith(_MATCHING):
        return _matching(text, shape.removeprefix(_MATCHING).removesuffix("|null"))
    if shape.startswith(("integer", "number")):
        return [int(digits) for digits in _NUMBER.findall(text)] if required or words & _COUNTING else ()
    # Texts by the meaning of the name, otherwise only what the message puts in quotes.
    if not shape.startswith("string"):
        return ()
    if "timezone" in words or "iana" in description.lower():
        return _zones(text)
    if words & _PLACES:
        return _PATH.findall(text) or (["."] if _HERE.search(text) else [])
    return ["".join(groups) for groups in _QUOTED.findall(text)] if required else ()


def _matching(text: str, pattern: str) -> list[str]:
    compiled = compile_pattern(pattern)
    if compiled is None:
        return []
    tokens = [token.rstrip(".!?:") for token in _TOKEN.findall(text)[:_MAX_PATTERN_TOKENS]]
    return [token for token in tokens if 0 < len(token) <= _MAX_TOKEN_CHARS and compiled.search(token)]


def _zones(text: str) -> list[str]:
    """Time zones by their IANA name, or by their city: ``New York`` gives ``America/New_York``."""
    words = re.findall(r"[A-Za-z][\w+/-]*", text)
    zones: list[str] = []
    for start in range(len(words)):
        # The longest name first, so that a word of it is not read as another city.
        for end in range(start + _MAX_CITY_WORDS, start, -1):
            if zone := _zone_names().get("_".join(words[start:end]).lower()):
                zones.append(zone)
                break
    return zones


@cache
def _zone_names() -> dict[str, str]:
    """Zones by whole name and by city, in lower case. Of two zones with one city, the first counts."""
    names = {"utc": "UTC", "gmt": "GMT"}
    for zone in sorted(zoneinfo.available_timezones()):
        region, _, city = zone.partition("/")
        # Other names are aliases: Etc, US, posix and the like.
        if region in _REGIONS and city:
            names[zone.lower()] = zone
            names.setdefault(city.rpartition("/")[2].lower(), zone)
    return names


_ZONE = "string, required: IANA timezone name"
_REPOSITORY = {"repo_path": "string, required"}
# In the form of ``details.expected``, by the tool's own name: mcp-server-time and mcp-server-git.
_EXPECTED: Mapping[str, Mapping[str, str]] = {
    "get_current_time": {"timezone": _ZONE},
    "convert_time": {
        "source_timezone": _ZONE,
        "time": "string matching ^[0-9]{1,2}:[0-9]{2}$, required",
        "target_timezone": _ZONE,
    },
    "git_log": {**_REPOSITORY, "max_count": "integer, default 10"},
    "git_status": _REPOSITORY,
    "git_diff_staged": _REPOSITORY,
    "git_diff_unstaged": _REPOSITORY,
    "git_diff": {**_REPOSITORY, "target": "string, required"},
    "git_show": {**_REPOSITORY, "revision": "string matching ^[0-9a-f]{7,40}$|^HEAD, required"},
    "git_branch": {**_REPOSITORY, "branch_type": "string, required"},
    "git_commit": {**_REPOSITORY, "message": "string, required"},
}


def known_arguments(message: str, name: str) -> Filling | None:
    """Returns the arguments of the tool *name* as far as the message gives them; None if the tool is not known."""
    expected = _EXPECTED.get(name)
    return None if expected is None else fill_arguments(message, expected)
