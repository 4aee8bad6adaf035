"""The way to a grant at one tool server, over HTTP: where one logs in, the way there and back, and the tokens after.

The issuer of a login is on record before the browser goes there. What is asked of it afterwards, it is asked at the
endpoints of its own document.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from wicketgate.login.authorize import Pending, asked_scopes
from wicketgate.login.client import Login as KeptLogin
from wicketgate.login.client import LoginClient
from wicketgate.login.discovery import Discovery, Issuer
from wicketgate.login.failures import ClientInvalid, GrantInvalid, LoginFailure
from wicketgate.login.grants import Grant
from wicketgate.login.login_flow import Agreement, Login, Secrets
from wicketgate.login.logins import new_state
from wicketgate.login.recent import Recent
from wicketgate.login.registrar import Registration
from wicketgate.login.registrations import Registrations
from wicketgate.login.rows import LoginsAway
from wicketgate.login.tokens import InvalidGrant, Tokens, Unreachable
from wicketgate.net.challenge import Refusal

log = logging.getLogger("wicketgate.login")


@dataclass(frozen=True, slots=True)
class LoginPlace:
    """The way to log in at a tool server, as it was found."""

    found: Discovery
    refusal: Refusal | None

    @property
    def issuer(self) -> str:
        return self.found.issuer.issuer

    @property
    def page(self) -> str:
        """The host that browsers are sent to."""
        return urlsplit(self.found.issuer.authorization_endpoint).netloc


class ServerLogin:
    """Logins at one tool server. Browsers come back to addresses that begin with *base*. *clock* is monotonic, in
    seconds.

    Methods raise LoginFailure and LoginsAway.
    """

    def __init__(
        self,
        client: LoginClient,
        registrations: Registrations[Registration],
        base: str,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._registrations = registrations
        self._base = base
        self._place = Recent(self._find, clock)

    @property
    def url(self) -> str:
        """The URL of the tool server."""
        return self._client.plan.server_url

    async def place(self) -> LoginPlace:
        """The place to log in, now or a moment ago: whoever opens the page again and again asks nobody else for it."""
        return await self._place.get()

    async def _find(self) -> LoginPlace:
        refusal = await self._client.refusal()
        return LoginPlace(await self._client.find(refusal), refusal)

    def scopes(self, place: LoginPlace, login: Login) -> frozenset[str]:
        """The scopes that *login* asks for at *place*."""
        challenged = place.refusal.scopes if place.refusal is not None else None
        configured, found = self._client.plan.scopes, place.found
        return frozenset(
            asked_scopes(
                found.resource, found.issuer, configured=configured, challenged=challenged, granted=login.scopes
            )
        )

    async def begin(self, login: Login) -> tuple[Agreement, str]:
        """The record from the agreement to *login* on, and the URL for the browser."""
        place = await self.place()
        issuer = place.found.issuer
        own = await self._registration(place)
        pending = self._client.ask(place.found, own, place.refusal, login.scopes, new_state(login.flow))
        ours = Secrets(pending.verifier, pending.state, secrets.token_urlsafe(16))
        asked = frozenset(pending.scopes)
        place_of = (self.url, issuer.issuer, issuer.says_issuer, own.client_id, own.redirect_uri, pending.resource)
        return Agreement(*place_of, ours, asked), pending.url

    async def finish(self, login: Login, came: Mapping[str, str]) -> Tokens:
        """The tokens for what *came* back, for a *login* that ``Logins.come_back`` returned."""
        issuer = await self._client.issuer(login.issuer)
        own = await self._known(issuer, login.client_id)
        scopes = tuple(sorted(login.scopes))
        verifier, state = login.secrets.verifier, came.get("state", "")
        pending = Pending("", state, verifier, issuer, own, login.resource, scopes)
        try:
            return (await self._client.finish(pending, came)).tokens
        except ClientInvalid:
            await self._registrations.forget(own)
            raise

    async def refresh(self, tokens: Tokens) -> Tokens:
        """Implements Refresh."""
        try:
            issuer = await self._client.issuer(tokens.issuer)
            own = await self._known(issuer, tokens.client_id)
            try:
                return (await self._client.refresh(KeptLogin(tokens, own))).tokens
            except ClientInvalid:
                await self._registrations.forget(own)
                raise
        except (GrantInvalid, ClientInvalid) as failure:
            # A refresh token is good for the client alone to which it was given.
            log.info("a grant has ended: %s", failure.detail)
            raise InvalidGrant from None
        except LoginFailure as failure:
            log.warning("a grant was not refreshed: %s", failure.detail)
            raise Unreachable from None
        except LoginsAway:
            raise Unreachable from None

    async def revoke(self, grant: Grant) -> bool:
        """Have the issuer end *grant*; false if it has no way to do so."""
        issuer = await self._client.issuer(grant.issuer)
        own = await self._known(issuer, grant.tokens.client_id)
        return await self._client.revoke(KeptLogin(grant.tokens, own))

    async def _registration(self, place: LoginPlace) -> Registration:
        issuer = place.found.issuer

        async def register() -> Registration:
            scopes = self._client.scopes_ever(place.found, place.refusal)
            return await self._client.register(issuer, self._base, scopes=scopes)

        if not self._client.registers_at(issuer):
            return await register()
        return await self._registrations.get(issuer.issuer, self._client.redirect_uri(issuer, self._base), register)

    async def _known(self, issuer: Issuer, client_id: str) -> Registration:
        """The registration as *client_id*. Raises ClientInvalid if it is gone."""
        if self._client.registers_at(issuer):
            own = await self._registrations.find(issuer.issuer, self._client.redirect_uri(issuer, self._base))
        else:
            own = await self._client.register(issuer, self._base)
        if own is None or own.client_id != client_id:
            raise ClientInvalid("the gate is another client at this issuer now")
        return own
