"""Checks of well-formed requests within the SDK's server, with our own error texts (FACE-4, FACE-5, ROUTE-2)."""

from typing import Any

from mcp import types as t
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from wicketgate.faces.mcp.opening import check_small

_NAMED = {
    "tools/call": ("Tool", "name"),
    "prompts/get": ("Prompt", "name"),
    "resources/read": ("Resource", "uri"),
    "resources/directory/read": ("Directory", "uri"),
    "skills/get": ("Skill", "uri"),
}


class RequestCheck:
    """Middleware of the SDK's server that refuses bad method names, and requests without the name that they need."""

    def __init__(self, server: "Server[Any]") -> None:
        self._server = server

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "initialize":
            check_small(ctx)
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
