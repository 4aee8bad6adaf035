"""Authenticates every request: none passes without an identity, and no identity comes from a header (ACCESS-1,
ACCESS-2, ACCESS-4).

``X-Actor-ID``, ``X-Actor-Permissions`` and ``X-Actor-Signature``, also when spelled with ``_``, are removed first; the
first two are set once from the credential. They are read only where a trusted gateway in front is configured, and from
its addresses alone (ACCESS-140).
"""

from collections.abc import Callable
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from middleware.answer import Answer
from middleware.client_address import FORWARDING_HEADERS, peer_of
from middleware.refusals import closing_headers, send_refusal
from wicketgate.access.authenticator import NO_LONGER_VALID, Authenticator, KeyUses, RefusedCredential
from wicketgate.access.identity import Identity
from wicketgate.access.resources import WELL_KNOWN
from wicketgate.access.signed_headers import IDENTITY_HEADERS, SIGNATURE
from wicketgate.net.addresses import unmapped
from wicketgate.ports import source_of
from wicketgate.task_end import EndableBlock

OPEN_PATHS = frozenset({"/healthz"})

OPTIONAL_PATHS = frozenset({"/readyz"})
"""Paths that answer without an identity too, with fewer details."""

_WELL_KNOWN = "/.well-known/"
_NO_DOCUMENT = "There is no such document; this service takes bearer keys"

_LENGTHS = frozenset(map(len, IDENTITY_HEADERS))
_MAX_CREDENTIAL = 32 * 1024
"""Tokens with the groups of a caller are long. The server bounds the whole head besides."""


class AuthGuard:
    """``scope["state"]["identity"]`` is the Identity that the routes read, ``scope["state"]["key_use"]`` the KeyUse by
    which the request ends when its key is not good any more (ACCESS-41).

    With *local_only* a client at an address outside this machine is refused first of all, on every path: a server other
    than ours may listen on any address. *open_paths* need no credential, besides those above.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        uses: KeyUses,
        *,
        local_only: bool = False,
        open_paths: frozenset[str] = frozenset(),
        open_under: tuple[str, ...] = (),
        page_without_key: Callable[[Scope], ASGIApp | None] = lambda scope: None,
    ) -> None:
        """*open_paths*, and all below *open_under*, need no credential. *page_without_key* may answer a request that
        has none."""
        self._page_without_key = page_without_key
        self._open_paths = OPEN_PATHS | open_paths
        self._open_under = open_under
        self._authenticator = authenticator
        self._uses = uses
        self._local_only = local_only

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Answer) -> None:
        """Serves by *app*, or refuses."""
        # Addresses and forged headers first.
        source = source_of(scope)
        if self._local_only and not _is_local(scope):
            refused = self._authenticator.refuse("not_local", source)
            return await send_refusal(send, 403, "forbidden", refused.message, closing_headers(scope))
        headers = [each for each in scope["headers"] if len(each[0]) not in _LENGTHS or not _is_identity(each[0])]
        path = scope["path"]
        if path in self._open_paths or path.startswith(self._open_under):
            return await app({**scope, "headers": headers}, receive, send)
        if path.startswith(_WELL_KNOWN):
            if self._authenticator.issuers and path.startswith(WELL_KNOWN):
                return await app({**scope, "headers": headers}, receive, send)
            # 401 would say that a document is there, and clients that look for a login (RFC 9728) would stop at it.
            return await send_refusal(send, 404, "not_found", _NO_DOCUMENT)
        # The credential.
        outcome: Identity | RefusedCredential | None = self._signed(scope, source)
        credential = _bearer(headers)
        optional = path in OPTIONAL_PATHS
        if outcome is None:
            if credential is None and optional:
                return await app({**scope, "headers": headers}, receive, send)
            outcome = self._authenticator.authenticate(credential, source, path)
        if outcome is None and credential is not None:
            outcome = await self._authenticator.verify(credential, source, path)
        if isinstance(outcome, RefusedCredential) and optional:
            return await app({**scope, "headers": headers}, receive, send)
        if not isinstance(outcome, Identity):
            page = self._page_without_key(scope) if credential is None else None
            if page is not None:
                return await page(scope, receive, send)
            presented = any(key == b"authorization" for key, _ in scope["headers"])
            return await self._refuse(outcome, path, send, presented=presented)
        # The identity, for the routes.
        headers.append((b"x-actor-id", outcome.actor.encode("latin-1")))
        headers.append((b"x-actor-permissions", ",".join(outcome.permissions).encode("latin-1")))
        state = scope.setdefault("state", {})
        state["identity"], state["authenticator"] = outcome, self._authenticator
        await self._serve(app, outcome, {**scope, "headers": headers}, receive, send)

    def _signed(self, scope: Scope, source: str) -> Identity | RefusedCredential | None:
        """Returns None for a request that the trusted gateway has not signed, or that does not come from it."""
        issuers = self._authenticator.issuers
        gateway = issuers.gateway
        if gateway is None or not gateway.trusts(peer_of(scope)):
            return None
        if not any(_canonical(key) == SIGNATURE for key, _ in scope["headers"]):
            return None
        target = scope.get("raw_path", b"").decode("latin-1")
        if scope.get("query_string"):
            target += "?" + scope["query_string"].decode("latin-1")
        identity = gateway.identity(scope["headers"], scope["method"], target, issuers.clock())
        return identity or self._authenticator.refuse("headers_refused", source)

    async def _refuse(self, refused: RefusedCredential | None, path: str, send: Send, *, presented: bool) -> None:
        refused = refused or RefusedCredential("missing")
        headers = self._authenticator.headers_of(refused, path, presented=presented)
        await send_refusal(send, refused.status, refused.code, refused.message, headers)

    async def _serve(self, app: ASGIApp, identity: Identity, scope: Scope, receive: Receive, send: Answer) -> None:
        """Serves the request for as long as its key is good. After that it is cancelled, and answered with 401 if it
        has no answer yet."""
        request = EndableBlock()
        use = self._uses.begin(identity.key_id, request.end, identity.expires_at, identity.token)
        scope["state"]["key_use"] = send.key_use = use

        with request:
            try:
                await app(scope, receive, send)
            finally:
                use.finish()
                if identity.token is not None:
                    identity.token.forget()
        if request.ended and not use.answering:
            challenge = self._authenticator.challenge(scope["path"], "invalid_token")
            await send_refusal(send, 401, "unauthorized", NO_LONGER_VALID, ((b"www-authenticate", challenge),))


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


def _is_identity(header: bytes) -> bool:
    return _canonical(header) in IDENTITY_HEADERS


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
