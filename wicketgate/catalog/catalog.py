"""An immutable snapshot of every tool: its item, its card and its place (CARD-14, CARD-15).

A new snapshot is built whole beside the one in force. What did not change is taken over from it.
"""

import copy
import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec

from wicketgate.catalog.card import ChoiceCard, as_line, build_inner_card, counted_card, line_tokens, render_card
from wicketgate.catalog.clusters import Leaf
from wicketgate.catalog.definition_change import compact_json
from wicketgate.catalog.graph import ChoiceGraph, Inner, is_root, parse_path
from wicketgate.catalog.impacts import FieldName, fields_of
from wicketgate.catalog.router import Router, Said
from wicketgate.catalog.said_words import SaidWords
from wicketgate.catalog.selectable import SelectableItem, mcp_tool_to_selectable
from wicketgate.catalog.skills import SkillEntry, skill_to_selectable
from wicketgate.catalog.tool_id import ToolId, Visible, ids_named, namespace_of, parse_tool_id, shorter_tool_ids
from wicketgate.errors import CatalogError, HydrateFailed, PathInvalid
from wicketgate.tokens import TokenCounter, shipped_token_counter

K = TypeVar("K", bound=str)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HydrationResult:
    """The facts about a tool that its card leaves out (CARD-15). *constraints* are the server's word, not verified."""

    tool_id: ToolId
    args_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    examples: tuple[Any, ...]
    constraints: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SkippedDefinition:
    """A definition that gives no tool: its position in ``tools/list``, and the reason. It cannot be read, or an earlier
    one of its server has the same id (CARD-36)."""

    server: str
    index: int
    reason: str


_NOTHING_SAID = SaidWords()


