"""Where the destinations of a call come from (ACCESS-261 to ACCESS-266).

A destination is *known* if the user wrote it, if a tool that the operator trusts gave it, or if the operator's list
allows it. Everything else is *strange* as soon as the session has read what a stranger may have written. Nothing here
reads a meaning, so that no wording and no spelling gets around it.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import accumulate, islice
from typing import Any

import msgspec

from wicketgate.access.destinations import Destination, is_allowed, own_names_in, stands_in
from wicketgate.catalog.name_patterns import compile_glob, split_pattern
from wicketgate.catalog.tool_id import ToolNames

_MOST_SAID_CHARS = 100_000
_MOST_KNOWN, _MOST_PLACES, _MOST_SEEN = 2_000, 1_000, 200
_MOST_LISTED, MOST_SHOWN, _MOST_SHOWN_CHARS = 5, 20, 200
RENEWED = 0.75
"""A reading that adds nothing renews the life of a memory only if less than this part of it is left."""
_UNREADABLE = "what this session has read cannot be looked up at the moment"


@dataclass(frozen=True, slots=True)
class FlowRules:
    """The operator's labels. All but *destinations* only take questions away.

    *trusted*: patterns of tools whose results no stranger writes. *annotated*: servers whose ``readOnlyHint`` is
    believed. *destinations*: further names of arguments by pattern. *allow*: addresses, URLs and values, with ``*``.
    """

    trusted: Sequence[str] = ()
    annotated: frozenset[str] = frozenset()
    destinations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    allow: Sequence[str] = ()
    memory_s: float = 8 * 3_600.0

    def trusts(self, names: ToolNames) -> bool:
        return any(_matches(pattern, names) for pattern in self.trusted)

    def allows(self, destination: Destination) -> bool:
        return any(is_allowed(glob, destination) for glob in self.allow)

    def names_in(self, names: ToolNames) -> frozenset[str]:
        """Returns the arguments that the operator calls destinations of this tool."""
        found = (several for pattern, several in self.destinations.items() if _matches(pattern, names))
        return frozenset(name for several in found for name in several)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """The result of an untrusted tool: when it came, in seconds since the epoch, and in which request."""

    tool: str
    at: float
    correlation_id: str


class SessionMemory(msgspec.Struct, array_like=True):
    """What a session has read: hashes, and no texts. *seen*: untrusted tools. *known*: destinations that trusted tools
    gave, or that a person accepted for the session. *places*: by destination the place in which it stood."""

    seen: dict[str, float] = {}
    known: dict[int, None] = {}
    places: dict[int, Place] = {}

    def holds(self, tool: str, values: Iterable[str]) -> bool:
        """True if a reading of *tool* that gave *values* adds nothing."""
        return tool in self.seen and all(_hash(value) in self.places for value in values)

    def read(self, place: Place, values: Sequence[str]) -> bool:
        """Notes what an untrusted tool gave. Returns false if it was all noted before."""
        if self.holds(place.tool, values):
            return False
        # Neither a later tool nor a later place pushes out the first: a session that has read stays one that has.
        if len(self.seen) < _MOST_SEEN:
            self.seen.setdefault(place.tool, place.at)
        for value in values:
            self.places.setdefault(_hash(value), place)
        _cut(self.places, _MOST_PLACES)
        return True

    def learn(self, values: Iterable[str]) -> bool:
        """Notes destinations as known. Returns false if all were."""
        hashes = [each for each in map(_hash, values) if each not in self.known]
        self.known.update(dict.fromkeys(hashes))
        _cut(self.known, _MOST_KNOWN)
        return bool(hashes)

    def knows(self, destination: Destination) -> bool:
        return any(_hash(name) in self.known for name in destination.names)

    def place_of(self, destination: Destination) -> Place | None:
        """Returns the first place in which *destination* stood; None if that is not remembered."""
        found = (self.places.get(_hash(name)) for name in reversed(destination.names))
        return next((place for place in found if place is not None), None)


@dataclass(frozen=True, slots=True)
class CallFlow:
    """What rules may ask of one call, and what people and models read of it. *session* is whose memory counts. *seen*:
    the untrusted tools that it has read. *strange* is empty while *seen* is. *places*: by the text of a destination the
    place in which it stood. *unknown*: the memory could not be read, so that every destination is strange. *memory*
    is that of the session, unless it has to be renewed soon. *hears*: what the user writes is known."""

    session: str
    seen: Sequence[str] = ()
    strange: Sequence[Destination] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    unknown: bool = False
    memory: SessionMemory | None = None
    hears: bool = False

    def for_model(self) -> str:
        """Returns why the call needs an approval, and what to do; empty without a reason."""
        read = _UNREADABLE if self.unknown else f"this session has read {_listed(self.seen)}"
        if not self.strange:
            return f"{read[0].upper()}{read[1:]}. Others may have written what it gives." if self.seen else ""
        named = _listed([each.text for each in self.strange])
        why = f"The destination {named} is not from the user, a trusted tool or the operator's list, and {read}."
        return f"{why} If the user named it, ask the user to write it." if self.hears else why

    def for_person(self) -> str:
        """Returns what a person who decides has to know: each destination with the place that it came from."""
        lines = [
            f"It sends to {_host(each)}{_shown(each.text)}. As far as the gate knows, nobody here named that. "
            f"{self._where(each)}"
            for each in self.strange[:MOST_SHOWN]
        ]
        if len(self.strange) > MOST_SHOWN:
            lines.append(f"There are {len(self.strange) - MOST_SHOWN} more destinations that nobody named.")
        if not lines and self.seen:
            lines.append(f"This conversation has read {_listed(self.seen)}. Others may have written what it gives.")
        return "\n".join(lines)

    def _where(self, destination: Destination) -> str:
        if self.unknown:
            return "What this conversation has read cannot be looked up at the moment."
        place = self.places.get(destination.text)
        if place is None:
            return "It stands in no result of this conversation that is remembered: it may be put together."
        at = datetime.fromtimestamp(place.at, UTC)
        return f"It stands in what {_shown(place.tool)} gave at {at:%H:%M} UTC, request {place.correlation_id}."

    @property
    def acceptable(self) -> tuple[str, ...]:
        """The names of the destinations that a person may accept for the session: all of them, or none."""
        if len(self.strange) > MOST_SHOWN or not all(each.names for each in self.strange):
            return ()
        return tuple(each.names[-1] for each in self.strange)


NO_FLOW = CallFlow("")
"""Of what is no call, and of calls that no rule about flows is asked of."""


def strange_among(
    destinations: Iterable[Destination], rules: FlowRules, knows: Callable[[Destination], bool], said: Sequence[str]
) -> list[Destination]:
    """Returns the destinations without a known origin. *said*: the user's own words."""
    left = [each for each in destinations if not rules.allows(each) and not knows(each)]
    if not left or not said:
        return left
    # The last words first, so that a long conversation does not hold up its calls.
    lengths = accumulate(len(text) for text in reversed(said))
    last = [text for text, length in zip(reversed(said), lengths, strict=True) if length <= _MOST_SAID_CHARS]
    words = [" ".join(text.split()) for text in last]
    named = {name for text in words for name in own_names_in(text)}
    return [each for each in left if not stands_in(each, words, named)]


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _cut(kept: dict[Any, Any], most: int) -> None:
    for oldest in list(islice(kept, max(len(kept) - most, 0))):
        del kept[oldest]


def _matches(pattern: str, names: ToolNames) -> bool:
    namespace, name = map(compile_glob, split_pattern(pattern))
    return any((namespace is None or namespace(each)) and (name is None or any(map(name, own))) for each, own in names)


def _host(destination: Destination) -> str:
    host = destination.names[0].removeprefix("//") if destination.names else ""
    return f"{_shown(host)}: " if host and host not in (destination.text, destination.text.lower()) else ""


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
    return ", ".join(map(_shown, texts[:_MOST_LISTED])) + more


def _shown(text: str) -> str:
    """Quotes and escapes what is not shown as it is: a person must see where it ends, and which letters these are."""
    shown = text if re.fullmatch(r"[\w@.:/?=&%+#-]+", text, re.ASCII) else json.dumps(text)
    return shown if len(shown) <= _MOST_SHOWN_CHARS else f"{shown[:_MOST_SHOWN_CHARS]}..."
