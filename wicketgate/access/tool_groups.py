"""Tools in groups about which most callers have one decision, and what a caller sees of them (BROWSE-75).

A caller with rights of its own is no matter of tens of thousands of tools: what it sees is a byte for each group, and
ids only for groups of which its permissions name some tools.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from wicketgate.access.identity import Reach
from wicketgate.catalog.tool_id import ToolNames, Visible

C = TypeVar("C", bound=Hashable)

NONE, WHOLE, PARTLY = range(3)
"""Shares of a group that a caller sees."""
_MOST_TRANSLATED = 256


@dataclass(frozen=True, slots=True, eq=False)
class ToolGroup(Generic[C]):
    """Tools in the same *namespaces* that the same rules match, those of *chains*: their *ids* and *names*."""

    namespaces: tuple[str, ...]
    chains: C
    ids: tuple[str, ...]
    names: tuple[ToolNames, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The tools that a caller sees: of each group NONE, WHOLE or PARTLY in *flags*, and in *some* the ids of those that
    are seen in part. *number* is the place of each tool's group. Two are equal if they are of the same tools."""

    flags: bytes
    some: frozenset[str]
    number: "dict[str, int]"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Seen)
            and self.number is other.number
            and self.flags == other.flags
            and self.some == other.some
        )

    def __hash__(self) -> int:
        return hash((self.flags, self.some))

    def test(self) -> Visible:
        """Returns the test of ids, which is asked hundreds of times a query."""
        flags, some, number = self.flags, self.some, self.number

        def visible(tool_id: str) -> bool:
            try:
                flag = flags[number[tool_id]]
            except KeyError:
                return False
            return flag == WHOLE or (flag == PARTLY and tool_id in some)

        return visible

    def ids(self) -> frozenset[str]:
        return frozenset(filter(self.test(), self.number))


class ToolGroups(Generic[C]):
    """*tools* (id, names) in groups; *number* is the place of each tool's group. *chains_of* gives the rules that match
    a tool, equal ones where the same do."""

    def __init__(self, tools: Iterable[tuple[str, ToolNames]], chains_of: Callable[[ToolNames], C]) -> None:
        grouped: defaultdict[tuple[tuple[str, ...], C], list[tuple[str, ToolNames]]] = defaultdict(list)
        for tool_id, names in tools:
            grouped[tuple(namespace for namespace, _ in names), chains_of(names)].append((tool_id, names))
        self.groups: Sequence[ToolGroup[C]] = [
            ToolGroup(namespaces, chains, tuple(tool_id for tool_id, _ in some), tuple(names for _, names in some))
            for (namespaces, chains), some in grouped.items()
        ]
        self.number = {tool_id: number for number, group in enumerate(self.groups) for tool_id in group.ids}
        self._by_namespace: defaultdict[str, list[int]] = defaultdict(list)
        for number, group in enumerate(self.groups):
            self._by_namespace[group.namespaces[0]].append(number)
        places = {chains: place for place, chains in enumerate(dict.fromkeys(each.chains for each in self.groups))}
        self._chains = tuple(places)
        self._chain_of = [places[group.chains] for group in self.groups]
        self._translated = bytes(self._chain_of) if len(places) <= _MOST_TRANSLATED else None

    def seen(self, reach: Reach, is_shown: Callable[[C], bool]) -> Seen:
        """Returns what a caller with *reach* sees; *is_shown* says whether the rules show it the tools with these
        chains."""
        if reach.everything:
            return Seen(self._all(is_shown), frozenset(), self.number)
        named = {namespace for namespace, _ in reach.tools}
        shown: dict[int, bool] = {}
        flags, found = bytearray(len(self.groups)), list[str]()
        namespaces = reach.namespaces | named
        numbers: Iterable[int] = range(len(self.groups))
        if not reach.names:
            numbers = chain.from_iterable(self._by_namespace.get(each, ()) for each in namespaces)
        for number in numbers:
            group = self.groups[number]
            whole = reach.namespaces.issuperset(group.namespaces)
            if not (whole or reach.names or namespaces.issuperset(group.namespaces)):
                continue
            place = self._chain_of[number]
            if (is_there := shown.get(place)) is None:
                is_there = shown[place] = is_shown(self._chains[place])
            if not is_there:
                continue
            if whole:
                flags[number] = WHOLE
                continue
            each = zip(group.ids, group.names, strict=True)
            some = [tool_id for tool_id, names in each if not missing_permission(reach, names)]
            # One set of tools has one form, however it came about.
            if len(some) == len(group.ids):
                flags[number] = WHOLE
            elif some:
                flags[number] = PARTLY
                found += some
        return Seen(bytes(flags), frozenset(found), self.number)

    def _all(self, is_shown: Callable[[C], bool]) -> bytes:
        by_chains = bytes(WHOLE if is_shown(chains) else NONE for chains in self._chains)
        if self._translated is not None:
            return self._translated.translate(by_chains.ljust(_MOST_TRANSLATED, b"\0"))
        return bytes(by_chains[place] for place in self._chain_of)


def missing_permission(reach: Reach, names: ToolNames) -> str:
    """Returns the permission that *reach* does not cover; empty if none. The name in the id must be covered in each
    namespace of the tool."""
    for namespace, own in names:
        if not reach.covers(namespace, own[0]):
            return f"tools:{namespace}:{own[0]}"
    return ""
