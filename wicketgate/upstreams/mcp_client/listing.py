"""All tools of a server: every page of ``tools/list``, as it came (S1; gateway 120 to 122).

Nothing is checked here but what the protocol asks of a client: the catalog reads each definition by itself, so that a
bad one costs only itself.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp.shared.inbound import X_MCP_HEADER_KEY, find_invalid_x_mcp_header, x_mcp_header_map

from wicketgate.upstreams.mcp_client.failure import NOT_VALID, Malformed

log = logging.getLogger("wicketgate.upstream")

_MAX_PAGES = 1_000
_MAX_TOOLS = 100_000

Page = Callable[[str | None], Awaitable[Mapping[str, Any]]]
"""One page, by its cursor."""


@dataclass(frozen=True, slots=True)
class Listing:
    """*mirrored*: by tool, the arguments that travel in headers too (2026-07-28, ``x-mcp-header``)."""

    tools: list[Any]
    mirrored: Mapping[str, Mapping[tuple[str, ...], str]]


async def read_listing(name: str, page: Page, *, mirrors: bool) -> Listing:
    """A server that repeats a cursor, or never ends, is cut off. Raises Malformed, and what *page* raises."""
    tools: list[Any] = []
    mirrored: dict[str, Mapping[tuple[str, ...], str]] = {}
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(_MAX_PAGES):
        result = await page(cursor)
        given = result.get("tools")
        if not isinstance(given, list):
            raise Malformed(NOT_VALID)
        tools += _usable(name, given, mirrored) if mirrors else given
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            return Listing(tools, mirrored)
        if len(tools) > _MAX_TOOLS:
            break
        seen.add(cursor)
    log.warning("%s: tools/list did not end after %d tools; the rest is left out", name, len(tools))
    return Listing(tools, mirrored)


def _usable(name: str, tools: Sequence[Any], mirrored: dict[str, Mapping[tuple[str, ...], str]]) -> list[Any]:
    """Without the tools whose header annotations are invalid, which a client must not use."""
    kept = []
    for tool in tools:
        schema = tool.get("inputSchema") if isinstance(tool, dict) else None
        if isinstance(schema, dict) and isinstance(tool.get("name"), str) and X_MCP_HEADER_KEY in repr(schema):
            if find_invalid_x_mcp_header(schema) is not None:
                log.warning("%s: the tool %.100r is left out: its header annotations are invalid", name, tool["name"])
                continue
            mirrored[tool["name"]] = x_mcp_header_map(schema)
        kept.append(tool)
    return kept
