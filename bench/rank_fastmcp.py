"""FastMCP's BM25 search transform in the quality table: a server with all tools, asked by its ``search_tools``.

A tool's name is ``<server>_<name>``, as FastMCP names the tools of a server that is mounted.
"""

import json
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bench.ranking import Answer
from bench.routing_sets import Tool, namespaces

logging.disable(logging.WARNING)  # it logs three lines for each name that it finds odd

_fastmcp: Any = import_module("fastmcp")
_base: Any = import_module("fastmcp.tools.base")
_search: Any = import_module("fastmcp.server.transforms.search")


class Fastmcp:
    remarks = ("the whole call of search_tools in process; its default is five whole definitions, as JSON",)
    _server: Any
    _keys: dict[str, str]

    async def build(self, tools: Sequence[Tool]) -> None:
        servers = namespaces(tools)
        self._server = _fastmcp.FastMCP("all")
        self._keys = {}
        for tool in tools:
            name = f"{servers[tool['server']]}_{tool['name']}"
            while name in self._keys:
                name += "_"
            self._keys[name] = tool["key"]
            schema = tool.get("inputSchema") or {"type": "object", "properties": {}}
            self._server.add_tool(_base.Tool(name=name, description=tool["description"], parameters=schema))
        self._server.add_transform(_search.BM25SearchTransform())

    async def browse(self, query: str) -> Answer:
        result = await self._server.call_tool("search_tools", {"query": query})
        text = "\n".join(block.text for block in result.content)
        return Answer([self._keys[tool["name"]] for tool in json.loads(text or "[]")], text)

    async def ranked(self, query: str, answer: Answer) -> Sequence[str]:
        return answer.keys


ranking: Callable[[], Fastmcp] = Fastmcp
