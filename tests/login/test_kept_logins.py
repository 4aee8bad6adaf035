"""Calls that wait for the outcome of a login."""

import asyncio
import time

from tests.login.stores import KEY
from tests.support.requirement import requirement
from wicketgate.login.kept_logins import KeptLogins
from wicketgate.login.login_flow import BrowserSession, Login
from wicketgate.login.logins import Logins
from wicketgate.login.rows import LoginsAway
from wicketgate.login.sealed_rows import RowSeal, SealedRows
from wicketgate.storage.memory_logins import MemoryRowStore


@requirement("FACE-130")
async def test_a_waiting_call_is_told_how_its_login_ended() -> None:
    logins = Logins(SealedRows(MemoryRowStore(time.time), RowSeal([KEY], b"own")), time.time)
    waiting = KeptLogins(logins)
    login = await logins.offer("ann", "linear", frozenset())
    assert await waiting.outcome(login.flow, 0.01) == "waiting"
    assert await waiting.outcome("no such", 0.01) == "failed"
    asked = asyncio.create_task(waiting.outcome(login.flow, 30))
    ann = BrowserSession("browser", "ann", time.time() + 3_600)
    opened = await logins.open(login.flow, ann)
    await logins.decline(login.flow, ann, opened.csrf)
    assert await asked == "declined"


@requirement("FACE-130")
async def test_a_store_that_is_away_ends_no_login() -> None:
    class Away(Logins):
        async def outcome(self, flow: str, within_s: float) -> Login:
            raise LoginsAway

    away = Away(SealedRows(MemoryRowStore(time.time), RowSeal([KEY], b"own")), time.time)
    assert await KeptLogins(away).outcome("any", 0.01) == "waiting"


@requirement("ACCESS-209")
async def test_an_outcome_is_heard_of_before_the_call_goes_on() -> None:
    heard: list[str] = []
    logins = Logins(SealedRows(MemoryRowStore(time.time), RowSeal([KEY], b"own")), time.time)
    waiting = KeptLogins(logins, lambda login: heard.append(login.upstream))
    login = await logins.offer("ann", "linear", frozenset())
    assert await waiting.outcome(login.flow, 0.01) == "waiting"
    assert heard == []
    await logins.log_in(login.flow, BrowserSession("browser", "ann", time.time() + 3_600))
    assert await waiting.outcome(login.flow, 0.01) == "granted"
    assert heard == ["linear"]
