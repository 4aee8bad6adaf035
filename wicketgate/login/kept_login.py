"""The tokens of a login that a person made once, for all callers of a server (``credentials: shared``).

The login is kept where ``wicketgate login`` writes it, and refreshed by one process at a time: a second refresh with
the same token would end the login at many issuers.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

from wicketgate.login.client import Login, LoginClient
from wicketgate.login.failures import ClientInvalid, Distrusted, GrantInvalid, NeedsLogin, NotOffered
from wicketgate.login.issued import EARLY_S
from wicketgate.login.tokens import Tokens
from wicketgate.net.challenge import Refusal

log = logging.getLogger("wicketgate.oauth")

Ask = Callable[[Refusal, Login | None], Awaitable[Login]]
"""Has a person log in. The second is the login before, whose scopes are kept."""


class LoginKeep(Protocol):
    """The place of one login, for all processes of a service. Methods raise IssuerAway while it cannot be reached."""

    async def read(self) -> Login | None: ...

    async def write(self, login: Login | None) -> None:
        """Keep *login* in place of the one before; None: none."""
        ...

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Inside, no other process is inside."""
        ...


class LoginSource:
    """Implements TokenSource. Without *ask* a server that needs a login stays without one until somebody makes it.
    *how* is what the operator does for that."""

    def __init__(
        self, keep: LoginKeep, client: LoginClient, now: Callable[[], float], how: str, ask: Ask | None = None
    ) -> None:
        self._keep = keep
        self._client = client
        self._now = now
        self._how = how
        self._ask = ask
        self._given: Tokens | None = None
        self._asked_for: frozenset[str] = frozenset()

    async def get(self, refusal: Refusal | None) -> Tokens | None:
        async with self._keep.alone():
            login = await self._keep.read()
            # Another process has renewed it, or a person has.
            fresh = login is not None and login.tokens != self._given and not self._ends(login.tokens)
            if login is None or not fresh:
                login = await self._renewed(login, refusal)
        self._given = login.tokens if login is not None else None
        return self._given

    async def widen(self, refusal: Refusal) -> Tokens | None:
        async with self._keep.alone():
            login = await self._keep.read()
            wanted = refusal.named_scopes
            if login is not None and login.tokens != self._given and wanted <= login.tokens.scopes:
                self._given = login.tokens
                return self._given
            if self._ask is None and login is not None and not wanted <= login.tokens.scopes | login.wanted:
                await self._keep.write(replace(login, wanted=wanted))
            had = self._asked_for | frozenset(login.tokens.scopes if login is not None else ())
            # Asked for before, and refused all the same: asking again would go on for ever.
            if wanted <= had:
                return None
            if self._ask is None:
                self._asked_for |= wanted
                log.warning("it wants more scopes (%s): %s", " ".join(sorted(wanted - had)), self._how)
                return None
            login = await self._logged_in(refusal, login)
        self._given = login.tokens
        return self._given

    async def _renewed(self, login: Login | None, refusal: Refusal | None) -> Login | None:
        ended = ""
        if login is not None:
            try:
                if refusal is not None:
                    await self._check_issuer(login, refusal)
                if login.tokens.refresh_token:
                    login = await self._client.refresh(login)
                    await self._keep.write(login)
                    return login
                ended = "its token has ended, and its issuer gave none to renew it with"
            except (GrantInvalid, ClientInvalid) as failure:
                ended = failure.detail
            # A login that has ended is shown to nobody any more.
            await self._keep.write(None)
        if self._ask is None:
            raise NeedsLogin(f"{ended}: {self._how}" if ended else self._how)
        if refusal is None:
            return None
        return await self._logged_in(refusal, login)

    async def _check_issuer(self, login: Login, refusal: Refusal) -> None:
        """Raises GrantInvalid if the server takes tokens of another issuer now: the login is of no more use, and what
        is known of its client must not be shown to the other one."""
        try:
            found = await self._client.look(refusal)
        except (NotOffered, Distrusted):
            return
        if found.issuer.issuer != login.tokens.issuer:
            raise GrantInvalid("the server takes tokens of another issuer now")

    async def _logged_in(self, refusal: Refusal, before: Login | None) -> Login:
        assert self._ask is not None
        login = await self._ask(refusal, before)
        self._asked_for |= frozenset(refusal.scopes or ()) | frozenset(login.tokens.scopes)
        await self._keep.write(login)
        return login

    def _ends(self, tokens: Tokens) -> bool:
        return tokens.expires_at is not None and tokens.expires_at - EARLY_S <= self._now()
