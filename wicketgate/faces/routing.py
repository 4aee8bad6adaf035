"""Names of the form ``server__name``, and URIs: split once when a request comes in, restored in what goes out
(ROUTE-1, ROUTE-14).

All code in between sees clean names. A tool whose name no model could say gets a short alias (ROUTE-6).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId, without_accents
from wicketgate.faces.surface import Refusal
from wicketgate.faces.uris import MAX_URI_CHARS, shown_uri, split_uri
from wicketgate.mcp_names import INVALID_PARAMS

SEPARATOR = "__"


# The tool names that model APIs accept.
SPEAKABLE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNSPEAKABLE = re.compile(r"[^a-zA-Z0-9_-]+")
_WORD = re.compile(r"\w")

_MAX_CHARS = 64
_DIGEST_CHARS = 8
_FEW_CHARS = 3
_MAX_SHOWN = 256
# Each character of a server's URI may be shown as twelve.
_MAX_SHOWN_URI = 16 * MAX_URI_CHARS


class RoutedRequest(msgspec.Struct, frozen=True):
    """An MCP request with the server that it is for. *name* is the server's own for the tool, the prompt or the URI;
    *namespaced_name* is the client's, which errors use (ROUTE-1)."""

    method: str
    name: str
    arguments: object
    target_server: str
    namespaced_name: str


# For each kind of name: the noun of its errors, its parameter, and the form that clients must use.
_TOOL = ("Tool", "name", "'server__tool' format (e.g., 'filesystem__echo')")
_RESOURCE = ("Resource", "uri", "'server+scheme://...' format")
_PROMPT = ("Prompt", "name", "'server__prompt' format")
_KINDS = {"tools": _TOOL, "resources": _RESOURCE, "skills": _RESOURCE, "prompts": _PROMPT, "completion": _PROMPT}


def join_name(server: str, name: str) -> str:
    return f"{server}{SEPARATOR}{name}"


def parse_incoming_request(
    method: str, params: object, *, aliases: Mapping[str, tuple[str, str]] | None = None
) -> RoutedRequest:
    """Split the name in unchecked *params* at its first ``__``, and a URI as it is shown, or as ``server__uri``.
    *aliases* stand for a server and a name.

    Raises Refusal (-32602) for a name without a server, or with nothing after it (ROUTE-2).
    """
    fields: Mapping[str, Any] = params if type(params) is dict or isinstance(params, Mapping) else {}
    noun, key, form = _KINDS[method.partition("/")[0]]
    # A completion names its prompt or resource in a reference.
    holder = fields
    if method == "completion/complete":
        holder = ref if isinstance(ref := fields.get("ref"), Mapping) else {}
        if holder.get("type") == "ref/resource":
            noun, key, form = _RESOURCE
    name = holder.get(key)
    if name is None:
        raise Refusal(INVALID_PARAMS, f"{noun} call missing required '{key}' parameter")
    if not isinstance(name, str):
        raise Refusal(INVALID_PARAMS, f"{noun} call needs a string as its '{key}' parameter")
    server, _, own_name = name.partition(SEPARATOR)
    if key == "uri" and len(name) > _MAX_SHOWN_URI:
        raise Refusal(INVALID_PARAMS, f"{noun} '{name[:_MAX_SHOWN]}' has a URI that is too long")
    if key == "uri":
        server, own_name = split_uri(name) or (server, own_name)
    if aliases and name in aliases:
        server, own_name = aliases[name]
    elif not (server and own_name):
        raise Refusal(
            INVALID_PARAMS,
            f"{noun} '{name[:_MAX_SHOWN]}' is not properly namespaced. All {noun.lower()} calls must use {form}",
        )
    if key == "uri" and len(own_name) > MAX_URI_CHARS:
        raise Refusal(INVALID_PARAMS, f"{noun} '{name[:_MAX_SHOWN]}' has a URI that is too long")
    return RoutedRequest(method, own_name, fields.get("arguments"), server, name)


def data_with_uri(data: object, routed: RoutedRequest) -> object:
    """The *data* of a server's error, its ``uri`` in the form that the client knows (ROUTE-45)."""
    uri = data.get("uri") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(uri, str):
        return data
    own = uri == routed.name
    return {**data, "uri": routed.namespaced_name if own else shown_uri(routed.target_server, uri)}


def restore_name(text: str, name: str, namespaced_name: str) -> str:
    """Replace *name* where it is a whole word: no letter, digit or ``_`` on either side. An empty *name* is nowhere."""
    if not name:
        return text
    # A loop, since compiling a pattern from a client's very long name would block the event loop.
    parts: list[str] = []
    done = at = 0
    while (at := text.find(name, at)) >= 0:
        end = at + len(name)
        if _WORD.fullmatch(text[at - 1 : at]) or _WORD.fullmatch(text[end : end + 1]):
            at += 1
        else:
            parts += text[done:at], namespaced_name
            done = at = end
    return "".join([*parts, text[done:]])


class ToolNames:
    """The names of one catalog: the tool of each name, and the shown name of each tool. Of two tools with one name the
    first by id gets it; the others are *unreachable*."""

    def __init__(self, items: Iterable[SelectableItem]) -> None:
        targets: dict[tuple[str, str], ToolId] = {}
        shown: dict[ToolId, str] = {}
        aliases: dict[str, tuple[str, str]] = {}
        self.unreachable: list[ToolId] = []
        for item in sorted(items, key=lambda item: item.id):
            target = (item.server, item.listed_name)
            if target in targets:
                self.unreachable.append(item.id)
                continue
            targets[target] = item.id
            full = join_name(*target)
            shown[item.id] = alias = speakable_name(full, item.title or "")
            if alias != full:
                aliases[alias] = target
        self.targets: Mapping[tuple[str, str], ToolId] = MappingProxyType(targets)
        self.shown: Mapping[ToolId, str] = MappingProxyType(shown)
        self.aliases: Mapping[str, tuple[str, str]] = MappingProxyType(aliases)
        self.servers = frozenset(server for server, _ in targets)


def speakable_name(full: str, title: str = "") -> str:
    """Returns *full* if models can say it, otherwise the part that they can say and a digest that makes it unique.

    A name in another script leaves too little of itself, so the words of the *title* replace it, if it has any.
    """
    if SPEAKABLE.fullmatch(full):
        return full
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    kept = _UNSPEAKABLE.sub("_", without_accents(full))
    server, _, own = kept.partition(SEPARATOR)
    words = _UNSPEAKABLE.sub("_", without_accents(title[:_MAX_SHOWN])).strip("_")
    if words and not full.isascii() and len(own.replace("_", "")) < _FEW_CHARS:
        kept = join_name(server, words)
    return f"{kept[: _MAX_CHARS - _DIGEST_CHARS - 1]}_{digest}"
