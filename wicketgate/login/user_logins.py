"""The logins of users at all tool servers of a gate: offered, led to their outcome, and kept as grants."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex
from urllib.parse import quote

from wicketgate.errors import ConnectRequired, StoreUnavailable
from wicketgate.login.assertion import assertion_signer, derived_key, public_key
from wicketgate.login.client import LoginClient
from wicketgate.login.grants import Bond, Grant, GrantEvent, Grants
from wicketgate.login.login_flow import DECLINED_THERE, SERVER_GONE, BrowserSession, Login, LoginCounts, RefreshOutcome
from wicketgate.login.logins import Browsers, Logins
from wicketgate.login.registrar import client_document
from wicketgate.login.sealed_rows import SealedRows
from wicketgate.login.server_login import Registrations, ServerLogin
from wicketgate.login.steps import Declined, LoginFailure, NotOffered
from wicketgate.login.user_grants import Connect as Offer
from wicketgate.login.user_grants import UserGrants
from wicketgate.task_end import end_tasks, hold

log = logging.getLogger("wicketgate.login")

CALLBACK = "/connect/callback"
DOCUMENTS = "/oauth/client/"
_MOST_KEYS = 8
_CLOSE_S = 12.0
Connect = Callable[[str], Awaitable[ConnectRequired]]
"""Offers the actor a login. Raises RateLimited and StoreUnavailable."""


@dataclass(slots=True)
class _Server:
    login: ServerLogin
    grants: UserGrants
    shared: bool


@dataclass(eq=False, repr=False)
class UserLogins:
    """*public_url* is that of the gate, without a slash at its end. *now* is the time of day,
    *clock* monotonic, both in seconds. *new_number* gives a number that does not come again. *report* gets news of
    grants; it must neither wait nor fail. *counts* are kept for the metrics. *issuer_of* gives the
    URL of the issuer that says who an actor is, empty for one of a key."""

    rows: SealedRows
    public_url: str
    _now: Callable[[], float]
    _clock: Callable[[], float]
    _new_number: Callable[[], int]
    _report: Callable[[GrantEvent], None]
    counts: LoginCounts
    _issuer_of: Callable[[str], str]

    def __post_init__(self) -> None:
        self.logins = Logins(self.rows, self._now, self.counts.of_login, self._heard)
        self.browsers = Browsers(self.rows, self._now)
        self.grants = Grants(self.rows, self._now, self._new_number, self._report)
        self._registrations = Registrations(self.rows)
        self._servers: dict[str, _Server] = {}
        self._at_issuers: set[str] = set()
        self._finishing: set[asyncio.Task[Login]] = set()

    @property
    def document_url(self) -> str:
        """The address of the gate's document as a client, with ``{mark}`` for that of the issuer which reads it."""
        return f"{self.public_url}{DOCUMENTS}{{mark}}.json"

    def document(self, mark: str) -> Mapping[str, object] | None:
        """Return the document for the issuer with *mark*; None if there is no such mark."""
        keys = (public_key(derived_key(secret)) for secret in self.rows.seal.secrets[:_MOST_KEYS])
        return client_document(self.document_url, f"{self.public_url}{CALLBACK}", mark, keys)

    def sign_as(self, client_id: str) -> Callable[[str], str]:
        """Return what signs as the client whose document is at *client_id*. All processes have the same key, that of
        the first of ``auth.seal_keys``."""
        key = derived_key(self.rows.seal.secrets[0])
        return assertion_signer(key, client_id, public_key(key)["kid"], self._now, lambda: token_hex(16))

    def of(self, name: str, client: LoginClient) -> UserGrants:
        """Return the credentials of all callers at the server *name*, in place of those that were made before."""
        return self._made(name, client, partial(self.offer, name), shared=False)

    def shared(self, name: str, client: LoginClient) -> UserGrants:
        """As ``of``, with one grant for all callers. No call offers a login for it: an operator asks for one."""

        async def nobody(actor: str, scopes: frozenset[str]) -> ConnectRequired:
            return ConnectRequired("It needs a login by its operator.", upstream=name)

        return self._made(name, client, nobody, shared=True)

    def _made(self, name: str, client: LoginClient, connect: Offer, *, shared: bool) -> UserGrants:
        login = ServerLogin(client, self._registrations, f"{self.public_url}{CALLBACK}", self._clock)

        def count(outcome: RefreshOutcome) -> None:
            self.counts.refreshes[name, outcome] += 1

        def bond(actor: str) -> Bond:
            return Bond(login.url, self._issuer_of(actor))

        grants = UserGrants(name, self.grants, login.refresh, connect, self._clock, bond, shared=shared, count=count)
        self._servers[name] = _Server(login, grants, shared)
        return grants

    def at_issuer(self, name: str) -> Connect:
        """Return what offers a login for the server *name* to callers who need only one at their own issuer."""
        self._at_issuers.add(name)
        return partial(self.offer, name)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget the ways to the servers that are not among *names*; what was granted there stays kept."""
        names = frozenset(names)
        for name in self._servers.keys() - names:
            del self._servers[name]
        self._at_issuers &= names

    @property
    def names(self) -> Sequence[str]:
        """The servers with logins of users."""
        return [name for name, server in self._servers.items() if not server.shared]

    @property
    def shared_names(self) -> Sequence[str]:
        """The servers with one login for all callers, by an operator."""
        return [name for name, server in self._servers.items() if server.shared]

    def is_shared(self, name: str) -> bool:
        return name in self._servers and self._servers[name].shared

    def has(self, name: str) -> bool:
        return name in self._servers or name in self._at_issuers

    def is_at_issuer(self, name: str) -> bool:
        """True if callers of this server need a login at their own issuer, and none at the server's."""
        return name in self._at_issuers and name not in self._servers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """At its end logins that have come back are kept, within some seconds."""
        try:
            yield
        finally:
            if self._finishing:
                await asyncio.wait(self._finishing, timeout=_CLOSE_S)
                await end_tasks(*self._finishing)

    async def offer(self, name: str, actor: str, scopes: frozenset[str] = frozenset()) -> ConnectRequired:
        """Offer *actor* a login at *name*. Raises RateLimited and StoreUnavailable."""
        login = await self.logins.offer(actor, name, scopes)
        own = name in self.names
        first = f"Connect your account at {name}" if own else f"Log in for {name}"
        return ConnectRequired(
            f"{first} first: open the link in a browser. Nothing was run.",
            upstream=name,
            url=self.link(login),
            expires_at=login.expires_at,
            flow=login.flow,
        )

    def link(self, login: Login) -> str:
        """The page of *login*."""
        return f"{self.public_url}/connect/{login.upstream}?f={quote(login.flow, safe='')}"

    def server(self, name: str) -> ServerLogin | None:
        return self._servers[name].login if name in self._servers else None

    async def come_back(self, came: Mapping[str, str], session: BrowserSession, mark: str) -> Login:
        """Lead the login that *came* back with the browser, at the address with *mark*, to its outcome, and return it.
        Raises LoginRefused and StoreUnavailable."""
        back = f"{self.public_url}{CALLBACK}/{mark}".rstrip("/")
        login = await self.logins.come_back(came.get("state", ""), session, came.get("iss"), back)
        # From here on the code is used up: anyone who closes the page does not keep the grant from being kept.
        finishing = asyncio.create_task(self._end(login, came), name="end of a login")
        return await asyncio.shield(hold(finishing, self._finishing))

    def _heard(self, login: Login) -> None:
        """The outcome of *login*, at whichever process, counts from now on."""
        server = self._servers.get(login.upstream)
        if server is not None:
            server.grants.changed("" if server.shared else login.actor)

    async def _end(self, login: Login, came: Mapping[str, str]) -> Login:
        server = self.server(login.upstream)
        # A configuration may have come in the meantime, with another server under this name.
        owner = "" if self.is_shared(login.upstream) else login.actor
        if server is None or login.agreement is None or server.url != login.agreement.server:
            return await self.logins.end(login, "failed", SERVER_GONE)
        bond = Bond(server.url, self._issuer_of(owner))
        try:
            tokens = await server.finish(login.agreement, login.scopes, came)
        except Declined as declined:
            log.info("%s: login of %s: %s", login.upstream, login.actor, declined.detail)
            return await self.logins.end(login, "declined", DECLINED_THERE)
        except LoginFailure as failure:
            log.warning("%s: login of %s: %s", login.upstream, login.actor, failure.detail)
            return await self.logins.end(login, "failed", failure.why)
        grant = await self.grants.keep(owner, login.upstream, tokens, bond, login.actor)
        self._heard(login)
        return await self.logins.end(login, "granted", number=grant.number)

    async def accounts(self, actor: str | None) -> list[Grant]:
        """Return the grants of *actor*, or of all with None, as ``Grants.of_actor`` does; one that was given at another
        server needs a new login. One that was given to the same name of another issuer is only among those of all.
        Raises StoreUnavailable."""
        found = []
        for grant in await self.grants.of_actor(actor):
            server, is_theirs = self.server(grant.upstream), grant.bond.vouched_by == self._issuer_of(grant.actor)
            if is_theirs or actor is None:
                is_good = is_theirs and (server is None or server.url == grant.bond.server)
                found.append(grant if is_good else replace(grant, state="reconnect"))
        return found

    def vouches_for(self, session: BrowserSession) -> bool:
        """True if tokens of the issuer at which *session* began say who its actor is; with a key, if no issuer's do."""
        return self._issuer_of(session.actor) == session.issuer

    async def revoke(self, actor: str, name: str, by: str) -> list[Grant]:
        """End the grants of *actor* at *name*, here and then at their issuers, as far as these can be reached; return
        them as they were. Raises StoreUnavailable."""
        ended = await self.grants.revoke(actor, name, by)
        server = self.server(name)
        if server is None:
            return ended
        for grant in ended:
            self._servers[name].grants.ended(grant)
        for grant in ended:
            try:
                if grant.bond.server != server.url:
                    raise NotOffered("it was given at another server, which is not configured any more")
                await server.revoke(grant)
            except (LoginFailure, StoreUnavailable) as failure:
                why = failure.detail if isinstance(failure, LoginFailure) else "the store is away"
                log.warning("%s: a grant was removed here, but perhaps not at its issuer: %s", name, why)
                self._report(GrantEvent("left", grant.actor, name, grant.issuer, by))
        return ended
