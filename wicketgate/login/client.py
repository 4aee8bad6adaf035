"""The gate as a client of the issuer of one tool server: a login from the server's refusal to its tokens, and after."""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from wicketgate.login import token_endpoint
from wicketgate.login.authorize import Pending, asked_scopes, authorization, code_of
from wicketgate.login.discovery import (
    Discovery,
    Issuer,
    check_answers,
    check_endpoints,
    discover,
    issuer_again,
)
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.registrar import GivenClient, Registration, Way, redirect_uri_at, registration, way_at
from wicketgate.login.steps import ClientInvalid
from wicketgate.login.token_endpoint import Client, Tokens
from wicketgate.net.challenge import Refusal

Browse = Callable[[str], Awaitable[Mapping[str, str]]]
"""Has a person open a URL, and returns the query parameters with which the browser comes back."""


@dataclass(frozen=True, slots=True)
class LoginPlan:
    """The operator's wishes for logins at the tool server at *server_url*. *resource* is ``auto`` (as the server names
    itself), ``omit``, or a value to send. *scopes*: empty for those that the server asks for. *document_url* is that of
    the gate's documents as a client, with ``{mark}`` in place of the mark of an issuer."""

    server_url: str
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    resource: Literal["auto", "omit"] | str = "auto"
    authorize_params: Mapping[str, str] = field(default_factory=dict)
    given: GivenClient | None = None
    document_url: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """The part of a login that is kept: its tokens, and the registration under which they were given."""

    tokens: Tokens
    registration: Registration


