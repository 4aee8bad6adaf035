"""Credentials from stored grants: those of each caller at one tool server (ACCESS-156 to ACCESS-161), and those of a
server whose operator logged in for all callers (ACCESS-207).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from wicketgate.access.identity import Identity
from wicketgate.errors import ConnectRequired, IssuerAway, LoginNeeded, ScopesNeeded, StoreUnavailable
from wicketgate.login.grants import Bond, Grant, GrantEnded, Grants, NotRefreshed, Refresher
from wicketgate.login.login_flow import RefreshOutcome
from wicketgate.login.token_endpoint import Refresh
from wicketgate.login.user_credentials import GrantName
from wicketgate.net import Refusal

log = logging.getLogger("wicketgate.login")

_NOBODY = Identity("")
LOOK_S = 1.0
"""The age at which a row is read again: news of other processes are as late as this."""
_EARLY_S = 60.0
_SOON_S = 5.0
_AT_ONCE = 16

Connect = Callable[[str, frozenset[str]], Awaitable[ConnectRequired]]
"""Offer a login to an actor, with scopes that are needed beyond the usual ones. Raises StoreUnavailable."""


@dataclass(frozen=True, slots=True)
class _Known:
    grant: Grant
    read_at: float


@dataclass(eq=False, repr=False)
class UserGrants:
    """Implements UserCredentials for the upstream *name*. *clock* is monotonic, in seconds.

    *bond* gives what a grant of an actor must be bound to now: others are not used. With *shared* all callers have the
    grant of the gate itself.
    *count* gets the outcome of each refresh of this process.
    """

    _name: str
    _grants: Grants
    _refresh: Refresh
    _connect: Connect
    _clock: Callable[[], float]
    _bond: Callable[[str], Bond]
    shared: bool = False
    count: Callable[[RefreshOutcome], None] = lambda outcome: None

    def __post_init__(self) -> None:
        self._refresher = Refresher(self._grants, self._refresh, self._clock, self.count)
        self._known: dict[str, _Known] = {}
        self._reading: dict[str, asyncio.Task[Grant | None]] = {}
        self._observers: list[tuple[Callable[[GrantName], None], Callable[[], Iterable[GrantName]]]] = []

    async def named(self, identity: Identity) -> GrantName:
        known = await self.known(identity)
        if known is None:
            raise await self._required("" if self.shared else identity.actor)
        return known

    async def known(self, identity: Identity) -> GrantName | None:
        actor = "" if self.shared else identity.actor
        grant = await self._grant(actor)
        if grant is None or (self._is_over(grant) and not grant.tokens.refresh_token):
            return None
        return GrantName(actor, grant.number)

    async def lacks(self, grant: GrantName, scopes: frozenset[str]) -> None:
        # What is known may be of a moment ago, before the login that gave these scopes at another process.
        self.changed(grant.actor)
        found = await self._grant(grant.actor)
        held = found.tokens.scopes if found is not None else frozenset[str]()
        if found is not None and found.number != grant.number and scopes and scopes <= held:
            raise IssuerAway("The account at this server was reconnected; try again.")
        raise await self._required(grant.actor, held | scopes)

    def observe(self, ended: Callable[[GrantName], None], in_use: Callable[[], Iterable[GrantName]] = tuple) -> None:
        self._observers.append((ended, in_use))

    def ended(self, grant: Grant) -> None:
        """Use *grant* no more from now on: it was revoked by this process, and need not be found so by a look."""
        known = self._known.get(grant.actor)
        self._reading.pop(grant.actor, None)
        if known is not None and known.grant.number == grant.number:
            del self._known[grant.actor]
            self._notify(grant)

    def changed(self, actor: str) -> None:
        """Read the grants of *actor* again from now on: they may have changed, here or elsewhere. A read that is under
        way began before that."""
        self._reading.pop(actor, None)
        if (known := self._known.get(actor)) is not None:
            self._known[actor] = replace(known, read_at=float("-inf"))

    async def watch(self) -> None:
        """Read the grants that are in use every second, until cancelled, and notify observers of ends."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                actors = list({name.actor for _, in_use in self._observers for name in in_use()})
                for start in range(0, len(actors), _AT_ONCE):
                    some = (self._read(actor) for actor in actors[start : start + _AT_ONCE])
                    for error in await asyncio.gather(*some, return_exceptions=True):
                        if isinstance(error, Exception) and not isinstance(error, StoreUnavailable):
                            log.error("%s: a grant could not be checked", self._name, exc_info=error)
                # What nobody uses is forgotten.
                before = self._clock() - LOOK_S
                self._known = {
                    actor: known for actor, known in self._known.items() if actor in actors or known.read_at > before
                }
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Wait for refreshes that are under way, for some seconds."""
        await self._refresher.aclose()

    async def authorization(self, name: GrantName) -> Grant:
        """Return the grant *name* with tokens to use now. Raises ConnectRequired and IssuerAway."""
        grant = await self._standing(name)
        if not self._is_expiring(grant):
            return grant
        over = self._is_over(grant)
        if grant.tokens.refresh_token:
            return await self._renewed(grant, still_good=not over)
        if over:
            raise await self._required(name.actor)
        return grant

    async def token(self, grant: GrantName) -> str:
        return (await self.authorization(grant)).tokens.access_token

    async def renew(self, name: GrantName, refused: str) -> bool:
        """Have other tokens than those with the access token *refused*. Raises as ``authorization`` does."""
        known = self._known.get(name.actor)
        if known is not None and known.grant.tokens.access_token == refused:
            self.changed(name.actor)  # another process may have ended or renewed it
        grant = await self._standing(name)
        # Of calls that were refused together one is enough, at whichever process.
        if grant.tokens.access_token == refused and self._grants.now() - grant.issued_at >= _SOON_S:
            await self._renewed(grant, still_good=False)
        return True

    async def _standing(self, name: GrantName) -> Grant:
        grant = await self._grant(name.actor)
        if grant is None:
            raise await self._required(name.actor)
        if grant.number != name.number:
            # Its owner has logged in again: the call is good, but of the account that was.
            raise IssuerAway("The account at this server was reconnected; try again.")
        return grant

    async def _renewed(self, grant: Grant, *, still_good: bool) -> Grant:
        try:
            renewed = await self._refresher.renewed(grant, still_good=still_good)
        except GrantEnded:
            self._known.pop(grant.actor, None)
            self._notify(grant)
            raise await self._required(grant.actor) from None
        except (NotRefreshed, StoreUnavailable) as away:
            if still_good:
                return grant
            raise _unavailable(away) from None
        known = self._known.get(grant.actor)
        if known is not None and known.grant.number == renewed.number:
            self._known[grant.actor] = _Known(renewed, self._clock())
        return renewed

    async def _grant(self, actor: str) -> Grant | None:
        """The active grant of *actor*, as it was a second ago at most. Raises IssuerAway."""
        known = self._known.get(actor)
        if known is not None and self._clock() - known.read_at < LOOK_S and known.grant.bond == self._bond(actor):
            return known.grant
        try:
            return await self._read(actor)
        except StoreUnavailable as away:
            raise _unavailable(away) from None

    async def _read(self, actor: str) -> Grant | None:
        """Read the grant together with all who want to know it now. Raises StoreUnavailable."""
        reading = self._reading.get(actor)
        if reading is None:
            reading = asyncio.create_task(self._read_now(actor), name="read of a grant")
            self._reading[actor] = reading
            reading.add_done_callback(lambda done: self._was_read(actor, done))
        return await asyncio.shield(reading)

    def _was_read(self, actor: str, done: "asyncio.Task[Grant | None]") -> None:
        if self._reading.get(actor) is done:
            del self._reading[actor]

    async def _read_now(self, actor: str) -> Grant | None:
        found = await self._grants.of(actor, self._name)
        bond = self._bond(actor)
        good = [grant for grant in found if grant.state == "active" and grant.bond == bond]
        grant = good[0] if good else None
        if self._reading.get(actor) is not asyncio.current_task():
            return grant  # it has changed since, and a later read says how
        former = self._known.pop(actor, None)
        if grant is not None:
            self._known[actor] = _Known(grant, self._clock())
        if former is not None and (grant is None or grant.number != former.grant.number):
            self._notify(former.grant)
        return grant

    def _notify(self, ended: Grant) -> None:
        for observer, _ in self._observers:
            observer(GrantName(ended.actor, ended.number))

    def _is_expiring(self, grant: Grant) -> bool:
        """True from 60 s before the end on, of short lives from the last tenth on."""
        expires_at = grant.tokens.expires_at
        if expires_at is None:
            return False
        return self._grants.now() >= expires_at - min(_EARLY_S, (expires_at - grant.issued_at) / 10)

    def _is_over(self, grant: Grant) -> bool:
        expires_at = grant.tokens.expires_at
        return expires_at is not None and self._grants.now() >= expires_at

    async def _required(self, actor: str, scopes: frozenset[str] = frozenset()) -> ConnectRequired | IssuerAway:
        try:
            return await self._connect(actor, scopes)
        except StoreUnavailable as away:
            return _unavailable(away)


def _unavailable(away: Exception) -> IssuerAway:
    if isinstance(away, StoreUnavailable):
        return IssuerAway("The accounts at this server cannot be read at the moment.")
    return IssuerAway("The issuer of this server's logins does not answer.")


class SharedGrant:
    """Implements Credentials for the upstream *name*. *grants* are those of the gate itself, *how* is what the operator
    does for a login. *learn* gets each token before it is used."""

    def __init__(self, name: str, grants: UserGrants, how: str, learn: Callable[[str], None]) -> None:
        self._name = name
        self._grants = grants
        self._how = how
        self._learn = learn
        self._used: tuple[GrantName, str] | None = None

    async def authorization(self) -> str:
        """Raises LoginNeeded, and IssuerAway while it cannot be known."""
        try:
            # The grant is looked for each time: it may have ended, or another login has taken its place.
            found = await self._grants.named(_NOBODY)
            tokens = (await self._grants.authorization(found)).tokens
        except ConnectRequired:
            raise self._needed() from None
        for secret in (tokens.access_token, tokens.refresh_token, tokens.id_token):
            if secret:
                self._learn(secret)
        self._used = found, tokens.access_token
        return f"Bearer {tokens.access_token}"

    async def renew(self, refusal: Refusal) -> bool:
        """False for a refusal that other tokens of the same login do not mend. Raises ScopesNeeded."""
        if refusal.lacks_scopes:
            raise ScopesNeeded(self._name, refusal.named_scopes, f"add them to oauth.scope, then: {self._how}")
        if refusal.status != 401 or self._used is None:
            return False
        try:
            return await self._grants.renew(*self._used)
        except ConnectRequired:
            raise self._needed() from None

    async def aclose(self) -> None:
        await self._grants.aclose()

    def _needed(self) -> LoginNeeded:
        return LoginNeeded(f"{self._name} cannot be called: it needs a login by its operator.", self._how)
