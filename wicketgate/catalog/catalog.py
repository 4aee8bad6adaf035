"""An immutable snapshot of every tool: its item, its card and its place (CARD-14, CARD-15).

A new snapshot is built whole beside the one in force. What did not change is taken over from it.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from wicketgate.catalog.card import ChoiceCard, build_card, build_inner_card
from wicketgate.catalog.clusters import Leaf
from wicketgate.catalog.graph import ChoiceGraph, Inner
from wicketgate.catalog.router import Router
from wicketgate.catalog.selectable import SelectableItem, mcp_tool_to_selectable
from wicketgate.catalog.tool_id import ToolId, Visible, parse_tool_id, shorten_tool_id
from wicketgate.errors import CatalogError, HydrateFailed
from wicketgate.tokens import TokenCounter, shipped_token_counter


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
    """A definition that cannot be read: its position in ``tools/list``, and the reason."""

    server: str
    index: int
    reason: str


class Catalog:
    """A snapshot that never changes: of all upstreams by ``build_catalog``, or of items that you made by hand.

    *items* are the tools that can be browsed and run; *quarantine* says by id why a tool's card cannot fit; *skipped*
    lists unreadable definitions; *subscriptions* are the ids that no tool call can carry (CARD-18). *version* is 16 hex
    digits over the content, the same for any order of tools.
    """

    def __init__(self, items: Iterable[SelectableItem] = (), tokens: TokenCounter | None = None) -> None:
        """Raises CatalogError when two of *items* have one id."""
        tokens = tokens or shipped_token_counter()
        entries: dict[_Key, _Entry] = {}
        for item in items:
            entry = _by_hand(item, tokens)
            # An id is no digest, so no definition of an upstream has this key.
            key = ("", False, entry.item.id)
            if key in entries:
                raise CatalogError(f"two tools have the id {entry.item.id}")
            entries[key] = entry
        self._put_together(entries, (), tokens, None)

    def with_items(self, items: Iterable[SelectableItem]) -> "Catalog":
        """Returns a catalog of these tools and *items*. Raises CatalogError when two have one id."""
        return Catalog([*(entry.item for entry in self._entries.values()), *items], self._tokens)

    def _put_together(
        self,
        entries: "Mapping[_Key, _Entry]",
        skipped: Sequence[SkippedDefinition],
        tokens: TokenCounter,
        previous: "Catalog | None",
    ) -> None:
        # The tools with a card, those without, and the size of all definitions.
        by_id = {entry.item.id: entry for entry in entries.values()}
        self._entries = entries
        self._cards = {tool_id: entry.card for tool_id, entry in sorted(by_id.items()) if entry.card is not None}
        self._tokens = tokens
        self.items: Mapping[str, SelectableItem] = MappingProxyType(
            {tool_id: by_id[tool_id].item for tool_id in self._cards}
        )
        self.quarantine: Mapping[str, str] = MappingProxyType(
            {tool_id: entry.reason for tool_id, entry in sorted(by_id.items()) if entry.reason}
        )
        self.subscriptions = tuple(
            sorted(tool_id for tool_id, entry in by_id.items() if entry.item.operation == "subscription")
        )
        self.skipped = tuple(skipped)
        self._definition_chars = sum(entry.chars for entry in by_id.values() if entry.card is not None)
        self.version = _version(by_id)
        # The two ways to find a tool, each built on the previous catalog's.
        self.graph: ChoiceGraph = ChoiceGraph(self.items.values(), previous.graph if previous else None)
        self.router: Router = _router(self.items, previous)
        # For a caller that may see everything; built here, because a level can hold thousands of them.
        self._inner_cards: dict[str, tuple[Inner, ChoiceCard]] = dict(previous._inner_cards) if previous else {}
        self._inner_cards = {
            node.path: (node, self._inner_card(node)) for node in self.graph.walk() if isinstance(node, Inner)
        }

    def all(self) -> tuple[SelectableItem, ...]:
        """The tools that can be browsed and run, ascending by id."""
        return tuple(self.items.values())

    def get(self, tool_id: str) -> SelectableItem | None:
        return self.items.get(tool_id)

    def hydrate(self, tool_id: str) -> HydrationResult:
        """Schemas, examples and hints of a tool. Raises HydrateFailed when there is none of this id."""
        item = self.items.get(tool_id)
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
        card = self._cards.get(ToolId(tool_id))
        if card is None:
            raise _no_such_tool(tool_id)
        return card if score is None else replace(card, score=score)

    def cards_at(self, path: Sequence[str], visible: Visible | None = None) -> tuple[ChoiceCard, ...]:
        """The cards of what stands at *path*, in the graph of the visible tools. Raises PathNotFound (BROWSE-12)."""
        return tuple(
            self._cards[node.tool_id] if isinstance(node, Leaf) else self._inner_card(node)
            for node in self.graph.children(path, visible)
        )

    def _inner_card(self, node: Inner) -> ChoiceCard:
        kept = self._inner_cards.get(node.path)
        if kept is not None and kept[0] == node:
            return kept[1]
        return build_inner_card(node.path, node.label, node.namespace, node.tool_count, node.members, self._tokens)

    def definition_chars(self, visible: Visible | None = None) -> int:
        """The length of the definitions of the visible tools together, as JSON: what a prompt is spared."""
        if visible is None:
            return self._definition_chars
        return sum(entry.chars for entry in self._entries.values() if entry.card is not None and visible(entry.item.id))


def build_catalog(
    definitions: Mapping[str, Sequence[object]],
    tokens: TokenCounter,
    *,
    previous: Catalog | None = None,
    infer: Collection[str] = (),
) -> Catalog:
    """A snapshot of the tools of all upstreams, in wire JSON by the upstream's configured name.

    The tools of the upstreams in *infer* take their namespace from their own names. What *previous* already knows is
    taken over by content. Pure and free of shared state, so it can run in a thread. Raises CatalogError when two
    tools have one id (CARD-14); *previous* is untouched then.
    """
    entries: dict[_Key, _Entry] = {}
    skipped: list[SkippedDefinition] = []
    origin: dict[ToolId, _Entry] = {}
    known = previous._entries if previous else {}
    for server, index, definition in _listed(definitions):
        try:
            if not isinstance(definition, Mapping):
                raise CatalogError("definition: not an object")
            digest, chars = _fingerprint(definition)
            key = (server, server in infer, digest)
            entry = known.get(key) or _read(definition, key, chars, tokens)
        except CatalogError as failure:
            skipped.append(SkippedDefinition(server, index, str(failure)))
            continue
        twin = origin.setdefault(entry.item.id, entry)
        if key in entries or twin is not entry:
            raise CatalogError(f"two tools have the id {entry.item.id}: {_origin(twin.item)} and {_origin(entry.item)}")
        entries[key] = entry
    catalog = Catalog.__new__(Catalog)
    catalog._put_together(entries, skipped, tokens, previous)
    return catalog


_Key = tuple[str, bool, str]
"""Upstream, whether its namespaces are inferred, digest of the definition: all that an entry depends on."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """*chars*: length of the definition as JSON. *card* is None for a subscription, and when it cannot fit, which has
    a *reason*."""

    item: SelectableItem
    digest: str
    chars: int
    card: ChoiceCard | None
    reason: str


def _no_such_tool(tool_id: str) -> HydrateFailed:
    return HydrateFailed("No tool has this id. Find one with tool_browse.", path=tool_id)


def _listed(definitions: Mapping[str, Sequence[object]]) -> Iterator[tuple[str, int, object]]:
    for server, listed in definitions.items():
        yield from ((server, index, definition) for index, definition in enumerate(listed))


def _fingerprint(definition: Mapping[str, Any]) -> tuple[str, int]:
    """Digest and length of the definition as compact JSON."""
    try:
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise CatalogError("definition: nested too deeply") from None
    except (TypeError, ValueError):
        raise CatalogError("definition: not JSON") from None
    return hashlib.sha256(text.encode()).hexdigest(), len(text)


def _read(definition: Mapping[str, Any], key: _Key, chars: int, tokens: TokenCounter) -> _Entry:
    server, infer, digest = key
    return _entry(mcp_tool_to_selectable(definition, server, infer=infer), digest, chars, tokens)


def _by_hand(item: SelectableItem, tokens: TokenCounter) -> _Entry:
    schemas = {"inputSchema": dict(item.args_schema), "outputSchema": item.output_schema and dict(item.output_schema)}
    digest, chars = _fingerprint({"name": item.upstream_name, "description": item.description, **schemas})
    return _entry(item, digest, chars, tokens)


def _entry(item: SelectableItem, digest: str, chars: int, tokens: TokenCounter) -> _Entry:
    if item.operation == "subscription":
        return _Entry(item, digest, chars, None, "")
    try:
        return _Entry(item, digest, chars, build_card(item, tokens), "")
    except CatalogError as failure:
        reason = str(failure)
    shorter = _with_shorter_id(item)
    if shorter.id != item.id:
        try:
            return _Entry(shorter, digest, chars, build_card(shorter, tokens), "")
        except CatalogError:
            # Quarantine names the id that the tool would have by the rules.
            pass
    return _Entry(item, digest, chars, None, reason)


def _with_shorter_id(item: SelectableItem) -> SelectableItem:
    tool_id = shorten_tool_id(item.id, item.upstream_name, item.args_schema)
    return replace(item, id=tool_id, name=parse_tool_id(tool_id).name)


def _origin(item: SelectableItem) -> str:
    return f"{item.upstream_name!r} of {item.server}"


def _version(by_id: Mapping[ToolId, _Entry]) -> str:
    lines = "\n".join(f"{tool_id} {by_id[tool_id].item.server} {by_id[tool_id].digest}" for tool_id in sorted(by_id))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _router(items: Mapping[str, SelectableItem], previous: Catalog | None) -> Router:
    if previous is None:
        return Router.build(items.values())
    removed = [tool_id for tool_id, item in previous.items.items() if items.get(tool_id) is not item]
    added = [item for tool_id, item in items.items() if previous.items.get(tool_id) is not item]
    return previous.router.updated(removed, added) if removed or added else previous.router
