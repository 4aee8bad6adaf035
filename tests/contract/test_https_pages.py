"""The pages of accounts at a gate that browsers reach by https, behind a proxy that ends TLS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie

import httpx

from tests.contract.test_connected_accounts import Person, close_browsers, forms
from tests.support.hosted_server import HostedServer
from tests.support.requirement import requirement
from tests.support.service import KEY, RunningService, running_service

GATE = "https://gate.example.com"


class BehindProxy(Person):
    """A browser that comes to *service* by the proxy's name. *seen* are the cookies that it was given, as they were."""

    def __init__(self, service: RunningService) -> None:
        super().__init__(mounts={GATE: httpx.ASGITransport(service.app)})
        self.seen: list[str] = []
        self.http.event_hooks["response"] = [self._see]

    async def _see(self, response: httpx.Response) -> None:
        self.seen += response.headers.get_list("set-cookie")

    def cookies(self) -> dict[str, SimpleCookie]:
        return {next(iter(cookie)): cookie for cookie in map(SimpleCookie, self.seen)}


@asynccontextmanager
async def behind_proxy() -> AsyncIterator[tuple[RunningService, str]]:
    """A gate, and the link to one of its pages."""
    server = HostedServer()
    async with server.running():
        own = {"name": "accounts", "url": server.url, "credentials": "user"}
        settings = {"upstreams": [own], "server": {"public_url": GATE, "allowed_hosts": ["gate.example.com"]}}
        async with running_service(None, None, settings=settings) as service:
            offered = (await service.http.post("/connections/accounts")).json()
            try:
                yield service, offered["url"]
            finally:
                await close_browsers()


@requirement("ACCESS-212", "ACCESS-183")
async def test_every_cookie_of_an_https_gate_is_bound_to_its_host_and_to_tls() -> None:
    async with behind_proxy() as (service, link):
        assert link.startswith(f"{GATE}/connect/accounts?f=")
        person = BehindProxy(service)
        await person.sign_in(link)
        await person.send(a="connect")
        await person.go_on()
        assert "is connected" in (await person.choose("ann")).text
        found = person.cookies()
        kinds = {name.removeprefix("__Host-wicketgate-").partition("-")[0] for name in found}
        assert kinds == {"form", "browser", "state"}
        assert len(person.seen) >= 5, "given and dropped"
        for text in person.seen:
            [(name, morsel)] = SimpleCookie(text).items()
            assert name.startswith("__Host-wicketgate-"), text
            assert (morsel["secure"], morsel["httponly"], morsel["path"]) == (True, True, "/"), text
            assert morsel["samesite"].lower() == "lax"
            assert morsel["domain"] == ""
        # The same cookie without the prefix, which a neighbour of the host could plant, counts for nothing.
        late = BehindProxy(service)
        await late.open(link)
        [form] = late.http.cookies.jar
        late.http.cookies.clear()
        planted = {"cookie": f"{form.name.replace('__Host-', '')}={form.value}"}
        action, hidden = forms(late.page.text)[0]
        refused = await late.http.post(action, data={**hidden, "key": KEY}, headers={"origin": GATE, **planted})
        assert refused.status_code == 403


@requirement("ACCESS-212", "ACCESS-189")
async def test_a_page_of_an_https_gate_leads_by_https_alone() -> None:
    async with behind_proxy() as (service, link):
        person = BehindProxy(service)
        shown = [(await person.open(link)).text, (await person.send(key=KEY)).text]
        for text in shown:
            [(action, _), *_] = forms(text)
            assert action.startswith(f"{GATE}/")
            assert "http://127.0.0.1" not in text
