"""Refuses requests before a stream has begun: ``{code, message}`` and no other field (CHAT-2 to CHAT-24)."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from wicketgate.access.authenticator import Authenticator

_CODES = {
    404: ("not_found", "There is nothing at this path; chats are at /engine/chat, MCP at /mcp, tools at /operations"),
    405: ("method_not_allowed", "This path does not take that method"),
    408: ("request_timeout", ""),
    413: ("payload_too_large", ""),
}


class Refused(Exception):
    """Ends a request with *answer*."""

    def __init__(self, answer: JSONResponse) -> None:
        super().__init__(answer.status_code)
        self.answer = answer


def refuse(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"code": code, "message": message}, status, headers)


def refuse_permission(request: Request, permission: str, message: str = "") -> JSONResponse:
    """Refuses a caller that lacks *permission*. One with a token whose scopes could give it is told them."""
    message = message or f"This needs the permission {permission}"
    authenticator: Authenticator | None = request.scope["state"].get("authenticator")
    challenge = None
    if authenticator is not None:
        path = request.scope["path"]
        challenge = authenticator.challenge_for(request.scope["state"]["identity"], permission, path)
    if challenge is None:
        return refuse(403, "forbidden", message)
    return refuse(403, "insufficient_scope", message, {"www-authenticate": challenge.decode("latin-1")})


def need(request: Request, permission: str) -> None:
    """Raises Refused for a caller without *permission*."""
    if not request.scope["state"]["identity"].allows(permission):
        raise Refused(refuse_permission(request, permission))


def refusal_of(error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    code, message = _CODES.get(status, ("invalid_request" if status < 500 else "internal_error", ""))
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if status == 405 and "Allow" in headers:
        message += f"; it takes {headers['Allow']}"
    return refuse(status, code, message or detail, headers)


def refuse_in_one_shape(app: FastAPI) -> None:
    """Gives the framework's own refusals (unknown paths, wrong methods) the shape of the contract."""

    async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
        return refusal_of(error)

    async def on_refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Refused)
        return error.answer

    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(Refused, on_refused)
