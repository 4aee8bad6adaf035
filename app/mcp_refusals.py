"""Refusals at the MCP doors: an HTTP status with a JSON-RPC error, whose message clients of MCP show (FACE-37)."""

from starlette.responses import JSONResponse

from wicketgate.access.shares import RETRY_AFTER_S, Scope, too_many_text
from wicketgate.faces.mcp.message import Fault
from wicketgate.mcp_names import INTERNAL_ERROR

_AWAY = Fault(INTERNAL_ERROR, "Sessions cannot be looked up at the moment; nothing was run. Try again")
_STATUS: dict[Scope, int] = {"actor": 429, "all": 503, "away": 503}


def refused(fault: Fault, status: int = 400, *, later: bool = False) -> JSONResponse:
    """*later*: the same request may be taken in a moment."""
    return JSONResponse(fault.as_json(), status, {"Retry-After": str(RETRY_AFTER_S)} if later else None)


def too_many(things: str, scope: Scope) -> JSONResponse:
    """The refusal of a request for which there is no room."""
    data = {"scope": scope, "retry_after_s": RETRY_AFTER_S}
    return refused(Fault(INTERNAL_ERROR, too_many_text(things, scope), data=data), _STATUS[scope], later=True)


def sessions_away() -> JSONResponse:
    return refused(_AWAY, 503, later=True)


def unavailable(message: str, request_id: int | str | None = None, *, later: bool = False) -> JSONResponse:
    return refused(Fault(INTERNAL_ERROR, message, request_id), 503, later=later)
