"""``server__name``: taken apart once when a request comes in, put back in what goes out (S2 "Boundary Translation").

In between everything sees clean names. Pure code; what a server or tool of such a name is, is not known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.faces.surface import Refusal

SEPARATOR = "__"

INVALID_PARAMS = -32602


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request of MCP. *name* is its tool, its prompt or the URI of its resource."""

    method: str
    name: str
    arguments: object = None
    id: int | str | None = None


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """A clean request, where it goes, and what the client called it: errors speak of that (S2 "RoutedRequest")."""

    request: McpRequest
    target_server: str
    namespaced_name: str

    def update_request(self, request: McpRequest) -> "RoutedRequest":
        """The same route for a request that was changed on the way; its name may be another now.

        Raises ValueError when id or method are not what they were (S2 "Routing Invariants").
        """
        if request.id != self.request.id:
            raise ValueError(f"cannot change the request's id from {self.request.id!r} to {request.id!r}")
        if request.method != self.request.method:
            raise ValueError(f"cannot change the request's method from {self.request.method} to {request.method}")
        return replace(self, request=request)


@dataclass(frozen=True, slots=True)
class _Kind:
    noun: str
    form: str
    example: str


_KINDS: Mapping[str, _Kind] = {
    "tools/call": _Kind("Tool", "server__tool", " (e.g., 'filesystem__echo')"),
    "resources/read": _Kind("Resource", "server__uri", ""),
    "resources/subscribe": _Kind("Resource", "server__uri", ""),
    "resources/unsubscribe": _Kind("Resource", "server__uri", ""),
    "prompts/get": _Kind("Prompt", "server__prompt", ""),
    "completion/complete": _Kind("Prompt", "server__prompt", ""),
}
_RESOURCE_REFERENCE = _Kind("Resource", "server__uri", "")


def join_name(server: str, name: str) -> str:
    return f"{server}{SEPARATOR}{name}"


def parse_incoming_request(
    method: str,
    params: object,
    *,
    id: int | str | None = None,
    aliases: Mapping[str, tuple[str, str]] | None = None,
) -> RoutedRequest:
    """Take the name in *params* apart at its first ``__``; *aliases* are names that stand for a server and a name.

    *params* is whatever came in. Raises Refusal (-32602) for what names no server or nothing of it (S2 "Parse-Time
    Errors").
    """
    kind, key, holder = _KINDS[method], "uri" if method.startswith("resources/") else "name", params
    if method == "completion/complete":
        holder = params.get("ref") if isinstance(params, Mapping) else None
        if isinstance(holder, Mapping) and holder.get("type") == "ref/resource":
            kind, key = _RESOURCE_REFERENCE, "uri"
    name = holder.get(key) if isinstance(holder, Mapping) else None
    if name is None:
        raise Refusal(INVALID_PARAMS, f"{kind.noun} call missing required '{key}' parameter")
    if not isinstance(name, str):
        raise Refusal(INVALID_PARAMS, f"{kind.noun} call needs a string as its '{key}' parameter")
    arguments: Any = params.get("arguments") if isinstance(params, Mapping) else None
    server, separator, own_name = name.partition(SEPARATOR)
    if aliases and name in aliases:
        server, own_name = aliases[name]
    elif not (server and separator and own_name):
        raise Refusal(
            INVALID_PARAMS,
            f"{kind.noun} '{name[:_SHOWN]}' is not properly namespaced. "
            f"All {kind.noun.lower()} calls must use '{kind.form}' format{kind.example}",
        )
    return RoutedRequest(McpRequest(method, own_name, arguments, id), server, name)


_SHOWN = 256


def prepare_outgoing_response(message: str, routed: RoutedRequest) -> str:
    """*message* with the request's own name given as the client knows it (S2 "Error Message Re-namespacing")."""
    return restore_name(message, routed.request.name, routed.namespaced_name)


def restore_name(text: str, name: str, namespaced_name: str) -> str:
    """Replace *name* where it stands whole: no letter, digit or ``_`` on either side. Everything else stays.

    An empty *name* stands nowhere.
    """
    if not name:
        return text
    parts: list[str] = []
    done = at = 0
    while (at := text.find(name, at)) >= 0:
        end = at + len(name)
        if _bounds(text[at - 1 : at]) and _bounds(text[end : end + 1]):
            parts += text[done:at], namespaced_name
            done = at = end
        else:
            at += 1
    return "".join([*parts, text[done:]])


def _bounds(char: str) -> bool:
    return not (char.isalnum() or char == "_")
