"""The ID tokens of callers: whose they are, how long they are used, and for whom."""

from collections.abc import AsyncIterator, Mapping
from time import time

import pytest

from tests.login.stores import opened_rows
from tests.support.requirement import requirement
from wicketgate.access.issuer import BrowserClient, Issuer
from wicketgate.login.browser_logins import KeptIdTokens
from wicketgate.login.sealed_rows import SealedRows

CORP = Issuer("corp", "https://id.example", login=BrowserClient("gate"))


@pytest.fixture
async def rows() -> AsyncIterator[SealedRows]:
    async with opened_rows("") as opened:
        yield opened


def kept(rows: SealedRows, *issuers: Issuer, ahead_s: float = 0.0) -> KeptIdTokens:
    named: Mapping[str, Issuer] = {each.name: each for each in issuers}
    return KeptIdTokens(rows, lambda: named, lambda: time() + ahead_s)


@requirement("UP-195", "UP-196")
async def test_the_latest_of_each_actor_is_used_until_it_ends(rows: SealedRows) -> None:
    tokens = kept(rows, CORP)
    for actor, token in (("corp:ann", "first"), ("corp:ben", "bens"), ("corp:ann", "second")):
        await tokens.keep("corp", actor, token, time() + 60)
    assert [await tokens.id_token_of(f"corp:{each}") for each in ("ann", "ben", "cat")] == ["second", "bens", None]
    assert await kept(rows, CORP, ahead_s=61).id_token_of("corp:ann") is None
    # One that has ended takes the place of none.
    await tokens.keep("corp", "corp:ann", "ended", time() - 1)
    assert await tokens.id_token_of("corp:ann") == "second"


@requirement("UP-196")
@pytest.mark.parametrize(
    "now",
    [
        Issuer("corp", "https://another.example", login=BrowserClient("gate")),
        Issuer("corp", "https://id.example", login=BrowserClient("another")),
        Issuer("other", "https://id.example", login=BrowserClient("gate")),
    ],
)
async def test_it_goes_to_nobody_but_the_issuer_that_gave_it(rows: SealedRows, now: Issuer) -> None:
    await kept(rows, CORP).keep("corp", "corp:ann", "hers", time() + 60)
    assert await kept(rows, now).id_token_of("corp:ann") is None
    assert await kept(rows, CORP).id_token_of("corp:ann") == "hers"


@requirement("UP-195")
async def test_nothing_is_kept_where_nothing_needs_it(rows: SealedRows) -> None:
    await kept(rows).keep("corp", "corp:ann", "hers", time() + 60)
    assert not await rows.of_owner("id_token", None)


@requirement("UP-195")
async def test_processes_share_them(store_url: str) -> None:
    async with opened_rows(store_url) as here, opened_rows(store_url) as there:
        await kept(here, CORP).keep("corp", "corp:ann", "hers", time() + 1e300)
        await kept(there, CORP).keep("corp", "corp:ann", "newer", time() + 60)
        assert await kept(here, CORP).id_token_of("corp:ann") == "newer"
