"""All tools of a server: every page of ``tools/list``, as it came (S1; gateway 120 to 122).

Only the rules for a client are checked here: the catalog reads each definition by itself, so that a bad one costs only
itself. One rule is about arguments that travel in headers too (2026-07-28, ``x-mcp-header``): a tool whose annotations
are invalid must not be used.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wicketgate.upstreams.mcp.call import NOT_VALID, Malformed

log = logging.getLogger("wicketgate.upstream")

_MAX_PAGES = 1_000
_MAX_TOOLS = 100_000

_ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = frozenset({"string", "integer", "boolean"})
# The keywords of JSON Schema whose values are schemas again. Data (default, const, enum) and references are left out.
_ONE_SCHEMA = frozenset(
    {
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    }
)
_LIST_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP_OF_SCHEMAS = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})

Page = Callable[[str | None], Awaitable[Mapping[str, Any]]]
"""Returns one page, by its cursor."""

Mirrored = Mapping[tuple[str, ...], str]
"""The arguments of one tool that travel in headers too: by path, the name of the header."""


@dataclass(frozen=True, slots=True)
class Listing:
    """*mirrored* is by tool."""

    tools: list[Any]
    mirrored: Mapping[str, Mirrored]


async def read_listing(name: str, page: Page, *, mirrors: bool) -> Listing:
    """Read page after page. A server that repeats a cursor, or never ends, is cut off. Raises Malformed, and the
    exceptions of *page*."""
    tools: list[Any] = []
    mirrored: dict[str, Mirrored] = {}
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


def mirrored_arguments(schema: Any) -> Mirrored | None:
    """None if an annotation of *schema* is not valid: it must stand on a string, integer or boolean that is reached by
    ``properties`` alone, and be a token of its own."""
    found: dict[tuple[str, ...], str] = {}
    for path, position in _positions(schema):
        if _ANNOTATION not in position:
            continue
        header, kind = position[_ANNOTATION], position.get("type")
        if not path or not isinstance(header, str) or not _TOKEN.fullmatch(header):
            return None
        if not isinstance(kind, str) or kind not in _TYPES:
            return None
        found[path] = header
    names = {header.lower() for header in found.values()}
    return found if len(names) == len(found) else None


def _usable(name: str, tools: Sequence[Any], mirrored: dict[str, Mirrored]) -> list[Any]:
    """The tools without those whose annotations are invalid."""
    kept = []
    for tool in tools:
        schema = tool.get("inputSchema") if isinstance(tool, dict) else None
        if isinstance(schema, dict) and isinstance(tool.get("name"), str) and _ANNOTATION in repr(schema):
            arguments = mirrored_arguments(schema)
            if arguments is None:
                log.warning("%s: the tool %.100r is left out: its header annotations are invalid", name, tool["name"])
                continue
            mirrored[tool["name"]] = arguments
        kept.append(tool)
    return kept


def _positions(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within *root*, with its path; the path is None where a keyword other than ``properties`` was passed.

    Works with a stack of its own, so that no depth of a schema is too much.
    """
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while stack:
        path, position = stack.pop()
        if not isinstance(position, dict):
            continue
        yield path, position
        for keyword, value in position.items():
            if keyword == "properties" and isinstance(value, dict):
                stack += [(None if path is None else (*path, key), member) for key, member in value.items()]
            elif keyword in _ONE_SCHEMA:
                stack.append((None, value))
            elif keyword in _LIST_OF_SCHEMAS and isinstance(value, list):
                stack += [(None, member) for member in value]
            elif keyword in _MAP_OF_SCHEMAS and isinstance(value, dict):
                stack += [(None, member) for member in value.values()]
