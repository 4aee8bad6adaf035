"""Two ways from a caller at the gate to a token for a tool server, without a browser (UP-184 to UP-186).

The caller's own token is sent to the issuer that gave it, as the subject of an exchange, and to nobody else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from wicketgate.login import token_endpoint
from wicketgate.login.carrier import Carrier
from wicketgate.login.discovery import issuer_of
from wicketgate.login.failures import Distrusted, NeedsLogin
from wicketgate.login.registrar import AuthMethod
from wicketgate.login.token_endpoint import Client
from wicketgate.login.tokens import Tokens


@dataclass(frozen=True, slots=True)
class GateClient:
    """The gate as a client that is registered at one issuer. *assertion* signs for ``private_key_jwt``."""

    client_id: str
    auth_method: AuthMethod
    client_secret: str = field(default="", repr=False)
    assertion: Callable[[str], str] | None = field(default=None, repr=False)
    token_url: str = ""
    """Empty for the token endpoint that the issuer's own metadata names."""

    async def at(self, issuer: str, carrier: Carrier) -> Client:
        """Raises LoginFailure."""
        endpoint = self.token_url or (await carrier.run(issuer_of(issuer))).token_endpoint
        return Client(issuer, endpoint, self.client_id, self.auth_method, self.client_secret, self.assertion)


class Exchange(Protocol):
    """One way to a token for one tool server."""

    async def __call__(self, issuer: str, actor: str, subject: str) -> Tokens:
        """Return a token for *actor*, whose access token *subject* the issuer with the URL *issuer* gave. Raises
        LoginFailure; NeedsLogin where the caller has first to log in with a browser."""
        ...


class TokenExchange:
    """The caller's access token for one of the tool server's, at the issuer that gave it (RFC 8693). Without *resource*
    and *audience* the issuer decides what the token is for. *carrier* makes what carries requests to the issuer with a
    URL. *now* is the time of day."""

    def __init__(
        self,
        client: GateClient,
        carrier: Callable[[str], Carrier],
        now: Callable[[], float],
        *,
        audience: str = "",
        resource: str = "",
        scopes: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._carrier = carrier
        self._now = now
        self._audience = audience
        self._resource = resource
        self._scopes = scopes

    async def __call__(self, issuer: str, actor: str, subject: str) -> Tokens:
        carrier = self._carrier(issuer)
        client = await self._client.at(issuer, carrier)
        steps = token_endpoint.exchange(
            client, subject, audience=self._audience, scopes=self._scopes, resource=self._resource, now=self._now()
        )
        tokens = await carrier.run(steps)
        if tokens.access_token == subject:
            # An issuer that hands the same token back would make the gate pass it on.
            raise Distrusted("the issuer gave back the caller's own token in place of one for the tool server")
        return tokens


class IdTokens(Protocol):
    """The ID tokens that callers brought from a login with their browser at the gate's own client of their issuer."""

    async def id_token_of(self, actor: str) -> str | None:
        """Return an ID token of *actor* that is good still; None if there is none. Raises LoginsAway."""
        ...


class IdJagExchange:
    """An assertion about the caller from its own issuer, by an ID token that was issued to *client*; with it a token
    from *server_issuer*, the issuer of the tool server, where the gate is *server_client*. *carrier* makes what carries
    requests to the issuer with a URL. *now* is the time of day."""

    def __init__(
        self,
        client: GateClient,
        server_issuer: str,
        server_client: GateClient,
        id_tokens: IdTokens,
        carrier: Callable[[str], Carrier],
        now: Callable[[], float],
        *,
        resource: str,
        scopes: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._server_issuer = server_issuer
        self._server_client = server_client
        self._id_tokens = id_tokens
        self._carrier = carrier
        self._now = now
        self._resource = resource
        self._scopes = scopes

    async def __call__(self, issuer: str, actor: str, subject: str) -> Tokens:
        id_token = await self._id_tokens.id_token_of(actor)
        if id_token is None:
            raise NeedsLogin("the caller has not logged in with a browser, so there is no ID token to exchange")
        carrier = self._carrier(issuer)
        client = await self._client.at(issuer, carrier)
        leg = token_endpoint.id_jag(
            client,
            id_token,
            audience=self._server_issuer,
            resource=self._resource,
            scopes=self._scopes,
            now=self._now(),
        )
        assertion = await carrier.run(leg)
        if assertion in (id_token, subject):
            raise Distrusted("the issuer gave back a token of the caller in place of an assertion")
        carrier = self._carrier(self._server_issuer)
        there = await self._server_client.at(self._server_issuer, carrier)
        steps = token_endpoint.jwt_bearer(
            there, assertion, scopes=self._scopes, resource=self._resource, now=self._now()
        )
        return await carrier.run(steps)
