"""The logins under way, shared by all processes, and those who wait for their outcomes (ACCESS-162 to ACCESS-164)."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from wicketgate.login.keys import row_key
from wicketgate.login.login_flow import (
    Agreement,
    BrowserSession,
    Login,
    LoginRefused,
    agreed,
    declined_by_form,
    ended,
    logged_in,
    login_of,
    login_value,
    opened,
    returned,
)
from wicketgate.login.rows import LoginsAway
from wicketgate.login.sealed_rows import OpenedRow, SealedRows

OFFER_S = 600.0
_LEFT_S = 60.0
"""A link is offered again while there is so much time left to open it."""
AGREED_S = 600.0
OUTCOME_S = 120.0
"""The time in which an outcome can be read."""
MOST_OPEN = 5
_LOOK_S = 0.5
_TRIES = 20


class TooManyLogins(Exception):
    """The actor has too many logins under way at this tool server."""


class Logins:
    """The logins that are kept in *rows*. *now* is the time of day in seconds. *report* gets each login that this
    process has taken to its next state; it must neither wait nor fail. Every method raises LoginsAway; each
    step raises LoginRefused, and changes nothing then.

    The id of a flow is in its link, which anybody may see: it gives nothing. The *state* that goes to the issuer begins
    with it, so that the callback finds the login.
    """

    def __init__(
        self, rows: SealedRows, now: Callable[[], float], report: Callable[[Login], None] = lambda login: None
    ) -> None:
        self._rows = rows
        self._now = now
        self._report = report
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    async def offer(self, actor: str, upstream: str, scopes: frozenset[str]) -> Login:
        """Return the login of *actor* at *upstream* that is open already, if it asks for these *scopes* and lasts for a
        minute still, or a new one. Raises TooManyLogins."""
        owner = _owner(actor, upstream)
        standing = [_login(row) for row in await self._rows.of_owner("flow", owner)]
        for login in sorted(filter(None, standing), key=lambda login: login.offered_at, reverse=True):
            if login.is_open and login.scopes >= scopes and login.expires_at >= self._now() + _LEFT_S:
                return login
        now = self._now()
        made = Login(secrets.token_urlsafe(24), actor, upstream, scopes, now, now + OFFER_S)
        row = OpenedRow("flow", row_key("flow", made.flow), owner, login_value(made), 1, made.expires_at)
        if not await self._rows.write(row, most_of_owner=MOST_OPEN):
            raise TooManyLogins
        return made

    async def find(self, flow: str) -> Login:
        """Raises LoginRefused."""
        row = await self._rows.read("flow", row_key("flow", flow))
        login = None if row is None else _login(row)
        if login is None or login.expires_at <= self._now():
            raise LoginRefused("gone")
        return login

    async def open(self, flow: str, session: BrowserSession) -> Login:
        """Note that *session* shows the page of consent, and return the login with the ``csrf`` of its form."""
        csrf = secrets.token_urlsafe(24)
        return await self._step(flow, lambda login: opened(login, session, csrf))

    async def agree(self, flow: str, session: BrowserSession, csrf: str, agreement: Agreement) -> Login:
        """Note that the form was sent. The ``secrets.state`` of *agreement* was made by ``new_state``."""
        expires_at = self._now() + AGREED_S
        return await self._step(flow, lambda login: agreed(login, session, csrf, agreement, expires_at))

    async def log_in(self, flow: str, session: BrowserSession) -> Login:
        """Note that the actor has logged in at its own issuer, and that nothing else is needed."""
        return await self._step(flow, lambda login: logged_in(login, session))

    async def decline(self, flow: str, session: BrowserSession, csrf: str) -> Login:
        return await self._step(flow, lambda login: declined_by_form(login, session, csrf))

    async def come_back(self, state: str, session: BrowserSession, issuer: str | None, redirect_uri: str) -> Login:
        """Note that the browser came back to *redirect_uri*, and return the login with the secrets that the exchange
        needs, for one caller only. *issuer* is the ``iss`` of the answer."""
        flow = state.partition(".")[0]
        login = await self._step(flow, lambda login: returned(login, session, state, issuer, redirect_uri))
        if login.has_ended:
            raise LoginRefused("other_issuer")
        return login

    async def granted(self, login: Login, number: int) -> Login:
        """Note the grant *number* that came of *login*, which ``come_back`` has returned. It is kept already."""
        return await self._step(login.flow, lambda found: ended(found, "granted", number=number))

    async def declined(self, login: Login, why: str) -> Login:
        """Note that the issuer, or the user there, declined; *why* is a fixed phrase."""
        return await self._step(login.flow, lambda found: ended(found, "declined", why))

    async def failed(self, login: Login, why: str) -> Login:
        return await self._step(login.flow, lambda found: ended(found, "failed", why))

    async def outcome(self, flow: str, within_s: float) -> Login:
        """Wait for the outcome, at whichever process it comes; return the login as it is after *within_s* at most.
        Raises LoginRefused for one that is gone, but not LoginsAway while there is time left."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within_s
        woken = asyncio.Event()
        self._waiting[flow].add(woken)
        try:
            while True:
                woken.clear()
                left_s = give_up_at - loop.time()
                try:
                    login = await self.find(flow)
                    if login.has_ended or left_s <= 0:
                        return login
                except LoginsAway:
                    if left_s <= 0:
                        raise
                try:
                    async with asyncio.timeout(max(0.0, min(_LOOK_S, left_s))):
                        await woken.wait()
                except TimeoutError:
                    pass
        finally:
            self._waiting[flow].discard(woken)
            if not self._waiting[flow]:
                del self._waiting[flow]

    async def _step(self, flow: str, step: Callable[[Login], Login]) -> Login:
        for _ in range(_TRIES):
            before = await self.find(flow)
            after = step(before)
            if after == before:
                return before
            if after.has_ended:
                after = replace(after, expires_at=self._now() + OUTCOME_S)
            after = replace(after, version=before.version + 1)
            owner = _owner(after.actor, after.upstream)
            key = row_key("flow", flow)
            row = OpenedRow("flow", key, owner, login_value(after), after.version, after.expires_at)
            if await self._rows.write(row):
                if after.state != before.state or after.state == "agreed":
                    self._report(after)
                if after.has_ended:
                    for waiter in self._waiting.get(flow, ()):
                        waiter.set()
                return after
        raise LoginRefused("over")  # others change it again and again


def new_state(flow: str) -> str:
    """A state for the way to the issuer and back."""
    return f"{flow}.{secrets.token_urlsafe(32)}"


def _owner(actor: str, upstream: str) -> str:
    return row_key("flow of", actor, upstream)


def _login(row: OpenedRow) -> Login | None:
    try:
        return login_of(row.value, row.version)
    except ValueError:
        return None