@dataclass(eq=False, repr=False)
class LoginClient:
    """*now* is the time of day. *assertion* signs for ``private_key_jwt``, *sign_as* gives what signs so as the client
    with the id of a document. Redirect addresses begin with *base*."""

    plan: LoginPlan
    _carrier: Carrier
    _now: Callable[[], float]
    _assertion: Callable[[str], str] | None = None
    sign_as: Callable[[str], Callable[[str], str]] | None = None

    async def refusal(self) -> Refusal | None:
        """The refusal of the server to a request without a credential; None if it does not."""
        return await self._carrier.refusal_at(self.plan.server_url)

    async def look(self, refusal: Refusal | None = None) -> Discovery:
        """The server's issuer now, be it trusted or not. Raises LoginFailure, as all methods do."""
        return await self._carrier.run(discover(self.plan.server_url, refusal, self.plan.issuer))

    async def find(self, refusal: Refusal | None = None) -> Discovery:
        """The server's issuer now, for a login."""
        found = await self.look(refusal)
        if not self._is_named(found.issuer):
            check_endpoints(found.issuer)
            check_answers(found.issuer)
        return found

    async def begin(
        self,
        base: str,
        refusal: Refusal | None = None,
        *,
        known: Registration | None = None,
        granted: Iterable[str] = (),
    ) -> Pending:
        """The beginning of a login. *known* is the registration of the one before, used if it still fits; *granted* are
        scopes to keep."""
        found = await self.find(refusal)
        own = await self.register(found.issuer, base, known, self.scopes_ever(found, refusal))
        return self.ask(found, own, refusal, granted)

    def scopes_ever(self, found: Discovery, refusal: Refusal | None) -> tuple[str, ...]:
        """The scopes that a client may come to ask for there."""
        challenged = (refusal.scopes if refusal is not None else None) or ()
        named = (*self.plan.scopes, *challenged, *(found.resource.scopes or ()), *(found.issuer.scopes or ()))
        return tuple(dict.fromkeys(named))

    def registers_at(self, issuer: Issuer) -> bool:
        """True if the client at *issuer* is one that the gate asks for, and not the operator's, nor a document."""
        return self._way(issuer) == "asked"

    def redirect_uri(self, issuer: Issuer, base: str) -> str:
        """The address to which browsers come back from *issuer*, and from no other."""
        return redirect_uri_at(issuer.issuer, self._way(issuer), base)

    def _way(self, issuer: Issuer) -> Way:
        plan, has_key = self.plan, self.sign_as is not None
        return way_at(issuer, plan.given, plan.document_url, has_key=has_key, is_named=self._is_named(issuer))

    def _is_named(self, issuer: Issuer) -> bool:
        return issuer.issuer.rstrip("/") == self.plan.issuer.rstrip("/")

    async def register(
        self, issuer: Issuer, base: str, known: Registration | None = None, scopes: Iterable[str] = ()
    ) -> Registration:
        """The registration for a login at *issuer*: *known*, if it still fits, or the one that the plan leads to, which
        may ask for *scopes* if it is a new one."""
        plan = self.plan
        return await self._carrier.run(
            registration(
                issuer,
                self._way(issuer),
                base,
                given=plan.given,
                document_url=plan.document_url,
                known=known,
                now=self._now(),
                scopes=scopes,
            )
        )

    def ask(
        self,
        found: Discovery,
        own: Registration,
        refusal: Refusal | None = None,
        granted: Iterable[str] = (),
        state: str = "",
    ) -> Pending:
        """The request for the browser. *state* is as random as the one that is made without it. Raises LoginFailure."""
        scopes = asked_scopes(found, refusal, self.plan.scopes, granted)
        resource = {"auto": found.resource.resource, "omit": ""}.get(self.plan.resource, self.plan.resource)
        state, verifier = state or secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        return authorization(
            found.issuer,
            own,
            scopes,
            resource,
            state=state,
            verifier=verifier,
            more=self.plan.authorize_params,
        )

    async def finish(self, pending: Pending, came: Mapping[str, str]) -> Login:
        """The end of a login, with the query parameters that *came* back."""
        code = code_of(pending, came)
        client = self._client(pending.registration, pending.issuer)
        tokens = await self._carrier.run(token_endpoint.redeem(client, pending, code, self._now()))
        return Login(tokens, pending.registration)

    async def log_in(
        self,
        base: str,
        browse: Browse,
        refusal: Refusal | None = None,
        *,
        known: Registration | None = None,
        granted: Iterable[str] = (),
    ) -> Login:
        """A whole login. If the issuer has forgotten a client that registered itself, it is registered once more."""
        pending = await self.begin(base, refusal, known=known, granted=granted)
        try:
            return await self.finish(pending, await browse(pending.url))
        except ClientInvalid:
            if pending.registration is not known:
                raise
        pending = await self.begin(base, refusal, granted=granted)
        return await self.finish(pending, await browse(pending.url))

    async def refresh(self, login: Login) -> Login:
        """New tokens by the refresh token. The issuer is the one that gave it, and is asked for its endpoints again."""
        client = self._client(login.registration, await self.issuer(login.tokens.issuer))
        tokens = await self._carrier.run(token_endpoint.refresh(client, login.tokens, self._now()))
        return replace(login, tokens=tokens)

    async def revoke(self, login: Login) -> bool:
        """End a login at its issuer; false if that has no way to do so."""
        issuer = await self.issuer(login.tokens.issuer)
        if not issuer.revocation_endpoint:
            return False
        client = self._client(login.registration, issuer)
        await self._carrier.run(token_endpoint.revoke(client, issuer.revocation_endpoint, login.tokens))
        return True

    async def issuer(self, url: str) -> Issuer:
        """The issuer at *url*, which this server named before, as it is now."""
        issuer = await self._carrier.run(issuer_again(url, self.plan.server_url))
        if not self._is_named(issuer):
            check_endpoints(issuer)
        return issuer

    def _client(self, own: Registration, issuer: Issuer) -> Client:
        assertion = self._assertion
        if own.made == "document" and self.sign_as is not None:
            assertion = self.sign_as(own.client_id)
        return Client(
            issuer.issuer, issuer.token_endpoint, own.client_id, own.auth_method, own.client_secret, assertion
        )
