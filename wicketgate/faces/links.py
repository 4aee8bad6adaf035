"""Links to resources inside results, prompts and definitions, under the URIs that the namespaced face reads (ROUTE-46,
ROUTE-47). What holds none is the object that came.
"""

from collections.abc import Callable, Mapping
from typing import Any

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.shown_words import safe_sources
from wicketgate.faces.uris import shown_uri

_FETCHED = ("https:", "http:", "data:")
"""A client follows these by itself; MCP keeps them for what needs no ``resources/read``."""

_PAGES = ("ui/resourceUri", "openai/outputTemplate")
"""Keys of ``_meta`` that name a page beside ``ui.resourceUri``: the one before it, and ChatGPT's."""


def with_links(result: Mapping[str, Any], server: str) -> Mapping[str, Any]:
    """A result of ``tools/call`` or ``prompts/get`` of *server*."""
    changed: dict[str, Any] = {}
    for key, rewrite in (("content", _block), ("messages", _message)):
        given = result.get(key)
        if isinstance(given, list):
            rewritten = _each(given, server, rewrite)
            if rewritten is not given:
                changed[key] = rewritten
    meta = result.get("_meta")
    if (pages := with_pages(meta, server)) is not meta:
        changed["_meta"] = pages
    return {**result, **changed} if changed else result


def with_pages(meta: object, server: str) -> object:
    """A ``_meta`` with the pages of MCP Apps that it names."""
    if meta is None or not isinstance(meta, Mapping):
        return meta
    changed: dict[str, Any] = {key: shown_uri(server, meta[key]) for key in _PAGES if isinstance(meta.get(key), str)}
    ui = meta.get("ui")
    if isinstance(ui, Mapping) and isinstance(page := ui.get("resourceUri"), str):
        changed["ui"] = {**ui, "resourceUri": shown_uri(server, page)}
    return {**meta, **changed} if changed else meta


def names_page(item: SelectableItem) -> bool:
    ui = (item.definition.get("_meta") or {}).get("ui")
    return isinstance(ui, Mapping) and isinstance(ui.get("resourceUri"), str)


def _each(given: list[Any], server: str, rewrite: Callable[[Any, str], Any]) -> list[Any]:
    rewritten = [rewrite(one, server) for one in given]
    for now, then in zip(rewritten, given, strict=True):
        if now is not then:
            return rewritten
    return given


def _message(message: Any, server: str) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    rewritten = _each(content, server, _block) if isinstance(content, list) else _block(content, server)
    return message if rewritten is content else {**message, "content": rewritten}


def _block(block: Any, server: str) -> Any:
    if type(block) is not dict and not isinstance(block, Mapping):
        return block
    if block.get("type") == "resource_link":
        return _with_uri(safe_sources(block), server)
    inner = block.get("resource") if block.get("type") == "resource" else None
    if isinstance(inner, Mapping) and (rewritten := _with_uri(inner, server)) is not inner:
        return {**block, "resource": rewritten}
    return block


def _with_uri(holder: Mapping[str, Any], server: str) -> Mapping[str, Any]:
    uri = holder.get("uri")
    if not isinstance(uri, str) or uri.lower().startswith(_FETCHED):
        return holder
    return {**holder, "uri": shown_uri(server, uri)}
