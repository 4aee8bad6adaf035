"""Attacks on mitigations of the pages and of the guarded fetch that no other test attacks."""

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.contract.test_connected_accounts import TOOL, Person, close_browsers, hosted, link_of
from tests.login.test_attacks import one
from tests.support.hosted_server import HostedServer
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, running_service
from tests.support.wire_client import WireClient
from wicketgate.login import carrier
from wicketgate.login.carrier import Carrier
from wicketgate.login.failures import IssuerAway
from wicketgate.net import Outgoing


@requirement("ACCESS-183")
async def test_over_https_no_neighbour_of_our_host_can_plant_or_read_a_cookie() -> None:
    server = HostedServer()
    async with server.running():
        own = {"name": "accounts", "url": server.url, "credentials": "user"}
        settings = {"upstreams": [own], "server": {"public_url": "https://gate.example"}}
        async with running_service(None, None, settings=settings) as service:
            answer = await WireClient(service).call(TOOL, {})
            link = answer["result"]["structuredContent"]["connect_required"]["url"]
            assert link.startswith("https://gate.example/connect/accounts?f=")
            parts = urlsplit(link)
            async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=BOUND_S) as http:
                host = {"host": "gate.example", "origin": "https://gate.example"}
                page = await http.get(f"{parts.path}?{parts.query}", headers={"host": "gate.example"})
                [form] = page.headers.get_list("set-cookie")
                token = form.partition("=")[2].partition(";")[0]
                data = {"u": "accounts", "f": parts.query[2:], "t": token, "key": KEY}
                sent = {**host, "cookie": form.partition(";")[0]}
                signed_in = await http.post("/login/key", data=data, headers=sent)
                assert signed_in.headers["location"] == link
                # The same cookie under the name without the prefix, which a neighbour could plant, counts for nothing.
                planted = form.partition(";")[0].replace("__Host-", "")
                refused = await http.post("/login/key", data=data, headers={**host, "cookie": planted})
                assert refused.status_code == 403
        for cookie in (form, *signed_in.headers.get_list("set-cookie")):
            assert cookie.startswith("__Host-")
            words = {word.strip().lower() for word in cookie.split(";")[1:]}
            assert {"secure", "httponly", "path=/", "samesite=lax"} <= words
            assert not any(word.startswith("domain") for word in words)


@requirement("UP-142")
async def test_an_issuer_that_drips_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is on the whole answer: a byte now and then does not put it off."""
    monkeypatch.setattr(carrier, "_READ_S", 0.5)
    left = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        try:
            with suppress(ConnectionError):
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)
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


@requirement("ACCESS-186")
@pytest.mark.parametrize(
    ("iss", "good"),
    [(None, False), ("{origin}", False), ("{origin}/x", False), ("", False), ("{upper}/", False), ("{origin}/", True)],
)
async def test_an_issuer_that_says_that_it_names_itself_has_to_do_so_at_the_callback(iss: Any, good: bool) -> None:
    server = HostedServer()
    async with server.running():
        own = {"name": "accounts", "url": server.url, "credentials": "user"}
        async with running_service(None, None, settings={"upstreams": [own]}, public=True) as service:
            upper = server.origin.replace("http", "HTTP")
            server.issuer.adds = {} if iss is None else {"iss": iss.format(origin=server.origin, upper=upper)}
            done = await Person().connect(await link_of(service), "ann")
            assert (done.status_code == 200) == good
            assert bool(server.tokens) == good
            await close_browsers()


@requirement("ACCESS-162", "ACCESS-185")
async def test_a_link_and_a_way_back_count_no_more_when_their_time_is_over() -> None:
    async with hosted() as (service, server):
        logins = service.app.state.gate.user_logins.logins
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