class Catalog:
    """A snapshot that never changes: of all upstreams by ``build_catalog``, or of items that you made by hand.

    *tools* are all that can be run, *items* those of them that have a card and can be browsed; *quarantine* says by id
    why a card cannot fit (CARD-24); *skipped* lists definitions that give no tool; *subscriptions* are the ids that no
    tool call can carry (CARD-18), *app_tools* the tools that only the pages of MCP Apps may use (ROUTE-51). *version*
    is 16 hex digits over the content, the same for any order of tools.
    """

    def __init__(self, items: Iterable[SelectableItem] = (), tokens: TokenCounter | None = None) -> None:
        """Raises CatalogError when two of *items* have one id."""
        tokens = tokens or shipped_token_counter()
        entries: dict[_Key, _Entry] = {}
        for item in items:
            entry = _by_hand(item, tokens)
            # An id is no digest, so no definition of an upstream has this key.
            key: _Key = ("", "by hand", (), entry.item.id)
            if key in entries:
                raise CatalogError(f"two tools have the id {entry.item.id}")
            entries[key] = entry
        self._put_together(entries, (), tokens, None, {}, _NOTHING_SAID)

    def with_items(self, items: Iterable[SelectableItem]) -> "Catalog":
        """Returns a catalog of these tools and *items*. Raises CatalogError when two have one id."""
        own = (entry.item for entry in self._tables.entries.values())
        return Catalog([*own, *items], self._tokens).saying(self._tables.words)

    def saying(self, words: SaidWords) -> "Catalog":
        """Returns a catalog of the same tools, which are found by *words* besides their definitions (BROWSE-55)."""
        if words == self._tables.words:
            return self
        other = copy.copy(self)
        other._tables = self._tables.with_entries(self._tables.entries, words)
        other.router = other._tables.router
        return other

    def _put_together(
        self,
        entries: "Mapping[_Key, _Entry]",
        skipped: Sequence[SkippedDefinition],
        tokens: TokenCounter,
        previous: "Catalog | None",
        sections: "Mapping[str, _Section]",
        words: SaidWords,
    ) -> None:
        self._tables: _Tables = (previous._tables if previous else _Tables()).with_entries(entries, words)
        tables = self._tables
        self._sections = sections
        self._tokens = tokens
        # The tools with a card, and those without.
        self.items: Mapping[str, SelectableItem] = MappingProxyType(tables.items)
        without = [entry for entry in tables.by_id.values() if entry.card is None] if tables.without_card else []
        self.quarantine: Mapping[str, str] = MappingProxyType(
            {entry.item.id: entry.reason for entry in without if entry.reason}
        )
        # There is hardly ever a tool without a card.
        self.tools: Mapping[str, SelectableItem] = self.items
        if self.quarantine:
            self.tools = MappingProxyType(
                {key: entry.item for key, entry in tables.by_id.items() if entry.card is not None or entry.reason}
            )
        self._ids = tuple(map(ToolId, self.tools))
        self.subscriptions = tuple(entry.item.id for entry in without if entry.item.operation == "subscription")
        self.app_tools: Mapping[str, SelectableItem] = MappingProxyType(
            {entry.item.id: entry.item for entry in without if _for_apps(entry.item)}
        )
        self.skipped = tuple(skipped)
        self.version = _version(tables.by_id)
        # The two ways to find a tool.
        self.graph: ChoiceGraph = tables.graph
        self.router: Router = tables.router
        # For a caller that may see everything; built here, because a level can hold thousands of them.
        self._inner_cards: Mapping[str, _InnerCards] = previous._inner_cards if previous else {}
        if previous is None or self.graph is not previous.graph:
            self._inner_cards = {namespace: self._cards_inside(namespace) for namespace in self.graph.namespaces}
        self._root = tuple(cards.inner[f"/{namespace}"][1] for namespace, cards in self._inner_cards.items())

    def all(self) -> tuple[SelectableItem, ...]:
        """The tools that can be browsed and run, ascending by id."""
        return tuple(self.items.values())

    def get(self, tool_id: str, *, for_app: bool = False) -> SelectableItem | None:
        """*for_app*: also one of *app_tools*."""
        return self.tools.get(tool_id) or (self.app_tools.get(tool_id) if for_app else None)

    def named(self, wanted: str) -> Sequence[ToolId]:
        """Returns the tools that *wanted* names: an id whose version or hash may be left out, a path, or a namespace
        with a tool's own name (CARD-34, CARD-46). The last costs a look at each tool of the namespace."""
        if not wanted.startswith("/"):
            return ids_named(wanted, self._ids) or self._with_own_name(*wanted.partition(":")[::2])
        try:
            found = self.graph.tool_at(parse_path(wanted))
        except PathInvalid:
            found = None
        return () if found is None else (found,)

    def called(self, name: str) -> Sequence[ToolId]:
        """Returns the tools that a call of *name* may mean: ``named``, as ``server__tool``, or by the name alone."""
        return self.named(name) or self.named(name.replace("__", ":", 1)) or self._by_name.get(name, ())

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[ToolId]]:
        found: dict[str, list[ToolId]] = {}
        for each in self._ids:
            for name in {self.tools[each].name, self.tools[each].upstream_name}:
                found.setdefault(name, []).append(each)
        return found

    def _with_own_name(self, namespace: str, name: str) -> Sequence[ToolId]:
        first, end = (bisect_left(self._ids, namespace + mark) for mark in ":;")
        return [each for each in self._ids[first:end] if self.tools[each].listed_name == name]

    def hydrate(self, tool_id: str) -> HydrationResult:
        """Schemas, examples and hints of a tool. Raises HydrateFailed when there is none of this id."""
        item = self.tools.get(tool_id)
        if item is None:
            raise _no_such_tool(tool_id)
        examples = item.args_schema.get("examples")
        return HydrationResult(
            tool_id=item.id,
            args_schema=item.args_schema,
            output_schema=item.output_schema,
            examples=tuple(examples) if isinstance(examples, list) else (),
            constraints={"side_effects": item.side_effects, "cost_hint": item.cost_hint, **item.metadata},
        )

    def card(self, tool_id: str, score: float | None = None) -> ChoiceCard:
        """The tool's card as built at refresh. Raises HydrateFailed when there is none of this id."""
        entry = self._tables.by_id.get(ToolId(tool_id))
        card = entry.card if entry is not None else None
        if card is None:
            raise _no_such_tool(tool_id)
        return card if score is None else card.scored(score)

    def line_tokens(self, card: ChoiceCard) -> int:
        """As ``card.line_tokens``: known for the card of a tool here, counted for any other."""
        entry = self._tables.by_id.get(ToolId(card.id))
        if entry is not None and entry.card is not None and as_line(entry.card) == as_line(card):
            return entry.line_tokens
        return line_tokens(render_card(card), self._tokens)

    def cards_at(self, path: Sequence[str], visible: Visible | None = None) -> tuple[ChoiceCard, ...]:
        """The cards of what stands at *path*, in the graph of the visible tools. Raises PathNotFound (BROWSE-12).

        All levels but ``/`` are short. That one has a card for each namespace, of which there can be thousands: for a
        caller that may see everything they are made once, with the catalog (BROWSE-40).
        """
        if visible is None and is_root(path):
            return self._root
        return tuple(
            self.card(node.tool_id) if isinstance(node, Leaf) else self._inner_card(node)
            for node in self.graph.children(path, visible)
        )

    def namespace_card(self, namespace: str, visible: Visible) -> ChoiceCard:
        """The card of a namespace for anyone who sees some of its tools."""
        return self._inner_card(self.graph.namespace_at(namespace, visible))

    def _cards_inside(self, namespace: str) -> "_InnerCards":
        """The cards of a namespace and its clusters; those of the previous catalog if the same tools are inside."""
        place = self.graph.namespaces[namespace]
        known = self._inner_cards.get(namespace)
        if known is not None and known.place is place:
            return known
        nodes = (node for node in self.graph.walk_in(namespace) if isinstance(node, Inner))
        return _InnerCards(place, {node.path: (node, self._inner_card(node)) for node in nodes})

    def _inner_card(self, node: Inner) -> ChoiceCard:
        known = self._inner_cards.get(node.namespace)
        kept = known.inner.get(node.path) if known is not None else None
        if kept is not None and kept[0] == node:
            return kept[1]
        return build_inner_card(node.path, node.label, node.namespace, node.tool_count, node.members, self._tokens)

    def chars_of(self, tool_id: str) -> int:
        """As ``definition_chars``, of one tool; 0 for one that is not there."""
        entry = self._tables.by_id.get(ToolId(tool_id))
        return 0 if entry is None else entry.chars

    def fields_of(self, tool_id: str) -> Mapping[str, tuple[FieldName, ...]]:
        """The places where each term of a tool stands, by which it is found; none for one that is not there."""
        item = self.items.get(tool_id)
        return {} if item is None else fields_of(item, self._tables.said.get(tool_id, ()))

    def definition_chars(self) -> int:
        """The length of name, description and parameters of all tools together, as JSON: what a prompt is spared."""
        return self._tables.chars


