"""The gate is registered once at each issuer, by whichever process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.login.stores import opened_rows
from tests.support.requirement import requirement
from tests.support.until import settle
from wicketgate.login.registrar import Registration
from wicketgate.login.sealed_rows import Row, SealedRows
from wicketgate.login.server_login import Registrations


def client(issuer: str, redirect_uri: str, client_id: str) -> Registration:
    return Registration(issuer, redirect_uri, client_id, "client_secret_post", "asked", "s3cret", 9e9)


@pytest.fixture(params=["memory", "sqlite"])
async def rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SealedRows]:
    async with opened_rows(str(tmp_path / "store.db") if request.param == "sqlite" else "") as made:
        yield made


@requirement("ACCESS-155")
async def test_of_processes_that_ask_at_once_one_registers(rows: SealedRows) -> None:
    asked = 0

    async def register() -> Registration:
        nonlocal asked
        asked += 1
        number = asked
        await settle()
        return client("https://id", "https://gw/cb", f"client-{number}")

    processes = [Registrations(rows) for _ in range(5)]
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(each.get("https://id", "https://gw/cb", register) for each in processes))
    assert {each.client_id for each in found} == {"client-1"}
    assert await processes[0].find("https://id2", "https://gw/cb") is None, "it is of no use at another issuer"
    assert await processes[0].find("https://id", "https://gw2/cb") is None
    # The issuer has forgotten it: once more, and who hears of that late changes nothing.
    await processes[1].forget(found[0])
    again = await processes[2].get("https://id", "https://gw/cb", register)
    await processes[3].forget(found[0])
    assert again.client_id == "client-2"
    assert await processes[4].find("https://id", "https://gw/cb") == again


@requirement("ACCESS-155")
async def test_one_that_cannot_be_read_is_made_anew_and_a_failure_leaves_room(rows: SealedRows) -> None:
    registrations = Registrations(rows)

    async def fail() -> Registration:
        raise ConnectionError

    async def register() -> Registration:
        return client("i", "r", "c1")

    with pytest.raises(ConnectionError):
        await registrations.get("i", "r", fail)
    made = await registrations.get("i", "r", register)
    row = (await rows.of_owner("registration", ""))[0]
    await rows.write(Row("registration", row.key, "", {"of": "another release"}, row.version + 1))
    assert await registrations.find("i", "r") is None
    assert await registrations.get("i", "r", register) == made
    assert await registrations.find("i", "r") == made
