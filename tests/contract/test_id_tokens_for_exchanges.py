"""Callers log in with a browser at their issuer, and its ID token leads to a token of a tool server (UP-195 to
UP-199)."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from mcp import types as t

from tests.contract.test_connected_accounts import Person, close_browsers
from tests.contract.test_exchanged_tokens import WHOAMI, Clock
from tests.contract.test_revocation import by
from tests.support import exchange_issuer
from tests.support.account_server import AccountServer
from tests.support.exchange_issuer import ExchangeIssuer, TokensFor
from tests.support.issuer import OTHER_RSA, RSA
from tests.support.mcp_client import ERAS, mcp_client
from tests.support.person_issuer import CLIENT, SECRET, PersonIssuer
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, RunningService, running_service
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate


class Corp(PersonIssuer, ExchangeIssuer):
    """An issuer at which persons log in, and which gives assertions about them."""


def configured(corp: str, theirs: str, server: str, login: Mapping[str, Any] | None) -> dict[str, Any]:
    entry = {"name": "corp", "issuer": corp, "audience": ["gate"], **({} if login is None else {"login": login})}
    way = {"by": "id_jag", "client_id": CLIENT, "client_secret": exchange_issuer.SECRET}
    there = {"issuer": theirs, "client_id": "gate-there", "client_secret": "secret-there"}
    own = {"name": "accounts", "url": server, "credentials": "exchange", "oauth": {**there, "exchange": way}}
    return {"auth": {"issuers": [entry]}, "upstreams": [own]}


LOGIN = {"client_id": CLIENT, "client_secret": SECRET}


@dataclass
class Setup:
    service: RunningService
    corp: Corp
    theirs: ExchangeIssuer
    server: AccountServer
    clock: Clock

    def token(self, person: str, **claims: Any) -> str:
        return self.corp.token(sub=person, aud="gate", **claims)

    async def whoami(self, token: str) -> dict[str, Any]:
        answer = await self.service.http.post("/operations/call", json=WHOAMI, headers=by(token))
        body: dict[str, Any] = answer.json()
        return body

    async def link(self, token: str) -> str:
        body = await self.whoami(token)
        assert body["code"] == "CONNECT_REQUIRED", body
        url: str = re.search(r'http[^"\']+/connect/accounts\?f=[\w-]+', str(body))[0]  # type: ignore[index]
        assert url.startswith(self.service.url)
        return url

    def subjects(self) -> list[str]:
        """The tokens for which assertions were asked, in the order in which they were."""
        return [form["subject_token"] for form in self.corp.forms]


@asynccontextmanager
async def serving(*people: str) -> AsyncIterator[Setup]:
    server, clock = AccountServer(), Clock()
    async with (
        asyncio.timeout(BOUND_S),
        server.running(),
        Corp(*people) as corp,
        ExchangeIssuer(OTHER_RSA) as theirs,
    ):
        corp.clock = theirs.clock = clock
        theirs.clients, theirs.trusted = {"gate-there": "secret-there"}, {corp.url: RSA}
        server.tokens = TokensFor(theirs, server.url, OTHER_RSA)  # type: ignore[assignment]
        settings = configured(corp.url, theirs.url, server.url, LOGIN)
        async with running_service(None, None, settings=settings, clock=clock, public=True) as service:
            try:
                yield Setup(service, corp, theirs, server, clock)
            finally:
                await close_browsers()


async def log_in(person: Person, link: str, name: str) -> None:
    page = await person.open(link)
    assert "Log in at" in page.text
    assert 'name="key"' not in page.text
    await person.send(0)
    await person.go_on()
    done = await person.choose(name)
    assert (done.status_code, "Logged in" in done.text) == (200, True), done.text


@requirement("UP-195", "UP-196", "UP-197", "UP-198")
async def test_a_login_at_the_callers_issuer_is_all_that_a_call_needs() -> None:
    async with serving("ann", "ben") as setup:
        ann, ben, browser = setup.token("ann"), setup.token("ben"), Person()
        link = await setup.link(ann)
        assert not setup.corp.forms
        await log_in(browser, link, "ann")
        assert "ann" in str(await setup.whoami(ann))
        # The server has seen what its own issuer gave, and that alone.
        assert set(setup.server.seen) == {f"Bearer {each}" for each in setup.theirs.given}
        [of_ann] = setup.subjects()
        assert not {ann, of_ann} & {value for form in setup.theirs.forms for value in form.values()}
        # The ID token of ann is nobody else's, whose link is of no use in her browser.
        of_ben = await setup.link(ben)
        assert (await browser.open(of_ben)).status_code == 403
        await setup.link(ben)
        assert setup.subjects() == [of_ann]
        other = Person()
        await log_in(other, of_ben, "ben")
        assert "ben" in str(await setup.whoami(ben))
        assert len(set(setup.subjects())) == 2
        # A new access token of ann needs no other login, until the ID token ends.
        assert "ann" in str(await setup.whoami(setup.token("ann", jti="2")))
        assert setup.subjects()[2:] == [of_ann]
        setup.clock.ahead_s = 301
        later = setup.token("ann", jti="3")
        link = await setup.link(later)
        assert len(setup.subjects()) == 3
        # The browser is signed in still, which gives no ID token.
        await log_in(browser, link, "ann")
        assert "ann" in str(await setup.whoami(later))
        assert setup.subjects()[3] != of_ann
        # A key has no issuer at which its caller could log in.
        assert (await setup.whoami(KEY))["code"] == "FORBIDDEN"


@requirement("UP-198")
@ERAS
async def test_a_call_that_waits_goes_on_after_the_login(mode: str) -> None:
    async with serving("ann") as setup:
        browsing: list[asyncio.Task[None]] = []

        async def answer(context: Any, params: t.ElicitRequestURLParams) -> t.ElicitResult:
            if not browsing:
                browsing.append(asyncio.create_task(log_in(Person(), params.url, "ann")))
            return t.ElicitResult(action="accept")

        async with mcp_client(
            setup.service, mode, setup.token("ann"), "/mcp/gateway", client={"elicitation_callback": answer}
        ) as client:
            result = await client.call_tool("tool_execute", {"tool_id": "accounts:whoami"})
        await asyncio.gather(*browsing)
        assert browsing
        assert "ann" in str(result.content)


@requirement("UP-199")
@pytest.mark.parametrize(
    ("login", "words"),
    [
        (None, "set login of the issuer corp"),
        ({**LOGIN, "client_id": "another"}, "must be login.client_id of the issuer corp"),
    ],
)
async def test_without_a_login_at_the_issuer_the_configuration_says_what_to_set(login: Any, words: str) -> None:
    def settings(login: Any) -> Settings:
        whole = configured("https://id.example", "https://as.example", "https://files.example/mcp", login)
        return Settings.model_validate({"server": {"public_url": "https://gate.example"}, **whole})

    with pytest.raises(ConfigError, match=words):
        Gate(settings(login))
    gate = Gate(settings(LOGIN))
    with pytest.raises(ConfigError, match=words):
        await gate.apply(settings(login))
    assert gate.keys.issuers.all[0].login is not None
