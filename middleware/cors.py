"""Lets pages of the origins in ``server.allowed_origins`` read answers (CORS; FACE-59).

A browser first asks by a preflight, without a credential; it is answered here, in front of the key check. No cookie is
ever a credential of ours, so none is allowed.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from middleware.hosts import HostRule

_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"Mcp-Session-Id, Retry-After, WWW-Authenticate, X-Correlation-ID"
_KEPT_S = b"600"
"""Seconds for which a browser may keep the answer to a preflight."""
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_MAX_NAMES = 64


class CorsMiddleware:
    """*rule* takes the origins that may read. Stands behind the check of Host and Origin."""

    def __init__(self, app: ASGIApp, rule: HostRule) -> None:
        self._app = app
        self._rule = rule

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        origin = _value(scope, b"origin")
        if origin is None or not self._rule.takes_origin(origin.decode("latin-1")):
            return await self._app(scope, receive, send)
        allowed = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        if scope["method"] == "OPTIONS" and _value(scope, b"access-control-request-method") is not None:
            return await _answer_preflight(scope, allowed, send)
        shown = [*allowed, (b"access-control-expose-headers", _EXPOSED)]

        async def readable(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *shown]
            await send(message)

        await self._app(scope, receive, readable)


async def _answer_preflight(scope: Scope, allowed: list[tuple[bytes, bytes]], send: Send) -> None:
    # Any header: those of a tool's own arguments are not known beforehand.
    asked = (_value(scope, b"access-control-request-headers") or b"").split(b",")[:_MAX_NAMES]
    names = b",".join(name for each in asked if _NAME.fullmatch(name := each.strip()))
    headers = [
        *allowed,
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _KEPT_S),
        *([(b"access-control-allow-headers", names)] if names else []),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _value(scope: Scope, name: bytes) -> bytes | None:
    """The value of the only header of that *name*."""
    values: list[bytes] = [value.strip() for key, value in scope["headers"] if key == name]
    return values[0] if len(values) == 1 else None
