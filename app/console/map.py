"""The map of a gate: the cards that a browse could give, as rows, with the tools behind each (OPS-223, OPS-224).

Tools are given as columns, for there may be ten thousand; those of a row stand together.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.clusters import Branch, Leaf
from wicketgate.catalog.graph import is_root, parse_path, shown_children
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId, Visible
from wicketgate.config.settings import Settings
from wicketgate.config.settings.upstreams import UpstreamSettings
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.tokens import estimate_tokens

MOST_ROWS = 60
"""Rows of ``/`` before each namespace is one row."""
_MOST_MAPS = 32
_ABOUT_CHARS = 120
_LARGE = 500
_MOST_NAMED = 500
_META_NAMES = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One card: a namespace, a cluster, what stands beside the clusters of a namespace, or a single tool."""

    path: str
    label: str
    leaf: bool
    server: str
    tools: Sequence[ToolId]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The part of a map that follows from the catalog and the caller's rights alone: *rows* name their servers.
    *hidden* are the columns of tools that the caller may not use."""

    rows: Sequence[Mapping[str, Any]]
    columns: bytes
    counts: Mapping[str, int]
    behind: int
    hidden: bytes


class Maps:
    """Makes the maps of *gate*. The last ones are kept."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._kept: OrderedDict[tuple[Catalog, Visible | None, str, bool], _Drawn] = OrderedDict()
        self._model_tokens: int | None = None

    async def draw(self, path: str, context: CallContext, *, everything: bool) -> tuple[bytes, str]:
        """Returns the map at *path* as JSON, and its entity tag. *everything*: with what is quarantined, the reasons of
        upstreams, and at ``/`` the tools that are hidden from the caller. Raises PathInvalid and PathNotFound."""
        runtime = self._gate.runtime
        await runtime.browsing.prepare(context)
        catalog, visible = runtime.catalog(), runtime.visible(context)
        make = catalog, visible, path, everything
        drawn = self._kept.get(make)
        if drawn is None:
            large = len(catalog.tools) > _LARGE
            drawn = self._kept[make] = await asyncio.to_thread(_draw, *make) if large else _draw(*make)
            if len(self._kept) > _MOST_MAPS:
                self._kept.popitem(last=False)
        return self._whole(path, catalog, drawn, context, everything=everything)

    def _whole(
        self, path: str, catalog: Catalog, drawn: _Drawn, context: CallContext, *, everything: bool
    ) -> tuple[bytes, str]:
        upstreams = list(self._upstreams(drawn.counts, everything=everything))
        place = {each["name"]: number for number, each in enumerate(upstreams)}
        rows = [{**row, "upstream": place[row["server"]]} for row in drawn.rows]
        for row in rows:
            del row["server"]
        screened = self._gate.runtime.screened() if everything else {}
        flagged = {(server, name) for server, each in screened.items() for name in each.flagged}
        suspicious = (item.id for item in catalog.tools.values() if (item.server, item.upstream_name) in flagged)
        head = {
            "version": catalog.version,
            "path": path,
            "model": {"tools": _META_NAMES, "tokens": self._tokens_of_three(context), "behind": drawn.behind},
            "held": sum(len(each.held) for each in screened.values()),
            "suspicious": list(islice(suspicious, _MOST_NAMED)) if flagged else [],
            "upstreams": upstreams,
            "rows": rows,
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        body = b"".join((text[:-1], b',"columns":', drawn.columns, b',"hidden":', drawn.hidden, b"}"))
        return body, f'"{sha256(body).hexdigest()[:24]}"'

    def _tokens_of_three(self, context: CallContext) -> int:
        if self._model_tokens is None:
            tools = self._gate.surface.tools(context)
            texts = (
                json.dumps(
                    {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
                    separators=(",", ":"),  # as the greeting and README count
                )
                for tool in tools
            )
            self._model_tokens = sum(map(self._gate.runtime.tokens.count, texts))
        return self._model_tokens

    def _upstreams(self, counts: Mapping[str, int], *, everything: bool) -> Iterator[dict[str, Any]]:
        """Those with tools for this caller; all of them for who may read the whole gate."""
        kinds = kinds_of(self._gate.settings)
        troubles = self._gate.runtime.troubles()
        for name, state in self._gate.fleet.states().items():
            if not everything and not counts.get(name):
                continue
            yield {
                "name": name,
                "kind": kinds.get(name, "embedded"),
                "state": state.status.phase,
                "error": (state.status.report if everything else state.status.error) or troubles.get(name, ""),
                "tools": counts.get(name, 0),
            }


def kinds_of(settings: Settings) -> Mapping[str, str]:
    """By the name of each configured upstream, the way in which it is reached."""
    return {each.name: _kind(each) for each in settings.upstreams}


def _kind(upstream: UpstreamSettings) -> str:
    if upstream.command:
        return "stdio"
    if upstream.openapi:
        return "openapi"
    return "python" if upstream.python else upstream.transport


def rows_at(catalog: Catalog, path: str, visible: Visible | None) -> list[Row]:
    """The rows of *path*, with their visible tools. Raises PathInvalid and PathNotFound."""
    segments = parse_path(path)
    places = catalog.graph.places_at(segments, visible)
    if is_root(segments):
        rows = [row for place in places if isinstance(place, Branch) for row in _of_namespace(catalog, place, visible)]
        if len(rows) <= MOST_ROWS:
            return rows
    return [_row(catalog, place, visible) for place in places]


def _of_namespace(catalog: Catalog, branch: Branch, visible: Visible | None) -> Iterator[Row]:
    """A row for each cluster, and one for the tools beside them."""
    children = shown_children(branch, visible)
    clusters = [child for child in children if isinstance(child, Branch)]
    yield from (_row(catalog, cluster, visible) for cluster in clusters)
    if beside := [child.tool_id for child in children if isinstance(child, Leaf)]:
        label = f"other {len(beside)}" if clusters else f"all {len(beside)}"
        yield Row(branch.path, label, False, catalog.tools[beside[0]].server, beside)


def _row(catalog: Catalog, place: Branch | Leaf, visible: Visible | None) -> Row:
    if isinstance(place, Leaf):
        item = catalog.items[place.tool_id]
        return Row(place.path, item.name, True, item.server, (place.tool_id,))
    tools = [tool_id for tool_id in place.tool_ids if visible is None or visible(tool_id)]
    return Row(place.path, place.label, False, catalog.items[tools[0]].server, tools)


def _draw(catalog: Catalog, visible: Visible | None, path: str, everything: bool) -> _Drawn:
    rows, columns, counts, hidden = list[dict[str, Any]](), _Columns(catalog), dict[str, int](), _Columns(catalog)
    for row in rows_at(catalog, path, visible):
        first, tokens = len(columns.id), columns.add(row.tools)
        rows.append(
            {
                "path": row.path,
                "label": row.label,
                "leaf": row.leaf,
                "server": row.server,
                "first": first,
                "count": len(row.tools),
                "tokens": tokens,
            }
        )
    behind = 0
    for item in catalog.tools.values():
        if visible is None or visible(item.id):
            counts[item.server] = counts.get(item.server, 0) + 1
            behind += 1
    if everything and visible is not None and is_root(parse_path(path)):
        hidden.add(list(islice((each.id for each in catalog.items.values() if not visible(each.id)), _MOST_NAMED)))
    return _Drawn(rows, columns.written(), counts, behind, hidden.written())


class _Columns:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.id: list[str] = []
        self._rest: list[tuple[str, int, int, str]] = []

    def add(self, tools: Sequence[ToolId]) -> int:
        """Returns their tokens together."""
        total = 0
        for tool_id in tools:
            item = self._catalog.items[tool_id]
            tokens = estimate_tokens(self._catalog.chars_of(tool_id))
            total += tokens
            self.id.append(tool_id)
            self._rest.append((item.name, int(item.side_effects), tokens, _about(item)))
        return total

    def written(self) -> bytes:
        names = ("name", "writes", "tokens", "about")
        columns = {"id": self.id, **{name: [each[at] for each in self._rest] for at, name in enumerate(names)}}
        return json.dumps(columns, separators=(",", ":")).encode()


def _about(item: SelectableItem) -> str:
    return " ".join(item.description[: 4 * _ABOUT_CHARS].split())[:_ABOUT_CHARS]
