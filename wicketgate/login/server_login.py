"""The login at one tool server over HTTP: discovery, the gate's registration at the issuer, the redirect there and
back, and the tokens.

The gate registers once per issuer for all processes (ACCESS-155). The issuer of a login is recorded before the browser
goes there; later requests use the endpoints of its own document.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from wicketgate.login.authorize import Pending, asked_scopes
from wicketgate.login.client import Login as KeptLogin
from wicketgate.login.client import LoginClient
from wicketgate.login.discovery import Discovery, Issuer
from wicketgate.login.grants import Grant
from wicketgate.login.login_flow import Agreement, Login
from wicketgate.login.logins import new_state
from wicketgate.login.oauth_http import Recent
from wicketgate.login.registrar import Registration
from wicketgate.login.sealed_rows import Row, SealedRows, row_key
from wicketgate.login.steps import ClientInvalid
from wicketgate.login.token_endpoint import Tokens
from wicketgate.net.challenge import Refusal

LEASE_S = 30.0
_LOOK_S = 0.25


_REGISTRATION = TypeAdapter(Registration)


class Registrations:
    """The registrations that are kept in *rows*, each for one issuer and one redirect address. Every method raises
    StoreUnavailable."""

    def __init__(self, rows: SealedRows) -> None:
        self._rows = rows

    async def find(self, issuer: str, redirect_uri: str) -> Registration | None:
        row = await self._rows.read("registration", row_key("registration", issuer, redirect_uri))
        try:
            return None if row is None else _REGISTRATION.validate_python(row.value)
        except ValidationError:  # of another release
            return None

    async def get(
        self, issuer: str, redirect_uri: str, register: Callable[[], Awaitable[Registration]]
    ) -> Registration:
        """Return the registration there is, or that which *register* makes: of all processes that ask at once, one
        registers. It has to be done within ``LEASE_S``. Raises what *register* raises."""
        key, holder = row_key("registration", issuer, redirect_uri), secrets.token_hex(8)
        while True:
            if (found := await self.find(issuer, redirect_uri)) is not None:
                return found
            if await self._rows.lease("registration", key, holder, LEASE_S):
                break
            await asyncio.sleep(_LOOK_S)
        try:
            # Another may have been done between the look and the lease.
            return await self.find(issuer, redirect_uri) or await self._keep(key, await register())
        finally:
            await self._rows.release("registration", key, holder)

    async def forget(self, registration: Registration) -> None:
        """Have the next ``get`` register again, because the issuer knows this client no more. One that has been made
        in the meantime stays."""
        issuer, redirect_uri = registration.issuer, registration.redirect_uri
        found = await self.find(issuer, redirect_uri)
        if found is not None and found.client_id == registration.client_id:
            await self._rows.delete("registration", row_key("registration", issuer, redirect_uri))

    async def _keep(self, key: str, made: Registration) -> Registration:
        former = await self._rows.read("registration", key)  # one that cannot be unpacked
        version = former.version + 1 if former else 1
        value = _REGISTRATION.dump_python(made, mode="json")
        if await self._rows.write(Row("registration", key, "", value, version, made.expires_at)):
            return made
        # The lease had lapsed, and another process was faster: one client is used by all.
        return await self.find(made.issuer, made.redirect_uri) or made


log = logging.getLogger("wicketgate.login")


@dataclass(frozen=True, slots=True)
class LoginPlace:
    """The way to log in at a tool server, as it was found."""

    found: Discovery
    refusal: Refusal | None

    @property
    def page(self) -> str:
        """The host that browsers are sent to."""
        return urlsplit(self.found.issuer.authorization_endpoint).netloc


@dataclass(eq=False, repr=False)
class ServerLogin:
    """Logins at one tool server. Browsers come back to addresses that begin with *base*. *clock* is monotonic, in
    seconds.

    Methods raise LoginFailure and StoreUnavailable.
    """

    _client: LoginClient
    _registrations: Registrations
    _base: str
    _clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._place = Recent(self._find, self._clock)

    @property
    def url(self) -> str:
        """The URL of the tool server."""
        return self._client.plan.server_url

    async def place(self) -> LoginPlace:
        """Returns the login URL. Caches it briefly, so that reloading the page sends no requests."""
        return await self._place.get()

    async def _find(self) -> LoginPlace:
        refusal = await self._client.refusal()
        return LoginPlace(await self._client.find(refusal), refusal)

    def scopes(self, place: LoginPlace, login: Login) -> frozenset[str]:
        """The scopes that *login* asks for at *place*."""
        return frozenset(asked_scopes(place.found, place.refusal, self._client.plan.scopes, login.scopes))

    async def begin(self, login: Login) -> tuple[Agreement, str]:
        """The record from the agreement to *login* on, and the URL for the browser."""
        place = await self.place()
        issuer = place.found.issuer
        own = await self._registration(place)
        pending = self._client.ask(place.found, own, place.refusal, login.scopes, new_state(login.flow))
        place_of = (self.url, issuer.issuer, issuer.says_issuer, own.client_id, own.redirect_uri, pending.resource)
        return Agreement(*place_of, pending.verifier, pending.state, frozenset(pending.scopes)), pending.url

    async def finish(self, agreed: Agreement, scopes: frozenset[str], came: Mapping[str, str]) -> Tokens:
        """The tokens for what *came* back, for a login that ``Logins.come_back`` returned."""
        issuer = await self._client.issuer(agreed.issuer)
        own = await self._known(issuer, agreed.client_id)
        state = came.get("state", "")
        pending = Pending("", state, agreed.verifier, issuer, own, agreed.resource, tuple(sorted(scopes)))
        try:
            return (await self._client.finish(pending, came)).tokens
        except ClientInvalid:
            await self._registrations.forget(own)
            raise

    async def refresh(self, tokens: Tokens) -> Tokens:
        """Implements Refresh."""
        issuer = await self._client.issuer(tokens.issuer)
        own = await self._known(issuer, tokens.client_id)
        try:
            return (await self._client.refresh(KeptLogin(tokens, own))).tokens
        except ClientInvalid:
            await self._registrations.forget(own)
            raise

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
