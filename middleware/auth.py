"""Authenticates every request: none passes without an identity, and no identity comes from a header (ACCESS-1,
ACCESS-2, ACCESS-4).

``X-Actor-ID`` and ``X-Actor-Permissions``, also when spelled with ``_``, are removed first, and set once from the
credential.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from middleware.refusals import send_refusal
from wicketgate.access.identity import Identity

OPEN_PATHS = frozenset({"/healthz"})

OPTIONAL_PATHS = frozenset({"/readyz"})
"""Paths that answer without an identity too, with fewer details."""

_IDENTITY_HEADERS = frozenset({b"x-actor-id", b"x-actor-permissions"})
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="wicketgate"'),)
_MAX_CREDENTIAL = 8192
_ONLY_LOCAL = "Only callers on this machine are served, because no keys are configured"


@dataclass(frozen=True, slots=True)
class RefusedCredential:
    """The reason why a credential was refused, for the client."""

    message: str


Authenticate = Callable[[str], Awaitable[Identity | RefusedCredential]]
"""Gives the identity of a bearer credential. It must not raise."""


class AuthMiddleware:
    """``scope["state"]["identity"]`` is the Identity that the routes read.

    With *local_only* a client at an address outside this machine is refused first of all, on every path: a server other
    than ours may listen on any address.
    """

    def __init__(self, app: ASGIApp, authenticate: Authenticate, *, local_only: bool = False) -> None:
        self._app = app
        self._authenticate = authenticate
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guard(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            # No path takes a websocket, so it is closed before it is accepted.
            await send({"type": "websocket.close", "code": 1008})

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Addresses and forged headers first.
        if self._local_only and not _is_local(scope.get("client")):
            return await send_refusal(send, 403, "forbidden", _ONLY_LOCAL)
        headers = [(key, value) for key, value in scope["headers"] if _canonical(key) not in _IDENTITY_HEADERS]
        if scope["path"] in OPEN_PATHS:
            return await self._app({**scope, "headers": headers}, receive, send)
        # The credential.
        credential = _bearer(headers)
        optional = scope["path"] in OPTIONAL_PATHS
        if credential is None and optional:
            return await self._app({**scope, "headers": headers}, receive, send)
        if credential is None:
            return await send_refusal(send, 401, "unauthorized", "No credentials provided", _CHALLENGE)
        outcome = await self._authenticate(credential)
        if isinstance(outcome, RefusedCredential) and optional:
            return await self._app({**scope, "headers": headers}, receive, send)
        if isinstance(outcome, RefusedCredential):
            return await send_refusal(send, 401, "unauthorized", outcome.message, _CHALLENGE)
        # The identity, for the routes.
        headers.append((b"x-actor-id", outcome.actor.encode("latin-1")))
        headers.append((b"x-actor-permissions", ",".join(outcome.permissions).encode("latin-1")))
        scope.setdefault("state", {})["identity"] = outcome
        await self._app({**scope, "headers": headers}, receive, send)


def _is_local(client: tuple[str, int] | None) -> bool:
    """Returns True for a loopback address. A Unix socket has none, and may be that of a proxy for other machines."""
    try:
        address = ip_address(client[0] if client else "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _canonical(header: bytes) -> bytes:
    return header.lower().replace(b"_", b"-")


def _bearer(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Returns the credential of the only Authorization header. Two count as none: readers could disagree."""
    values = [value for key, value in headers if key == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, credential = values[0].decode("latin-1").partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential or len(credential) > _MAX_CREDENTIAL:
        return None
    return credential