def build_catalog(
    definitions: Mapping[str, Sequence[object]],
    tokens: TokenCounter,
    *,
    previous: Catalog | None = None,
    infer: Collection[str] = (),
    unnamed: Collection[str] = (),
    taken: Collection[str] = (),
    words: SaidWords = _NOTHING_SAID,
    spellings: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Catalog:
    """A snapshot of the tools of all upstreams, in wire JSON by the upstream's configured name.

    A definition that is a ``SkillEntry`` gives a skill (CARD-41). The tools of the upstreams in *infer* and
    *unnamed* take their namespace from their own names, but never that of another upstream: *taken* are the names
    of all that are configured (CARD-31). The names in *unnamed* were not configured. *words* are the operator's.
    What *previous* already knows is taken over by content. Pure and free of shared state, so it can run in a
    thread. Of the tools of one upstream with one id the first is taken (CARD-36). *spellings* are the servers' own
    names, by upstream (BROWSE-38).
    Raises CatalogError when tools of two upstreams have one id (CARD-14); *previous* is untouched then.
    """
    owners = {namespace_of(name): name for name in taken if name not in unnamed}
    entries: dict[_Key, _Entry] = {}
    skipped: list[SkippedDefinition] = []
    origin: dict[ToolId, tuple[int, SelectableItem]] = {}
    reading: dict[str, _Reading] = {}
    for server in definitions:
        source: _Source = "unnamed" if server in unnamed else "infer" if server in infer else "named"
        reading[server] = _Reading(server, source, spellings.get(server, ()), tokens, previous)
    for server, index, definition in _listed(definitions):
        try:
            key, entry = reading[server].entry(definition)
            _check_namespace(entry.item, owners)
        except CatalogError as failure:
            skipped.append(SkippedDefinition(server, index, str(failure)))
            continue
        twin = origin.setdefault(entry.item.id, (index, entry.item))
        if twin[1].server != entry.item.server:
            raise CatalogError(f"two tools have the id {entry.item.id}: {_origin(twin[1])} and {_origin(entry.item)}")
        if twin[0] != index:
            reason = (
                f"{entry.item.upstream_name!r} has the id {entry.item.id}, as has {server}[{twin[0]}], which is kept"
            )
            skipped.append(SkippedDefinition(server, index, reason))
            continue
        entries[key] = entry
    catalog = Catalog.__new__(Catalog)
    sections = {server: one.section() for server, one in reading.items()}
    catalog._put_together(entries, skipped, tokens, previous, sections, words)
    return catalog


_Source = Literal["named", "infer", "unnamed", "by hand"]

_Key = tuple[str, _Source, tuple[str, ...], str]
"""Upstream, where its namespaces come from, spellings of its name, digest of the definition: all that an entry depends
on."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """*chars*: length of what a model would be given of it, as JSON. *card* is None for a subscription, for a tool of
    apps only, and when it cannot fit, which has a *reason*. *line_tokens* are those of the card's line."""

    item: SelectableItem
    digest: str
    chars: int
    card: ChoiceCard | None
    reason: str
    line_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Section:
    """The definitions of one upstream that could be read, each with its key and entry. A catalog of the same objects
    takes these over unread."""

    source: _Source
    spellings: tuple[str, ...]
    definitions: tuple[object, ...]
    found: "tuple[tuple[_Key, _Entry], ...]"


class _Reading:
    """Reads the definitions of one upstream, and of these only what *previous* does not know."""

    def __init__(
        self, server: str, source: _Source, spellings: tuple[str, ...], tokens: TokenCounter, previous: Catalog | None
    ) -> None:
        self._server = server
        self._source = source
        self._spellings = spellings
        self._tokens = tokens
        self._known: Mapping[_Key, _Entry] = previous._tables.entries if previous else {}
        # The section keeps its definitions alive, so that the identity of one is no other's.
        former = previous._sections.get(server) if previous else None
        same = former is not None and (former.source, former.spellings) == (source, spellings)
        self._by_identity = (
            dict(zip(map(id, former.definitions), former.found, strict=True)) if former is not None and same else {}
        )
        self._definitions: list[object] = []
        self._found: list[tuple[_Key, _Entry]] = []

    def entry(self, definition: object) -> "tuple[_Key, _Entry]":
        """Raises CatalogError for a definition that is not well formed."""
        found = self._by_identity.get(id(definition)) or self._read(definition)
        self._definitions.append(definition)
        self._found.append(found)
        return found

    def section(self) -> _Section:
        return _Section(self._source, self._spellings, tuple(self._definitions), tuple(self._found))

    def _read(self, definition: object) -> "tuple[_Key, _Entry]":
        if not isinstance(definition, Mapping):
            raise CatalogError("definition: not an object")
        digest = _fingerprint(definition)
        key = (self._server, self._source, self._spellings, digest)
        return key, self._known.get(key) or _read(definition, key, self._tokens)


@dataclass(frozen=True, slots=True)
class _InnerCards:
    """The cards of a namespace and of the clusters in it, by path, each with the node that it shows; *place* is the
    namespace in the graph."""

    place: object
    inner: Mapping[str, tuple[Inner, ChoiceCard]]


def _no_such_tool(tool_id: str) -> HydrateFailed:
    return HydrateFailed("No tool has this id. Find one with tool_browse.", path=tool_id)


def _listed(definitions: Mapping[str, Sequence[object]]) -> Iterator[tuple[str, int, object]]:
    for server, listed in definitions.items():
        yield from ((server, index, definition) for index, definition in enumerate(listed))


def _fingerprint(definition: Mapping[str, Any]) -> str:
    """Digest of the definition as compact JSON."""
    try:
        text = compact_json(definition)
    except RecursionError:
        raise CatalogError("definition: nested too deeply") from None
    except (TypeError, ValueError):
        raise CatalogError("definition: not JSON") from None
    return hashlib.sha256(text.encode()).hexdigest()


def _chars_for_model(item: SelectableItem) -> int:
    """The length of what a model without a gate would be given: the output schema, annotations and titles are not."""
    parameters = {"name": item.name, "description": item.description, "parameters": dict(item.args_schema)}
    try:
        written = _encode(parameters)
    except (TypeError, ValueError, RecursionError):
        return len(compact_json(parameters))
    return len(written) if written.isascii() else len(compact_json(parameters))


_encode = msgspec.json.Encoder().encode


def _read(definition: Mapping[str, Any], key: _Key, tokens: TokenCounter) -> _Entry:
    server, source, spellings, digest = key
    named = source != "unnamed"
    if isinstance(definition, SkillEntry):
        item = skill_to_selectable(definition, server, named=named)
    else:
        item = mcp_tool_to_selectable(definition, server, infer=source != "named", named=named, digest=digest)
    return _entry(replace(item, spellings=spellings) if spellings else item, digest, tokens)


def _check_namespace(item: SelectableItem, owners: Mapping[str, str]) -> None:
    """Raises CatalogError for an inferred namespace that belongs to another upstream; *owners* are by namespace."""
    if item.namespace != item.home and item.namespace in owners:
        raise CatalogError(
            f"name: {item.upstream_name!r} gives the namespace {item.namespace!r}, which is that of another upstream, "
            f"{owners[item.namespace]}; rename one of the two upstreams, or use namespace: name for {item.server}"
        )


def _by_hand(item: SelectableItem, tokens: TokenCounter) -> _Entry:
    schemas = {"inputSchema": dict(item.args_schema), "outputSchema": item.output_schema and dict(item.output_schema)}
    digest = _fingerprint({"name": item.upstream_name, "description": item.description, **schemas})
    return _entry(item if item.digest else replace(item, digest=digest), digest, tokens)


def _entry(item: SelectableItem, digest: str, tokens: TokenCounter) -> _Entry:
    chars = _chars_for_model(item)
    if item.operation == "subscription" or item.app_only:
        return _Entry(item, digest, chars, None, "")
    try:
        card, count = counted_card(item, tokens)
        return _Entry(item, digest, chars, card, "", count)
    except CatalogError as failure:
        reason = str(failure)
    for tool_id in shorter_tool_ids(item.id, item.upstream_name, item.args_schema):
        shorter = replace(item, id=tool_id, name=parse_tool_id(tool_id).name)
        with suppress(CatalogError):
            card, count = counted_card(shorter, tokens)
            return _Entry(shorter, digest, chars, card, "", count)
    # Quarantine names the id that the tool would have by the rules.
    return _Entry(item, digest, chars, None, reason)


def _for_apps(item: SelectableItem) -> bool:
    return item.app_only and item.operation != "subscription"


def _origin(item: SelectableItem) -> str:
    return f"{item.upstream_name!r} of {item.server}"


def _version(by_id: Mapping[ToolId, _Entry]) -> str:
    # Ascending by id.
    lines = "\n".join(f"{tool_id} {entry.item.server} {entry.digest}" for tool_id, entry in by_id.items())
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Tables:
    """All that follows from the entries of a catalog and the operator's words. *by_id* and *items* are ascending by id;
    *items* are the tools with a card, *chars* is the length of their definitions together, and *said* are the words
    that fit them."""

    entries: Mapping[_Key, _Entry] = field(default_factory=dict)
    by_id: Mapping[ToolId, _Entry] = field(default_factory=dict)
    items: Mapping[str, SelectableItem] = field(default_factory=dict)
    chars: int = 0
    graph: ChoiceGraph = field(default_factory=ChoiceGraph)
    words: SaidWords = field(default_factory=SaidWords)
    said: Said = field(default_factory=dict)
    router: Router = field(default_factory=lambda: Router.build(()))

    @property
    def without_card(self) -> int:
        return len(self.by_id) - len(self.items)

    def with_entries(self, entries: Mapping[_Key, _Entry], words: SaidWords) -> "_Tables":
        """The tables of *entries* and *words*. What they have in common with the former ones is taken over
        (CARD-39)."""
        # A key says all that an entry depends on.
        gone = [self.entries[key] for key in self.entries.keys() - entries.keys()]
        new = [entries[key] for key in entries.keys() - self.entries.keys()]
        removed, added = ([entry.item for entry in some if entry.card is not None] for some in (gone, new))
        by_item_id: dict[str, SelectableItem] = {item.id: item for item in added}
        items = _exchanged(self.items, gone=[item.id for item in removed], new=by_item_id)
        said = self._said(words, items, removed, added)
        return _Tables(
            entries,
            _exchanged(self.by_id, gone=[e.item.id for e in gone], new={e.item.id: e for e in new}),
            items,
            self.chars + _chars(new) - _chars(gone),
            self.graph.updated(removed, added) if removed or added else self.graph,
            words,
            said,
            self._routed(said, items, removed, added),
        )

    def _said(
        self,
        words: SaidWords,
        items: Mapping[str, SelectableItem],
        removed: Iterable[SelectableItem],
        added: Iterable[SelectableItem],
    ) -> Said:
        """The words by id. Those of a tool that stays are taken over if *words* are the same."""
        if not words:
            return {}
        known = dict(self.said) if words == self.words else {}
        for item in removed:
            known.pop(item.id, None)
        found = ((item.id, words.of(item)) for item in (added if words == self.words else items.values()))
        return known | {tool_id: texts for tool_id, texts in found if texts}

    def _routed(
        self,
        said: Said,
        items: Mapping[str, SelectableItem],
        removed: Iterable[SelectableItem],
        added: Iterable[SelectableItem],
    ) -> Router:
        otherwise = {id_ for id_ in said.keys() | self.said.keys() if said.get(id_) != self.said.get(id_)}
        gone = {item.id for item in removed} | (otherwise & self.items.keys())
        new = {item.id: item for item in added} | {id_: items[id_] for id_ in otherwise if id_ in items}
        return self.router.updated(gone, new.values(), said) if gone or new else self.router


def _exchanged(before: Mapping[K, T], *, gone: Iterable[K], new: Mapping[K, T]) -> dict[K, T]:
    """Without the keys *gone* and with *new*, ascending like *before*."""
    found = dict(before)
    for key in gone:
        if key not in new:
            del found[key]
    found.update(new)
    return found if new.keys() <= before.keys() else {key: found[key] for key in sorted(found)}


def _chars(entries: Iterable[_Entry]) -> int:
    return sum(entry.chars for entry in entries if entry.card is not None)
