"""In front of both doors: who is it? No request passes without an identity, no identity comes from outside (S3).

Headers that read ``X-Actor-ID`` or ``X-Actor-Permissions``, after ``_`` is taken for ``-`` (servers hand both on),
are removed before anything else, and set once from the credential.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from app.auth.identity import Identity
from middleware.replies import send_refusal

OPEN_PATHS = frozenset({"/healthz"})

OPTIONAL_PATHS = frozenset({"/readyz"})
"""Served without an identity too: a credential that is missing or not valid changes only how much is said."""

_IDENTITY_HEADERS = frozenset({b"x-actor-id", b"x-actor-permissions"})
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="wicketgate"'),)
_MAX_CREDENTIAL = 8192


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a credential was not taken, in words for the client."""

    message: str


Authenticate = Callable[[str], Awaitable[Identity | Refused]]
"""From a bearer credential to an identity. It must not raise."""


class AuthMiddleware:
    """``scope["state"]["identity"]`` is the Identity that the routes read."""

    def __init__(self, app: ASGIApp, authenticate: Authenticate) -> None:
        self._app = app
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guard(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            # There is no other door, and none may open unguarded: a websocket is closed before it is accepted.
            await send({"type": "websocket.close", "code": 1008})

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(key, value) for key, value in scope["headers"] if _canonical(key) not in _IDENTITY_HEADERS]
        if scope["path"] in OPEN_PATHS:
            return await self._app({**scope, "headers": headers}, receive, send)
        credential = _bearer(headers)
        optional = scope["path"] in OPTIONAL_PATHS
        if credential is None and optional:
            return await self._app({**scope, "headers": headers}, receive, send)
        if credential is None:
            return await send_refusal(send, 401, "unauthorized", "No credentials provided", _CHALLENGE)
        outcome = await self._authenticate(credential)
        if isinstance(outcome, Refused) and optional:
            return await self._app({**scope, "headers": headers}, receive, send)
        if isinstance(outcome, Refused):
            return await send_refusal(send, 401, "unauthorized", outcome.message, _CHALLENGE)
        headers.append((b"x-actor-id", outcome.actor.encode("latin-1")))
        headers.append((b"x-actor-permissions", ",".join(outcome.permissions).encode("latin-1")))
        scope.setdefault("state", {})["identity"] = outcome
        await self._app({**scope, "headers": headers}, receive, send)


def _canonical(header: bytes) -> bytes:
    return header.lower().replace(b"_", b"-")


def _bearer(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The credential of the only Authorization header; two of them are none, since two readers could differ."""
    values = [value for key, value in headers if key == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, credential = values[0].decode("latin-1").partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential or len(credential) > _MAX_CREDENTIAL:
        return None
    return credential
