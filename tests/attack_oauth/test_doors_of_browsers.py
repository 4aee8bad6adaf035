"""Attacks with cookies of the pages, on sign-in by strangers, and between two servers of one caller."""

from typing import Any

from routers.login_tries import LoginTries
from tests.contract.test_connected_accounts import Person, close_browsers, forms, hosted, link_of, plain_get, who
from tests.support.hosted_server import HostedServer
from tests.support.requirement import requirement
from tests.support.service import KEY, OTHER_KEY, running_service
from tests.support.wire_client import WireClient


@requirement("ACCESS-183", "ACCESS-195")
async def test_the_cookie_of_a_browser_opens_no_other_door() -> None:
    """CSRF on revocation: no page of another site ends an account, because no cookie is a credential there."""
    async with hosted() as (service, server):
        person = Person()
        await person.connect(await link_of(service), "ann")
        for method, path in (
            ("GET", "/connections"),
            ("DELETE", "/connections/accounts"),
            ("POST", "/connections/accounts"),
            ("POST", "/operations/call"),
            ("POST", "/mcp"),
            ("POST", "/console/api/approvals/x"),
            ("GET", "/console/api/me"),
        ):
            answer = await person.http.request(method, f"{service.url}{path}")
            assert answer.status_code == 401, path
            preflight = await person.http.options(
                f"{service.url}{path}",
                headers={"origin": "https://evil.example", "access-control-request-method": method},
            )
            assert preflight.headers.get("access-control-allow-origin") not in ("*", "https://evil.example")
        assert server.issuer.revoked == []
        assert await who(service) == "ann"


@requirement("ACCESS-188", "ACCESS-255")
async def test_wrong_keys_of_a_network_keep_no_right_key_of_it_out() -> None:
    async with hosted() as (service, _):
        link, stranger = await link_of(service), Person()
        await stranger.open(link)
        action, hidden = forms(stranger.page.text)[0]
        wrong = [await stranger.http.post(action, data={**hidden, "key": "wg_wrong"}) for _ in range(12)]
        assert [each.status_code for each in wrong] == [401] * 10 + [429] * 2
        assert (await Person().sign_in(link)).status_code == 200


@requirement("ACCESS-183", "ACCESS-256")
async def test_a_page_of_another_origin_sends_no_form_even_with_good_cookies() -> None:
    """Another port of this machine is one, too."""
    async with hosted() as (service, server):
        person = Person()
        await person.sign_in(await link_of(service))
        action, hidden = forms(person.page.text)[0]
        port = service.url.rpartition(":")[2]
        here = ("http://127.0.0.1:1", f"http://localhost:{port}", "http://localhost:1")
        for origin in (*here, "null", "https://evil.example", f"{service.url}.evil.example", "http://evil.example:80"):
            for url in (action, *(f"{service.url}/login/{name}" for name in ("key", "issuer/corp", "out"))):
                refused = await person.http.post(url, data={**hidden, "a": "connect"}, headers={"origin": origin})
                assert refused.status_code == 403, (origin, url)
        assert server.issuer.clients == {}


@requirement("ACCESS-188")
def test_wrong_keys_are_counted_by_networks_and_those_of_many_keep_out_none_that_was_not_wrong() -> None:
    now = 0.0
    tries = LoginTries(lambda: now)
    for number in range(10):
        tries.wrong(f"2001:db8:1:2::{number}")
    assert not tries.may("2001:db8:1:2:ffff::1")
    assert tries.may("2001:db8:1:3::1")
    for number in range(290):
        tries.wrong(f"2001:db8:2:{number:x}::1")
    tries.wrong("::ffff:192.0.2.1")
    assert not tries.may("2001:db8:2:1::2")
    assert not tries.may("192.0.2.1")
    assert tries.may("192.0.2.2")
    assert tries.may("")
    now = 60.0
    assert tries.may("2001:db8:1:2::1")


@requirement("ACCESS-156", "ACCESS-181")
async def test_an_account_at_one_server_is_none_at_another_of_the_same_caller() -> None:
    first, second = HostedServer(), HostedServer()
    async with first.running(), second.running():
        entries = [
            {"name": "accounts", "url": first.url, "credentials": "user"},
            {"name": "second", "url": second.url, "credentials": "user"},
        ]
        async with running_service(None, None, settings={"upstreams": entries}, public=True) as service:
            await Person().connect(await link_of(service), "ann")
            assert await who(service) == "ann"
            answer = await WireClient(service).call("second__whoami", {})
            assert answer["result"]["structuredContent"]["connect_required"]["upstream"] == "second"
            assert not any(token in str(second.seen) for token in first.tokens)
            # Nor is a link of one a link of the other.
            link = answer["result"]["structuredContent"]["connect_required"]["url"]
            person = Person()
            await person.sign_in(link)
            crossed = await person.open(link.replace("/connect/second", "/connect/accounts"))
            assert crossed.status_code == 410
            action, hidden = forms((await person.open(link)).text)[0]
            moved = await person.http.post(
                action.replace("/connect/second", "/connect/accounts"), data={**hidden, "a": "connect"}
            )
            assert moved.status_code == 410
            await close_browsers()


@requirement("ACCESS-184")
async def test_a_flow_of_another_tells_nothing_over_the_api_either() -> None:
    async with hosted() as (service, _):
        offered: dict[str, Any] = (await service.http.post("/connections/accounts")).json()
        other = {"Authorization": f"Bearer {OTHER_KEY}"}
        found = await service.http.get(f"/connections/accounts/login?f={offered['flow']}", headers=other)
        assert found.status_code == 404
        unknown = await service.http.get("/connections/accounts/login?f=x", headers=other)
        assert unknown.status_code in (200, 404)
        for odd in ("%00", "x" * 5_000, "..", "\u202e"):
            answer = await service.http.get("/connections/accounts/login", params={"f": odd, "wait_s": "nan"})
            assert answer.status_code < 500
            page = await plain_get(f"{service.url}/connect/accounts?f={odd}")
            assert page.status_code < 500
        assert KEY not in str(offered)
