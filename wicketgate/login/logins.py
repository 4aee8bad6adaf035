"""The logins under way, shared by all processes; the calls that wait for them (ACCESS-162 to ACCESS-164); and the
browser sessions at the gate (ACCESS-165).
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from wicketgate.access.shares import RETRY_AFTER_S
from wicketgate.errors import RateLimited, StoreUnavailable
from wicketgate.login.login_flow import (
    Agreement,
    BrowserSession,
    Login,
    LoginOutcome,
    LoginRefused,
    agreed,
    declined_by_form,
    ended,
    logged_in,
    opened,
    returned,
)
from wicketgate.login.sealed_rows import Row, SealedRows, row_key

OFFER_S = 600.0
_LEFT_S = 60.0
"""A link is offered again while there is so much time left to open it."""
AGREED_S = 600.0
OUTCOME_S = 120.0
"""The time in which an outcome can be read."""
MOST_OPEN = 5
_LOOK_S = 0.5
_TRIES = 20
_LOGIN = TypeAdapter(Login)


@dataclass(eq=False, repr=False)
class Logins:
    """The logins that are kept in *rows*; implements Waiting for them. *now* is the time of day in seconds. *report*
    gets each login that this process has taken to its next state, *heard* each one that was granted, at whichever
    process, before the call that waited for it goes on. Both must neither wait nor fail. Every method but ``outcome``
    raises StoreUnavailable; each step raises LoginRefused, and changes nothing then.

    The id of a flow is in its link, which anybody may see: it gives nothing. The *state* that goes to the issuer begins
    with it, so that the callback finds the login.
    """

    _rows: SealedRows
    _now: Callable[[], float]
    _report: Callable[[Login], None] = lambda login: None
    heard: Callable[[Login], None] = lambda login: None

    def __post_init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    async def offer(self, actor: str, upstream: str, scopes: frozenset[str]) -> Login:
        """Return the login of *actor* at *upstream* that is open already, if it asks for these *scopes* and lasts for a
        minute still, or a new one. Raises RateLimited."""
        owner = _owner(actor, upstream)
        standing = [_login(row) for row in await self._rows.of_owner("flow", owner)]
        for login in sorted(filter(None, standing), key=lambda login: login.offered_at, reverse=True):
            if login.is_open and login.scopes >= scopes and login.expires_at >= self._now() + _LEFT_S:
                return login
        now = self._now()
        made = Login(secrets.token_urlsafe(24), actor, upstream, scopes, now, now + OFFER_S)
        if not await self._rows.write(_row(made), most_of_owner=MOST_OPEN):
            raise RateLimited(
                f"Too many logins at {upstream} are under way. Finish one of them, or wait until they expire.",
                path=upstream,
                details={"scope": "actor", "retry_after_s": RETRY_AFTER_S},
            )
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
        """Note that the form was sent. The *state* of *agreement* was made by ``new_state``."""
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

    async def end(
        self, login: Login, state: Literal["granted", "declined", "failed"], why: str = "", *, number: int = 0
    ) -> Login:
        """Note what has become of *login*, which ``come_back`` has returned: the grant *number*, which is kept already,
        or *why* there is none, a fixed phrase."""
        return await self._step(login.flow, lambda found: ended(found, state, why, number=number))

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        """Wait for the outcome, at whichever process it comes, for *within_s* at most."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within_s
        woken = asyncio.Event()
        self._waiting[flow].add(woken)
        try:
            while True:
                woken.clear()
                left_s = give_up_at - loop.time()
                with suppress(StoreUnavailable):
                    if (outcome := self._outcome_of(await self.find(flow))) != "waiting":
                        return outcome
                if left_s <= 0:
                    return "waiting"
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_LOOK_S, left_s)):
                        await woken.wait()
        except LoginRefused:
            return "failed"
        finally:
            self._waiting[flow].discard(woken)
            if not self._waiting[flow]:
                del self._waiting[flow]

    def _outcome_of(self, login: Login) -> LoginOutcome:
        if login.state == "granted":
            self.heard(login)
        return login.state if login.state in ("granted", "declined", "failed") else "waiting"

    async def _step(self, flow: str, step: Callable[[Login], Login]) -> Login:
        for _ in range(_TRIES):
            before = await self.find(flow)
            after = step(before)
            if after == before:
                return before
            if after.has_ended:
                after = replace(after, expires_at=self._now() + OUTCOME_S)
            after = replace(after, version=before.version + 1)
            if await self._rows.write(_row(after)):
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


def _row(login: Login) -> Row:
    key, owner = row_key("flow", login.flow), _owner(login.actor, login.upstream)
    value = _LOGIN.dump_python(login, mode="json")
    return Row("flow", key, owner, value, login.version, login.expires_at)


def _login(row: Row) -> Login | None:
    """None for one that another release has written."""
    try:
        return _LOGIN.validate_python({**row.value, "version": row.version})
    except ValidationError:
        return None


LIFE_S = 12 * 3_600.0
MOST_OF_ACTOR = 50


class TooManyBrowsers(Exception):
    """The actor has too many browser sessions."""


class Browsers:
    """The browser sessions that are kept in *rows*, by the hashes of their cookies. *now* is the time of day in
    seconds. Every method raises StoreUnavailable."""

    def __init__(self, rows: SealedRows, now: Callable[[], float]) -> None:
        self._rows = rows
        self._now = now

    async def begin(
        self, actor: str, former: str = "", *, key_id: str = "", issuer: str = ""
    ) -> tuple[str, BrowserSession]:
        """Return a new cookie for a browser in which *actor* has just logged in, with the key *key_id* or at *issuer*,
        and its session; that of its *former* cookie ends, so that one which was planted there is of no use. Raises
        TooManyBrowsers."""
        if former:
            await self.end(former)
        cookie = secrets.token_urlsafe(32)
        session = BrowserSession(row_key("browser", cookie), actor, self._now() + LIFE_S, key_id, issuer)
        value = {"actor": actor, "key_id": key_id, "issuer": issuer}
        row = Row("browser", session.key, actor, value, 1, session.expires_at)
        if not await self._rows.write(row, most_of_owner=MOST_OF_ACTOR):
            raise TooManyBrowsers
        return cookie, session

    async def find(self, cookie: str) -> BrowserSession | None:
        """Return the session; None if there is none, or it is over."""
        key = row_key("browser", cookie)
        row = await self._rows.read("browser", key)
        if row is None or row.expires_at is None or row.expires_at <= self._now():
            return None
        began_with = (str(row.value.get(name, "")) for name in ("key_id", "issuer"))
        return BrowserSession(key, row.owner, row.expires_at, *began_with)

    async def end(self, cookie: str) -> None:
        await self._rows.delete("browser", row_key("browser", cookie))

    async def end_all(self, actor: str) -> int:
        """End the sessions of *actor* in all browsers; return how many there were."""
        ended = [await self._rows.delete("browser", row.key) for row in await self._rows.of_owner("browser", actor)]
        return sum(ended)
