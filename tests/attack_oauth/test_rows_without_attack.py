"""Attacks on mitigations of the pages and of the guarded fetch that no other test attacks."""

import asyncio
from contextlib import suppress

import pytest

from tests.contract.test_connected_accounts import Person, hosted, link_of
from tests.login.test_attacks import one
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.login import oauth_http
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.steps import IssuerAway
from wicketgate.net import Outgoing


@requirement("UP-142")
async def test_an_issuer_that_drips_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is on the whole answer: a byte now and then does not put it off."""
    monkeypatch.setattr(oauth_http, "_READ_S", 0.5)
    left = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        try:
            with suppress(ConnectionError):
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)  # the drip
        finally:
            left.set()
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(IssuerAway):
                await Carrier(Outgoing(), [url]).run(one(f"{url}/x"))
            await left.wait()
    finally:
        server.close()


@requirement("ACCESS-162", "ACCESS-185")
async def test_a_link_and_a_way_back_count_no_more_when_their_time_is_over() -> None:
    async with hosted() as (service, server):
        logins = service.app.state.gate.logins.accounts.logins
        real, ahead = logins._now, 0.0
        logins._now = lambda: real() + ahead
        person = Person()
        link = await link_of(service)
        await person.sign_in(link)
        await person.send(a="connect")
        await person.go_on()
        ahead = 601.0
        late = await person.choose("ann")
        assert late.status_code == 410
        assert server.tokens == {}
        assert (await person.open(link)).status_code == 410
        # The next call gives another link.
        assert await link_of(service) != link
