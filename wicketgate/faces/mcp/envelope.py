"""Checks of JSON-RPC messages, with our own error texts (FACE-4, FACE-5, ROUTE-2).

The SDK refuses malformed messages too, but with the text of its parser, without an id that could be read, or not at
all. A well-formed message is only checked for the name that it must have.
"""

import json
from dataclasses import dataclass
from typing import Any

from mcp import types as t
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

_NAMED = {
    "tools/call": ("Tool", "name"),
    "prompts/get": ("Prompt", "name"),
    "resources/read": ("Resource", "uri"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """The refusal of a message. *id* is that of the message if it can be read."""

    code: int
    message: str
    id: int | str | None = None

    def as_json(self) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": self.message}}


def fault_of(text: bytes | str) -> Fault | None:
    """The fault of *text*, or None for a request, a notification or a response."""
    try:
        message = json.loads(text)
    except RecursionError:
        return Fault(t.INVALID_REQUEST, "The message is nested too deeply.")
    except ValueError:
        return Fault(t.PARSE_ERROR, "The message is not valid JSON.")
    if isinstance(message, list):
        return Fault(t.INVALID_REQUEST, "A batch is not part of MCP: send one message at a time.")
    if not isinstance(message, dict):
        return Fault(t.INVALID_REQUEST, "A message must be a JSON object.")
    given = message.get("id")
    request_id = given if isinstance(given, int | str) and not isinstance(given, bool) else None
    if message.get("jsonrpc") != "2.0":
        return Fault(t.INVALID_REQUEST, 'A message must have "jsonrpc": "2.0".', request_id)
    if "method" not in message and ("result" in message or "error" in message):
        return None
    if "id" in message and request_id is None:
        return Fault(t.INVALID_REQUEST, "The id of a request must be a string or an integer.")
    if not isinstance(message.get("method"), str):
        return Fault(t.INVALID_REQUEST, "A request must name its method.", request_id)
    if not isinstance(message.get("params", {}), dict):
        return Fault(t.INVALID_PARAMS, "params must be an object.", request_id)
    return None


class RequestCheck:
    """Middleware of the SDK's server that refuses bad method names, and requests without the name that they need."""

    def __init__(self, server: "Server[Any]") -> None:
        self._server = server

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if not ctx.method:
            raise MCPError(t.INVALID_REQUEST, "Method cannot be empty")
        if ctx.method.strip() != ctx.method:
            raise MCPError(t.INVALID_REQUEST, "Method name cannot start or end with whitespace")
        if ctx.method in _NAMED and self._server.get_request_handler(ctx.method) is not None:
            _check_name(ctx)
        return await call_next(ctx)


def _check_name(ctx: ServerRequestContext[Any, Any]) -> None:
    noun, key = _NAMED[ctx.method]
    name = (ctx.params or {}).get(key)
    if name is None:
        raise MCPError(t.INVALID_PARAMS, f"{noun} call missing required '{key}' parameter")
    if not isinstance(name, str):
        raise MCPError(t.INVALID_PARAMS, f"{noun} call needs a string as its '{key}' parameter")
