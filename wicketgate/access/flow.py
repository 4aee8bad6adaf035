"""The origin of the destinations of a call (ACCESS-261 to ACCESS-266).

A destination is *known* if the user wrote it, if a trusted tool returned it, or if the operator's list allows it. All
others are *strange* once the session has read an untrusted source. Nothing here interprets texts, so rewording or
disguising an attack changes nothing.
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
"""Reading something known renews the life of a memory only if less than this fraction of it is left."""
_UNREADABLE = "what this session has read cannot be looked up at the moment"


MEMORY_S = 8 * 3_600.0
"""A session forgets what it has read this long after the last reading."""


@dataclass(frozen=True, slots=True)
class FlowRules:
    """The operator's labels. All except *destinations* only suppress approvals.

    *trusted*: patterns of tools whose results no stranger can write. *annotated*: servers whose ``readOnlyHint`` is
    trusted. *destinations*: further names of arguments, by pattern. *allow*: addresses, URLs and values, with ``*``.
    """

    trusted: Sequence[str] = ()
    annotated: frozenset[str] = frozenset()
    destinations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    allow: Sequence[str] = ()

    def trusts(self, names: ToolNames) -> bool:
        return any(_matches(pattern, names) for pattern in self.trusted)

    def allows(self, destination: Destination) -> bool:
        return any(is_allowed(glob, destination) for glob in self.allow)

    def names_in(self, names: ToolNames) -> frozenset[str]:
        """Returns the names of arguments that the operator declared as destinations of this tool."""
        found = (several for pattern, several in self.destinations.items() if _matches(pattern, names))
        return frozenset(name for several in found for name in several)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A result of an untrusted source: the tool or resource, the time in seconds since the epoch, and the request."""

    tool: str
    at: float
    correlation_id: str


class SessionMemory(msgspec.Struct, array_like=True):
    """The memory of one session. It holds hashes of destinations, never texts. *seen*: untrusted tools. *known*:
    destinations that trusted tools returned or a person accepted. *places*: the first place of each destination."""

    seen: dict[str, float] = {}
    known: dict[int, None] = {}
    places: dict[int, Place] = {}

    def holds(self, tool: str, values: Iterable[str]) -> bool:
        """Returns True if reading *values* from *tool* would add nothing."""
        return tool in self.seen and all(_hash(value) in self.places for value in values)

    def read(self, place: Place, values: Sequence[str]) -> bool:
        """Records *values* of an untrusted source. Returns False if all were recorded before."""
        if self.holds(place.tool, values):
            return False
        # Later tools and places never replace the first, so that a session cannot lose that it has read.
        if len(self.seen) < _MOST_SEEN:
            self.seen.setdefault(place.tool, place.at)
        for value in values:
            self.places.setdefault(_hash(value), place)
        _cut(self.places, _MOST_PLACES)
        return True

    def learn(self, values: Iterable[str]) -> bool:
        """Records destinations as known. Returns False if all were known before."""
        hashes = [each for each in map(_hash, values) if each not in self.known]
        self.known.update(dict.fromkeys(hashes))
        _cut(self.known, _MOST_KNOWN)
        return bool(hashes)

    def knows(self, destination: Destination) -> bool:
        return any(_hash(name) in self.known for name in destination.names)

    def place_of(self, destination: Destination) -> Place | None:
        """Returns the first place that contained *destination*; None if none is recorded."""
        found = (self.places.get(_hash(name)) for name in reversed(destination.names))
        return next((place for place in found if place is not None), None)


@dataclass(frozen=True, slots=True)
class CallFlow:
    """The flow of one call, for rules and for the people and models that read about it. *session* is the key of its
    memory. *seen*: the untrusted tools that the session has read. *strange* is empty if *seen* is empty. *places*: the
    place of each strange destination, by its text. *unknown*: the memory is unavailable, so every destination is
    strange. *memory* is None if it must be renewed soon. *hears*: the gate receives the user's words."""

    session: str
    seen: Sequence[str] = ()
    strange: Sequence[Destination] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    unknown: bool = False
    memory: SessionMemory | None = None
    hears: bool = False

    def for_model(self) -> str:
        """Returns the reason for the approval and what the model should do; empty if nothing was read."""
        read = _UNREADABLE if self.unknown else f"this session has read {_listed(self.seen)}"
        if not self.strange:
            return f"{read[0].upper()}{read[1:]}. Others may have written what it gives." if self.seen else ""
        named = _listed([each.text for each in self.strange])
        why = f"The destination {named} is not from the user, a trusted tool or the operator's list, and {read}."
        return f"{why} If the user named it, ask the user to write it." if self.hears else why

    def for_person(self) -> str:
        """Returns the text for the person who decides: each strange destination and the place that it came from."""
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
        """The names of the destinations that a person may accept for the session; empty if not all can be shown."""
        if len(self.strange) > MOST_SHOWN or not all(each.names for each in self.strange):
            return ()
        return tuple(each.names[-1] for each in self.strange)


NO_FLOW = CallFlow("")
"""The flow of calls without flow rules, and of requests that are no calls."""


def strange_among(
    destinations: Iterable[Destination], rules: FlowRules, knows: Callable[[Destination], bool], said: Sequence[str]
) -> list[Destination]:
    """Returns the destinations without a known origin. *said* holds the user's messages."""
    left = [each for each in destinations if not rules.allows(each) and not knows(each)]
    if not left or not said:
        return left
    # Only the most recent messages, because searching a very long conversation would delay each call.
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
    """Quotes and escapes unusual texts, so that a person sees where they end and which characters they contain."""
    shown = text if re.fullmatch(r"[\w@.:/?=&%+#-]+", text, re.ASCII) else json.dumps(text)
    return shown if len(shown) <= _MOST_SHOWN_CHARS else f"{shown[:_MOST_SHOWN_CHARS]}..."
