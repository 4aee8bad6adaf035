"""Authenticates every request: none passes without an identity, and no identity comes from a header (ACCESS-1,
ACCESS-2, ACCESS-4).

``X-Actor-ID`` and ``X-Actor-Permissions``, also when spelled with ``_``, are removed first, and set once from the
credential.
"""

from collections.abc import Awaitable
from ipaddress import ip_address

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from middleware.client_address import FORWARDING_HEADERS
from middleware.refusals import closing_headers, send_refusal
from wicketgate.access.authenticator import NO_LONGER_VALID, Authenticator, KeyUses, RefusedCredential
from wicketgate.access.identity import Identity
from wicketgate.net.addresses import unmapped
from wicketgate.ports import source_of

OPEN_PATHS = frozenset({"/healthz"})

OPTIONAL_PATHS = frozenset({"/readyz"})
"""Paths that answer without an identity too, with fewer details."""

_WELL_KNOWN = "/.well-known/"
_NO_DOCUMENT = "There is no such document; this service takes bearer keys"

_IDENTITY_HEADERS = frozenset({b"x-actor-id", b"x-actor-permissions"})
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="wicketgate"'),)
_MAX_CREDENTIAL = 8192


class AuthMiddleware:
    """``scope["state"]["identity"]`` is the Identity that the routes read, ``scope["state"]["key_use"]`` the KeyUse by
    which the request ends when its key is not good any more (ACCESS-41).

    With *local_only* a client at an address outside this machine is refused first of all, on every path: a server other
    than ours may listen on any address. *open_paths* need no credential, besides those above.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        uses: KeyUses,
        *,
        local_only: bool = False,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._open_paths = OPEN_PATHS | open_paths
        self._authenticator = authenticator
        self._uses = uses
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
        source = source_of(scope)
        if self._local_only and not _is_local(scope):
            refused = self._authenticator.refuse("not_local", source)
            return await send_refusal(send, 403, "forbidden", refused.message, closing_headers(scope))
        headers = [(key, value) for key, value in scope["headers"] if _canonical(key) not in _IDENTITY_HEADERS]
        if scope["path"] in self._open_paths:
            return await self._app({**scope, "headers": headers}, receive, send)
        if scope["path"].startswith(_WELL_KNOWN):
            # 401 would say that a document is there, and clients that look for a login (RFC 9728) would stop at it.
            return await send_refusal(send, 404, "not_found", _NO_DOCUMENT)
        # The credential.
        credential = _bearer(headers)
        optional = scope["path"] in OPTIONAL_PATHS
        if credential is None and optional:
            return await self._app({**scope, "headers": headers}, receive, send)
        outcome = self._authenticator.authenticate(credential, source)
        if isinstance(outcome, RefusedCredential) and optional:
            return await self._app({**scope, "headers": headers}, receive, send)
        if isinstance(outcome, RefusedCredential):
            return await send_refusal(send, 401, "unauthorized", outcome.message, _CHALLENGE)
        # The identity, for the routes.
        headers.append((b"x-actor-id", outcome.actor.encode("latin-1")))
        headers.append((b"x-actor-permissions", ",".join(outcome.permissions).encode("latin-1")))
        scope.setdefault("state", {})["identity"] = outcome
        await self._serve(outcome, {**scope, "headers": headers}, receive, send)

    async def _serve(self, identity: Identity, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the request for as long as its key is good. After that it is cancelled, and answered with 401 if it
        has no answer yet."""
        request = anyio.CancelScope()
        use = self._uses.begin(identity.key_id, request.cancel)
        scope["state"]["key_use"] = use

        # Returns the awaitable and awaits nothing itself: one frame less for each delta of a stream.
        def watched(message: Message) -> Awaitable[None]:
            use.answering = True
            return send(message)

        with request:
            try:
                await self._app(scope, receive, watched)
            finally:
                use.finish()
        if request.cancelled_caught and not use.answering:
            await send_refusal(send, 401, "unauthorized", NO_LONGER_VALID, _CHALLENGE)


def _is_local(scope: Scope) -> bool:
    """Returns True for a loopback address. A Unix socket has none, and may be that of a proxy for other machines.

    So may a peer that forwards: the headers of a trusted proxy have been read and removed before.
    """
    if any(key in FORWARDING_HEADERS for key, _ in scope["headers"]):
        return False
    client = scope.get("client")
    try:
        address = ip_address(client[0] if client else "")
    except ValueError:
        return False
    return unmapped(address).is_loopback


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
