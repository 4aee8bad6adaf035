"""Requests that a server may send to the client of a call, and the capabilities that the server sees (UP-80, UP-99 to
UP-101).

Questions to a person (elicitation) are always forwarded. The client's model (sampling) and its folders (roots) are
available to a server only if the operator allows it (``upstreams[].forward``).
"""

from collections.abc import Collection, Mapping
from typing import Any

from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.ports import SILENT, CallContext, Caller, CannotAsk, PassingCaller

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"

CAPABILITY: Mapping[str, str] = {ELICIT: "elicitation", SAMPLE: "sampling", ROOTS: "roots"}
"""By method, the client capability that it requires."""

APPS = "io.modelcontextprotocol/ui"
_PAGES = "text/html;profile=mcp-app"

_REJECTED = -1
"""The error code of a request that a person refused (2025-11-25, sampling)."""


def own_capabilities(forward: Collection[str]) -> Mapping[str, Any]:
    """Returns the gate's own capabilities, for handshakes and for requests without a client: everything that some
    client may support."""
    capabilities: dict[str, Any] = {
        "elicitation": {"form": {}, "url": {}},
        "extensions": {APPS: {"mimeTypes": [_PAGES]}},
    }
    if "sampling" in forward:
        capabilities["sampling"] = {"tools": {}}
    if "roots" in forward:
        capabilities["roots"] = {}
    return capabilities


def shown_capabilities(declared: Mapping[str, Any], forward: Collection[str]) -> Mapping[str, Any]:
    """Returns the part of a caller's capabilities that a server sees.

    Without ``sampling.context``, which adds context of other servers: here these are all servers of the gate. Without
    ``roots.listChanged``, because each call has the roots of its own client.
    """
    shown: dict[str, Any] = {}
    if "elicitation" in declared:
        shown["elicitation"] = declared["elicitation"]
    if "sampling" in forward and isinstance(sampling := declared.get("sampling"), Mapping):
        shown["sampling"] = {"tools": sampling["tools"]} if "tools" in sampling else {}
    if "roots" in forward and "roots" in declared:
        shown["roots"] = {}
    extensions = declared.get("extensions")
    if extensions is not None and isinstance(extensions, Mapping) and APPS in extensions:
        shown["extensions"] = {APPS: extensions[APPS]}
    return shown


def asked_as_it_runs(caller: Caller) -> bool:
    """Returns True if a server may send requests to the client of *caller* during its call. *caller* is an
    ``OfferedCaller``, or silent."""
    return caller.answers == "now" and not caller.capabilities.keys().isdisjoint(CAPABILITY.values())


def offered_methods(forward: Collection[str]) -> frozenset[str]:
    """Returns the methods of server requests that may be forwarded to a client."""
    return frozenset(method for method, name in CAPABILITY.items() if method == ELICIT or name in forward)


def offered(context: CallContext, forward: Collection[str]) -> CallContext:
    """Returns *context* with its caller limited to what the server may use."""
    if context.caller is SILENT or isinstance(context.caller, OfferedCaller):
        return context
    return context.having(caller=OfferedCaller(context.caller, forward))


class OfferedCaller(PassingCaller):
    """*caller* with only the capabilities that the server sees. Answers no other requests."""

    def __init__(self, caller: Caller, forward: Collection[str]) -> None:
        super().__init__(caller)
        self._shown: Mapping[str, Any] = shown_capabilities(caller.capabilities, forward)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._shown

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if CAPABILITY.get(method) not in self._shown:
            raise CannotAsk(method)
        return await super().ask(method, params)


def unanswered(request_id: int | str, method: str, *, rejected: bool = False) -> Mapping[str, Any]:
    """Returns the reply to a server request that has no answer. *rejected*: a person refused it."""
    if method == ELICIT:
        return {"jsonrpc": "2.0", "id": request_id, "result": {"action": "cancel"}}
    error = {"code": METHOD_NOT_FOUND, "message": "The client of this call does not answer this."}
    if rejected:
        error = {"code": _REJECTED, "message": "The request was rejected."}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}
