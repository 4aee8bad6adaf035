"""The Router alone, in the form that outside harnesses for routing sets take: ``build(tools) -> search(query, k)``.

They load this file by its path. ``bench.quality`` measures the whole answer of ``tool_browse`` instead.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# The harness loads this file by its path, from wherever it was started.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from wicketgate.catalog.router import Router
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId


def build(tools: Sequence[Mapping[str, Any]]) -> Callable[[str, int], list[str]]:
    """*tools*: ``{key, server, name, description, inputSchema?}``. The key stands in for the tool id."""
    router = Router.build(item(tool) for tool in tools)
    return lambda query, k: [tool_id for tool_id, _ in router.route(query, k)]


def item(tool: Mapping[str, Any]) -> SelectableItem:
    namespace = re.sub(r"[^a-z0-9_-]+", "-", tool["server"].lower()).strip("-_")
    return SelectableItem(
        id=ToolId(tool["key"]),
        kind="tool",
        name=tool["name"],
        description=tool["description"],
        namespace=namespace,
        tags=(),
        args_schema=tool.get("inputSchema") or {},
        output_schema=None,
        operation="mutation",
        side_effects=False,
        cost_hint=0.0,
        server=namespace,
        upstream_name=tool["name"],
        metadata={},
    )
