"""How a definition differs from the one that was accepted, to be read by a person (W-PINS)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wicketgate.catalog.declared import canonical, declared
from wicketgate.catalog.narrowing import WORDS, narrowing, same_but_for_words

MAX_LINES = 40
MAX_LINE_CHARS = 160
_MAX_LEAVES = 20_000
_BEFORE_THE_DIFFERENCE = 40

Impact = Literal["breaking", "compatible", "words"]
"""``breaking``: it can break callers; ``words``: nothing but descriptions differ, which is what misleads models."""


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """*reasons* why it can break callers. *lines*: ``- path: value`` and ``+ path: value``, bounded, ASCII only."""

    impact: Impact
    reasons: tuple[str, ...]
    lines: tuple[str, ...]


def compare_definitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> DefinitionChange:
    """Of one tool; what a pin does not cover is not looked at. Linear in the definitions, but for ``anyOf``."""
    old, new = declared(old), declared(new)
    try:
        reasons = narrowing(old.get("inputSchema", {}), new.get("inputSchema", {}))
        if "outputSchema" in old and not _same_output(old, new):
            reasons += ("the result: its schema changed",)
        impact: Impact = "breaking" if reasons else "words" if _only_words(old, new) else "compatible"
    except ValueError:
        impact, reasons = "breaking", ("too large, or nested too deeply, to be compared",)
    return DefinitionChange(impact, reasons, _told(old, new))


def _same_output(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "outputSchema" in new and same_but_for_words(old["outputSchema"], new["outputSchema"])


def _only_words(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    rest = (old.keys() | new.keys()) - WORDS
    return all(key in old and key in new and same_but_for_words(old[key], new[key]) for key in rest)


def _told(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    before, now = dict(_leaves(old)), dict(_leaves(new))
    lines: list[str] = []
    differing = [path for path in sorted(before.keys() | now.keys()) if before.get(path) != now.get(path)]
    for path in differing:
        was, is_ = before.get(path), now.get(path)
        start = _first_difference(was or "", is_ or "") if was is not None and is_ is not None else 0
        for sign, text in (("-", was), ("+", is_)):
            if text is not None:
                lines.append(_line(sign, path, text, start))
        if len(lines) >= MAX_LINES and path is not differing[-1]:
            lines.append(f"... and {len(differing) - differing.index(path) - 1} more places")
            break
    return tuple(lines)


def _leaves(value: object) -> Iterator[tuple[str, str]]:
    """Every value that is not a container, by its path, as JSON that shows what is hidden."""
    waiting: list[tuple[str, object]] = [("", value)]
    for _ in range(_MAX_LEAVES):
        if not waiting:
            return
        path, item = waiting.pop()
        if isinstance(item, Mapping) and item:
            waiting += [(f"{path}.{key}" if path else str(key), inner) for key, inner in item.items()]
        elif isinstance(item, list) and item and not all(isinstance(inner, str | int | float) for inner in item):
            waiting += [(f"{path}[{index}]", inner) for index, inner in enumerate(item)]
        else:
            yield path, canonical(item)


def _line(sign: str, path: str, text: str, start: int) -> str:
    shown_path = canonical(path[: MAX_LINE_CHARS // 2])[1:-1]
    skipped = max(0, start - _BEFORE_THE_DIFFERENCE) if len(text) > MAX_LINE_CHARS - len(shown_path) else 0
    room = MAX_LINE_CHARS - len(shown_path)
    shown = ("..." if skipped else "") + text[skipped : skipped + room]
    return f"{sign} {shown_path}: {shown}{'...' if len(text) > skipped + room else ''}"


def _first_difference(one: str, other: str) -> int:
    """By halving, since comparing slices is what Python does fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
