"""The browsers that have logged in at the gate (ACCESS-165)."""

import secrets
from collections.abc import Callable

from wicketgate.login.keys import row_key
from wicketgate.login.login_flow import BrowserSession
from wicketgate.login.sealed_rows import OpenedRow, SealedRows

LIFE_S = 12 * 3_600.0
MOST_OF_ACTOR = 50


class TooManyBrowsers(Exception):
    """The actor has too many browser sessions."""


class Browsers:
    """The browser sessions that are kept in *rows*, by the hashes of their cookies. *now* is the time of day in
    seconds. Every method raises LoginsAway."""

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
        row = OpenedRow("browser", session.key, actor, value, 1, session.expires_at)
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
