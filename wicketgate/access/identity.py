"""Who is calling, and what a permission covers (S3 "Auth Middleware").

Permissions are written ``memory:*,tools:github:*``: levels parted by colons, where ``*`` as the last level covers
everything below it and ``*`` between two colons covers any one level.
"""

import re
from dataclasses import dataclass

ACTOR_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,127}")
PERMISSION_PATTERN = re.compile(r"(?:[A-Za-z0-9_.@-]+|\*)(?::(?:[A-Za-z0-9_.@-]+|\*))*")


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller. *permissions* keep the order in which they were granted."""

    actor: str
    permissions: tuple[str, ...] = ()

    def allows(self, wanted: str) -> bool:
        """Whether any granted permission covers *wanted*, e.g. ``tools:github:create_issue``."""
        levels = wanted.split(":")
        return any(_covers(granted.split(":"), levels) for granted in self.permissions)


LOCAL = Identity("local", ("*",))
"""The caller where there is no other: the program that embeds the gate, or that started it over stdio."""


def parse_permissions(text: str) -> tuple[str, ...]:
    """Split a comma list. Raises ValueError that names the first item that is not a permission."""
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    for item in items:
        if not PERMISSION_PATTERN.fullmatch(item):
            raise ValueError(f"not a permission: {item!r}")
    return items


def _covers(granted: list[str], wanted: list[str]) -> bool:
    for position, level in enumerate(granted):
        if level == "*" and position == len(granted) - 1:
            return position < len(wanted)
        if position >= len(wanted) or level not in ("*", wanted[position]):
            return False
    return len(granted) == len(wanted)
