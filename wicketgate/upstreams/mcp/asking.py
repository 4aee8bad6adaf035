"""The requests that a server may make of the client of a call, and the capabilities that it is shown for them
(UP-80, UP-99 to UP-101).

A question to a person is always passed on. The client's model (sampling) and its folders (roots) are offered to a
server only where the operator said so (``upstreams[].forward``).
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal

from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.ports import SILENT, CallContext, Caller, CannotAsk, PassingCaller

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"

CAPABILITY: Mapping[str, str] = {ELICIT: "elicitation", SAMPLE: "sampling", ROOTS: "roots"}
"""By method, the capability of a client that answers it."""

Forwarded = Literal["sampling", "roots"]

APPS = "io.modelcontextprotocol/ui"
_PAGES = "text/html;profile=mcp-app"

_REJECTED = -1
"""The code of a request that a person has refused (2025-11-25, sampling)."""


def own_capabilities(forward: Collection[str]) -> Mapping[str, Any]:
    """The capabilities of the gate itself, in a handshake and in requests that no client asked for: all that some
    client may have."""
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
    """The part of a caller's capabilities that a server is shown.

    Context of other servers is never put beside a prompt (``sampling.context``), because here they are all the gate's.
    No server hears of changed roots (``roots.listChanged``): each call has those of its own client.
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


def offered_methods(forward: Collection[str]) -> frozenset[str]:
    """The requests of a server that may be passed on to a client."""
    return frozenset(method for method, name in CAPABILITY.items() if method == ELICIT or name in forward)


def offered(context: CallContext, forward: Collection[str]) -> CallContext:
    """*context* with its caller as far as the server may use it."""
    if context.caller is SILENT or isinstance(context.caller, OfferedCaller):
        return context
    return context.having(caller=OfferedCaller(context.caller, forward))


class OfferedCaller(PassingCaller):
    """*caller*, with the capabilities that the server is shown, asked for nothing else."""

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
    """The message for a server whose request nobody answered. *rejected*: a person refused it."""
    if method == ELICIT:
        return {"jsonrpc": "2.0", "id": request_id, "result": {"action": "cancel"}}
    error = {"code": METHOD_NOT_FOUND, "message": "The client of this call does not answer this."}
    if rejected:
        error = {"code": _REJECTED, "message": "The request was rejected."}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}
