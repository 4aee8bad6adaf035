"""contextweaver's Router, as its ProxyRuntime sets it up, for the routing harness; ``routing_adapter.py`` is ours.

Loaded by path in the peer's environment, so it knows nothing of this program.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def build(tools: Sequence[Mapping[str, Any]]) -> Callable[[str, int], list[str]]:
    """*tools*: ``{key, server, name, description, inputSchema?}``. The key stands in for the id."""
    selectable: Any = import_module("contextweaver.types").SelectableItem
    items = [
        selectable(
            id=tool["key"],
            kind="tool",
            name=tool["name"],
            description=tool["description"],
            namespace=re.sub(r"[^a-z0-9_-]+", "-", tool["server"].lower()).strip("-_"),
            args_schema=tool.get("inputSchema") or {},
        )
        for tool in tools
    ]
    graph = import_module("contextweaver.routing.tree").TreeBuilder().build(items)
    # The beam that its ProxyRuntime sets; the Router alone would take 2.
    router: Any = import_module("contextweaver.routing.router").Router(graph, items=items, top_k=10, beam_width=3)
    return lambda query, k: list(router.route(query).candidate_ids[:k])
