"""Mix-up (RFC 9700 §4.4): a hostile tool server has a person log in at an honest issuer, to be given the code."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.contract.test_connected_accounts import Person, close_browsers
from tests.login.test_attacks import client_of
from tests.support.http_service import Reply, Seen
from tests.support.locked_server import Issuer
from tests.support.requirement import requirement
from tests.support.service import running_service
from wicketgate.login.steps import IssuerUnnamed

PUBLIC = {"token_endpoint_auth_methods_supported": ["none"]}


class Honest(Issuer):
    """Takes registered clients with their own redirect addresses, and keeps the query of these. Names itself in answers
    if *names_itself*, and takes no notice of ``resource``."""

    def __init__(self, *, names_itself: bool) -> None:
        super().__init__()
        self.names_itself = names_itself
        self.metadata = {**PUBLIC, "authorization_response_iss_parameter_supported": names_itself}

    def _authorize(self, query: dict[str, str]) -> Reply:
        clients = {f"client-{number}": each for number, each in enumerate(self.registered, 1)}
        if query["redirect_uri"] not in clients[query["client_id"]]["redirect_uris"]:
            return Reply(b"this client has no such redirect address", 400)
        location = super()._authorize(query).headers["location"]
        own = f"&{urlencode({'iss': self.issuer})}"
        location = location if self.names_itself else location.replace(own, "")
        if "?" in query["redirect_uri"]:
            location = f"{query['redirect_uri']}&{location.rpartition('?')[2]}"
        return Reply(status=302, headers={"location": location})


class Evil(Issuer):
    """Sends the browsers that come to its page on to *honest*, with *changes* in their query. With *proxies* it has the
    gate registered there, with *added* to the redirect address."""

    def __init__(self, honest: Honest, changes: dict[str, str], metadata: dict[str, Any]) -> None:
        super().__init__()
        self.metadata = {**PUBLIC, **metadata}
        self._honest = honest
        self.changes = changes
        self.proxies, self.added = False, ""

    def answer(self, seen: Seen) -> Reply:
        if not (self.proxies and seen.target == "/as/register"):
            return super().answer(seen)
        asked = json.loads(seen.body)
        asked["redirect_uris"] = [uri + self.added for uri in asked["redirect_uris"]]
        return self._honest.answer(replace(seen, body=json.dumps(asked).encode()))

    def _authorize(self, query: dict[str, str]) -> Reply:
        query = {**query, "redirect_uri": query["redirect_uri"] + self.added, **self.changes}
        return Reply(status=302, headers={"location": f"{self._honest.issuer}/authorize?{urlencode(query)}"})


IDENTITY = {"client_id": "client-1"}
THERE = {**IDENTITY, "redirect_uri": "{redirect}"}
SILENT = {"authorization_response_iss_parameter_supported": None}
REGISTERS_THERE = {"registration_endpoint": "{honest}/register"}
TOKENS_THERE = {"token_endpoint": "{honest}/token"}
PROXIED: dict[str, Any] = {"proxies": True}


@requirement("ACCESS-250", "ACCESS-251", "ACCESS-252", "ACCESS-310", "ACCESS-311", "ACCESS-312")
@pytest.mark.parametrize(
    ("changes", "metadata", "names_itself", "status"),
    [
        # An issuer that does not promise `iss` in its answers is refused before the browser is sent anywhere.
        ({}, SILENT, False, 502),
        ({}, {**SILENT, **PROXIED}, False, 502),
        ({}, {**SILENT, "authorization_endpoint": "{honest}/authorize"}, True, 502),
        # Its document names endpoints of the honest issuer.
        ({}, {"authorization_endpoint": "{honest}/authorize"}, False, 400),
        ({}, REGISTERS_THERE, False, 502),
        ({}, {**REGISTERS_THERE, **TOKENS_THERE}, False, 502),
        ({}, {**PROXIED, **TOKENS_THERE}, False, 502),
        ({}, {"revocation_endpoint": "{honest}/revoke"}, False, 502),
        # Its own page sends the browser on, as the gate's client there, with either redirect address.
        (IDENTITY, {}, False, 400),
        (THERE, {}, False, 400),
        (THERE, {}, True, 400),
        # It has registered the gate there with its own redirect address, or with one that has its name in it.
        ({}, PROXIED, False, 400),
        ({}, PROXIED, True, 400),
        ({}, {**PROXIED, "added": "?iss={evil}"}, False, 410),
        ({}, {**PROXIED, "added": "?session_state=x&iss={evil}"}, False, 410),
        ({}, {**PROXIED, "added": "?iss={evil}"}, True, 410),
        # The query of its page has what the gate decides, before the gate's own.
        ({}, {"authorization_endpoint": "{evil}/authorize?redirect_uri=x"}, False, 502),
        ({}, {"authorization_endpoint": "{evil}/authorize?a=b;state=x"}, False, 502),
        ({}, {"authorization_endpoint": "{evil}/authorize?client_id="}, False, 502),
    ],
)
async def test_no_server_is_given_a_code_of_another_issuer(
    changes: dict[str, str], metadata: dict[str, Any], names_itself: bool, status: int
) -> None:
    honest = Honest(names_itself=names_itself)
    evil = Evil(honest, changes, {})
    async with honest, evil:
        places = {"honest": honest.issuer, "evil": evil.issuer}
        evil.metadata |= {name: _placed(value, **places) for name, value in metadata.items()}
        evil.proxies, evil.added = evil.metadata.pop("proxies", False), evil.metadata.pop("added", "")
        # The operator trusts the honest issuer, which may not name itself.
        entries: list[dict[str, Any]] = [
            {"name": "fine", "url": honest.server_url, "credentials": "user", "oauth": {"issuer": honest.issuer}},
            {"name": "evil", "url": evil.server_url, "credentials": "user"},
        ]
        async with running_service(None, None, settings={"upstreams": entries}, public=True) as service:
            ann = Person()
            await ann.sign_in((await service.http.post("/connections/fine")).json()["url"])
            await ann.send(a="connect")
            assert "is connected" in (await ann.go_on()).text
            redirect = honest.authorized[0]["redirect_uri"]
            evil.changes = {name: value.format(redirect=redirect) for name, value in changes.items()}
            answer = await ann.open((await service.http.post("/connections/evil")).json()["url"])
            if answer.status_code == 200:
                answer = await ann.send(a="connect")
            if answer.status_code == 200:
                answer = await ann.go_on()
            assert answer.status_code == status, answer.text
            assert evil.forms == []
            assert len(honest.forms) == 1
            await close_browsers()


@requirement("ACCESS-313")
async def test_a_login_at_an_unnamed_issuer_says_what_the_operator_writes() -> None:
    async with Issuer() as on:
        on.metadata |= SILENT
        with pytest.raises(IssuerUnnamed) as refused:
            await client_of(on).find()
        assert refused.value.detail.endswith(f"oauth.issuer: {on.issuer}")
        assert "oauth.issuer" in refused.value.why
        assert (await client_of(on, issuer=on.issuer).find()).issuer.issuer == on.issuer


def _placed(value: Any, **places: str) -> Any:
    return value.format(**places) if isinstance(value, str) else value
