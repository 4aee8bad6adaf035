"""The tools of a server that a client leaves on, and the plugin that leaves the same ones on here (OPS-84)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

_MAX_NAMES = 500
_MAX_PATTERNS = 50
_MAX_NAME_CHARS = 512
_MAX_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """*only* are the tools that are on, None for all; those in *off* are not, whatever *only* says. ``*`` is a
    wildcard."""

    only: tuple[str, ...] | None = None
    off: tuple[str, ...] = ()

    def narrowed(self, other: "ToolChoice") -> "ToolChoice":
        """Returns the tools that both leave on."""
        off = tuple(dict.fromkeys((*self.off, *other.off)))
        if self.only is None or other.only is None:
            return ToolChoice(other.only if self.only is None else self.only, off)
        common = [name for name in self.only if _fits_any(name, other.only)]
        common += [name for name in other.only if _fits_any(name, self.only)]
        return ToolChoice(tuple(dict.fromkeys(common)), off)

    def plugins(self) -> list[dict[str, Any]]:
        """Returns the entries for ``plugins.middleware`` of the server; none if all tools are on."""
        if self.only is None:
            return [_tool_manager("denylist", self.off)] if self.off else []
        kept = tuple(name for name in self.only if not _fits_any(name, self.off))
        entries = [_tool_manager("allowlist", kept)]
        # A pattern that is on can name tools that are off. The second entry sees what the first one leaves.
        if any("*" in name for name in kept) and self.off:
            entries.append(_tool_manager("denylist", self.off))
        return entries

    def note(self) -> str:
        """Returns the choice in words; empty if all tools are on."""
        if self.only is not None:
            kept = [name for name in self.only if not _fits_any(name, self.off)]
            return f"only these tools stay enabled: {listed(kept)}" if kept else "all its tools stay disabled"
        return f"these tools stay disabled: {listed(self.off)}" if self.off else ""


ALL_TOOLS = ToolChoice()


def from_lists(only: object, off: object, notes: list[str], *, patterns: bool) -> ToolChoice:
    """Reads the two lists of a client, either None if it is not given. Without *patterns* the client knows no wildcard.

    Whatever cannot be read leaves fewer tools on, never more.
    """
    allowed, denied = _names(only, notes), _names(off, notes)
    if off is not None and denied is None:
        notes.append("all its tools stay disabled: the list of disabled tools cannot be read")
        denied = ("*",)
    if only is not None and allowed is None:
        notes.append("all its tools stay disabled: the list of enabled tools cannot be read")
        allowed = ()
    starred = [name for name in (*(allowed or ()), *(denied or ())) if "*" in name]
    if starred and not patterns:
        notes.append(f"a * in the name of a tool is a wildcard here: {listed(starred)}")
        allowed = None if allowed is None else tuple(name for name in allowed if "*" not in name)
    if allowed is not None:
        # Such a name would be taken for a variable when the configuration is read.
        allowed = tuple(name for name in allowed if "${" not in name)
    return ToolChoice(allowed, tuple(name.replace("${", "*") for name in denied or ()))


def from_rules(rules: Mapping[str, bool], prefix: str, notes: list[str]) -> ToolChoice | None:
    """Reads rules on the names ``server_tool`` of all tools; *prefix* is that of the server. None: it is switched off.

    Versions of the client differ in the rule that counts: the last, or the longest. Where that matters fewer tools are
    left on, with a note.
    """
    on, off, covering = list[str](), list[str](), list[str]()
    for pattern, allowed in rules.items():
        if _covers(pattern, f"{prefix}_"):
            covering.append(pattern)
            if not allowed and on:
                notes.append(f"stays off, because a later rule says so: {listed(on)}")
                on.clear()
        elif pattern.startswith(f"{prefix}_"):
            (on if allowed else off).append(pattern.removeprefix(f"{prefix}_"))
    if covering and not (rules[covering[-1]] and rules[max(covering, key=len)]):
        return from_lists(on, off, notes, patterns=True) if on else None
    again = [name for name in on if _fits_any(name, off)]
    if again:
        notes.append(f"stays off, because another rule says so: {listed(again)}")
    return from_lists(None, [name.replace("?", "*") for name in off], notes, patterns=True) if off else ALL_TOOLS


def _covers(pattern: str, start: str) -> bool:
    """True if *pattern* fits every name that begins with *start*."""
    return pattern.endswith("*") and _fits(start, pattern) and _fits(f"{start}x", pattern)


def _names(given: object, notes: list[str]) -> tuple[str, ...] | None:
    """Returns None for what is no list of names, or for too many."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or len(given) > _MAX_NAMES:
        return None
    names = [name for name in given if isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS]
    if sum("*" in name or "${" in name for name in names) > _MAX_PATTERNS:
        return None
    if len(names) < len(given):
        notes.append("a list of tools has members that are not names")
    return tuple(dict.fromkeys(names))


def _tool_manager(mode: str, tools: tuple[str, ...]) -> dict[str, Any]:
    return {"handler": "tool_manager", "config": {"mode": mode, "tools": list(tools)}}


def listed(names: Sequence[str], most: int = _MAX_SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _fits_any(name: str, patterns: Sequence[str]) -> bool:
    return name in patterns or any(_fits(name, pattern) for pattern in patterns if "*" in pattern)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or ("*" in pattern and fnmatchcase(name, _literal(pattern)))


def _literal(pattern: str) -> str:
    """Only ``*`` is a wildcard, as in the plugin."""
    return re.sub(r"([\[?])", r"[\1]", pattern)
