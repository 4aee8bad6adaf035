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

    def _kept(self) -> list[str]:
        return [name for name in self.only or () if not _fits_any(name, self.off)]

    def plugins(self) -> list[dict[str, Any]]:
        """Returns the entries for ``plugins.middleware`` of the server; none if all tools are on."""
        lists = [] if self.only is None else [("allowlist", self._kept())]
        # A pattern that is on can name tools that are off. The second entry sees what the first one leaves.
        if self.off and (self.only is None or any("*" in name for name in self._kept())):
            lists.append(("denylist", list(self.off)))
        return [{"handler": "tool_manager", "config": {"mode": mode, "tools": tools}} for mode, tools in lists]

    def note(self) -> str:
        """Returns the choice in words; empty if all tools are on."""
        if self.only is not None:
            kept = self._kept()
            return f"only these tools stay enabled: {listed(kept)}" if kept else "all its tools stay disabled"
        return f"these tools stay disabled: {listed(self.off)}" if self.off else ""


ALL_TOOLS = ToolChoice()


def from_lists(only: object, off: object, notes: list[str], *, patterns: bool = False) -> ToolChoice:
    """Reads the two lists of a client, either None if it is not given. Without *patterns* the client knows no wildcard.

    Whatever cannot be read leaves fewer tools on, never more.
    """
    denied = () if off is None else _names(off, ("*",), notes)
    allowed = None
    if only is not None:
        # A name with ${ would be taken for a variable when the configuration is read.
        names = _names(only, (), notes)
        allowed = tuple(name for name in names if "${" not in name and (patterns or "*" not in name))
    return ToolChoice(allowed, tuple(name.replace("${", "*") for name in denied))


def from_rules(rules: Mapping[str, bool], prefix: str, notes: list[str]) -> ToolChoice | None:
    """Reads rules on the names of all tools; *prefix* is that of this server's. None: the server is switched off.

    Versions of the client differ in the rule that counts: the last, or the longest. Where that matters fewer tools are
    left on.
    """
    on, off, covering = list[str](), list[str](), list[str]()
    for pattern, allowed in rules.items():
        # At Claude Code mcp__name is all tools of the server, which are called mcp__name__tool.
        begins = pattern.endswith("*") and _fits(prefix, pattern) and _fits(f"{prefix}x", pattern)
        if begins or pattern == prefix.removesuffix("__"):
            covering.append(pattern)
            on = on if allowed else []
        elif pattern.startswith(prefix):
            (on if allowed else off).append(pattern.removeprefix(prefix))
    if covering and not (rules[covering[-1]] and rules[max(covering, key=len)]):
        return from_lists(on, off, notes, patterns=True) if on else None
    return from_lists(None, [name.replace("?", "*") for name in off], notes)


def _names(given: object, unreadable: tuple[str, ...], notes: list[str]) -> tuple[str, ...]:
    """Returns *unreadable* for what is no list of names, or for too many."""
    names: list[Any] = [given] if isinstance(given, str) else given if isinstance(given, list) else [None]
    are_names = all(isinstance(name, str) and len(name) <= _MAX_NAME_CHARS for name in names)
    if are_names and len(names) <= _MAX_NAMES and sum("*" in name or "${" in name for name in names) <= _MAX_PATTERNS:
        return tuple(dict.fromkeys(filter(None, names)))
    notes.append("all its tools stay disabled: a list of tools cannot be read")
    return unreadable


def listed(names: Sequence[str], most: int = _MAX_SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _fits_any(name: str, patterns: Sequence[str]) -> bool:
    return any(_fits(name, pattern) for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    """Only ``*`` is a wildcard, as in the plugin."""
    return name == pattern or ("*" in pattern and fnmatchcase(name, re.sub(r"([\[?])", r"[\1]", pattern)))
