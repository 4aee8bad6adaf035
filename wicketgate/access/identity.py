"""The caller's identity, its permissions, and the keys that prove it (ACCESS-1, ACCESS-2, ACCESS-7).

Permissions are written ``memory:*,tools:github:*``: levels parted by colons, where ``*`` as the last level covers
everything below it and ``*`` between two colons covers any one level.

A key is ``wg_<id>_<43 random characters>``. It is made once, shown once, and stored only as SHA-256 (ACCESS-1,
ACCESS-6). 256 random bits need no slow hash, which would only let any client spend the service's CPU."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

ACTOR_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,127}")
PERMISSION_PATTERN = re.compile(r"(?:[A-Za-z0-9_.@-]+|\*)(?::(?:[A-Za-z0-9_.@-]+|\*))*")


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller. *permissions* keep the order in which they were granted."""

    actor: str
    permissions: tuple[str, ...] = ()

    def allows(self, wanted: str) -> bool:
        """Returns whether any granted permission covers *wanted*, e.g. ``tools:github:create_issue``."""
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


@dataclass(frozen=True, slots=True)
class Reach:
    """The tools that permissions cover: the rule of ``Identity.allows`` for ``tools:<namespace>:<name>``.

    Testing ten thousand tools with ``allows`` would take too long for each list.
    """

    everything: bool
    namespaces: frozenset[str]
    names: frozenset[str]
    tools: frozenset[tuple[str, str]]

    def covers(self, namespace: str, name: str) -> bool:
        return self.everything or namespace in self.namespaces or name in self.names or (namespace, name) in self.tools


@lru_cache(maxsize=1_024)
def reach_of(permissions: tuple[str, ...]) -> Reach:
    everything = False
    namespaces, names, tools = set[str](), set[str](), set[tuple[str, str]]()
    for permission in permissions:
        match permission.split(":"):
            case ["*"] | ["tools" | "*", "*"] | ["tools" | "*", "*", "*"]:
                everything = True
            case ["tools" | "*", namespace, "*"]:
                namespaces.add(namespace)
            case ["tools" | "*", "*", name]:
                names.add(name)
            case ["tools" | "*", namespace, name]:
                tools.add((namespace, name))
    return Reach(everything, frozenset(namespaces), frozenset(names), frozenset(tools))


@dataclass(frozen=True, slots=True)
class HashedKey:
    """*sha256* is the hex digest of the whole key."""

    id: str
    sha256: str
    identity: Identity
    suspended: bool = False


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KeyRing:
    """The keys that are accepted, found by their hash."""

    def __init__(self, keys: Iterable[HashedKey]) -> None:
        self.replace(keys)

    def replace(self, keys: Iterable[HashedKey]) -> None:
        """Accept these keys and no others, from the next request on."""
        self._by_hash = {key.sha256: key for key in keys}

    def find(self, key: str) -> HashedKey | None:
        """Returns the key's entry. The look-up goes by hash, so the time it takes reveals nothing about any key."""
        return self._by_hash.get(hash_key(key))
