"""The extensions of the servers, shown to clients of the handshake era, whose version has no place for them in the SDK
(ROUTE-50)."""

from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from wicketgate.faces.surface import Offers


class ShownExtensions:
    """Middleware of the SDK's server: the answer to ``initialize`` names the extensions of *offers*."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method != "initialize" or not isinstance(result, dict) or not (shown := self._offers.extensions()):
            return result
        return {**result, "capabilities": {**result.get("capabilities", {}), "extensions": dict(shown)}}
