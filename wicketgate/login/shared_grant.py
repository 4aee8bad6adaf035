"""The credentials of a server that all callers share, from the grant that an operator made (ACCESS-207)."""

import logging
from collections.abc import Awaitable, Callable

from wicketgate.access.identity import Identity
from wicketgate.errors import ConnectRequired, LoginNeeded, ScopesNeeded
from wicketgate.login.rows import LoginsAway
from wicketgate.login.user_credentials import GrantName
from wicketgate.login.user_grants import UserGrants
from wicketgate.net import Refusal

log = logging.getLogger("wicketgate.oauth")

_NOBODY = Identity("")


class SharedGrant:
    """Implements Credentials for the upstream *name*. *grants* are those of the gate itself, *how* is what the operator
    does for a login. *learn* gets each token before it is used, *want* the scopes that the server asked for last."""

    def __init__(
        self,
        name: str,
        grants: UserGrants,
        how: str,
        learn: Callable[[str], None],
        want: Callable[[frozenset[str]], Awaitable[None]],
    ) -> None:
        self._want = want
        self._name = name
        self._grants = grants
        self._how = how
        self._learn = learn
        self._used: tuple[GrantName, str] | None = None
        self._told: tuple[GrantName | None, frozenset[str]] | None = None

    async def authorization(self) -> str:
        """Raises LoginNeeded, and UpstreamUnavailable while it cannot be known."""
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
            wanted = refusal.named_scopes
            # After another login they are wanted again.
            told = self._used and self._used[0], wanted
            if told != self._told:
                try:
                    await self._want(wanted)
                except LoginsAway:
                    pass  # the next refusal tries it again
                else:
                    self._told = told
                    log.warning("%s: it wants more scopes (%s): %s", self._name, " ".join(sorted(wanted)), self._how)
            raise ScopesNeeded(self._name, wanted, self._how)
        if refusal.status != 401 or self._used is None:
            return False
        try:
            await self._grants.renew(*self._used)
        except ConnectRequired:
            raise self._needed() from None
        return True

    async def aclose(self) -> None:
        """Does nothing: a refresh that is under way has others who wait for it."""

    def _needed(self) -> LoginNeeded:
        return LoginNeeded(f"{self._name} cannot be called: it needs a login by its operator.", self._how)
