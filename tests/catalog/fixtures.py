"""Shared by the catalog's tests: the real token counter, the exact vectors, short ways to a tool."""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wicketgate.catalog.graph import ChoiceGraph, Node
from wicketgate.catalog.selectable import SelectableItem, mcp_tool_to_selectable
from wicketgate.tokens import TokenCounter, shipped_token_counter


@functools.cache
def tokens() -> TokenCounter:
    return shipped_token_counter()


def vectors(section: str) -> list[dict[str, Any]]:
    rows = json.loads(Path(__file__).with_name("vectors.json").read_text("utf-8"))[section]
    assert rows
    return list(rows)


def definition(name: str, description: str | None = "Does it.", properties: Sequence[str] = (), **more: Any) -> Any:
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in properties}}
    return {
        "name": name,
        "inputSchema": schema,
        **({} if description is None else {"description": description}),
        **more,
    }


def item(name: str, server: str | None = "github", **more: Any) -> SelectableItem:
    made: Mapping[str, Any] = definition(name, **more)
    return mcp_tool_to_selectable(made, server)


def walk(found: ChoiceGraph) -> list[Node]:
    """Every node below the root, each before its children."""
    return [node for namespace in found.namespaces for node in found.walk_in(namespace)]
