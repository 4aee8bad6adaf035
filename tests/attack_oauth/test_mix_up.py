"""Mix-up (RFC 9700 §4.4): a hostile tool server has a person log in at an honest issuer, to be given the code."""

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.contract.test_connected_accounts import Person, close_browsers
from tests.support.http_service import Reply
from tests.support.locked_server import Issuer
from tests.support.requirement import requirement
from tests.support.service import running_service

PUBLIC = {"token_endpoint_auth_methods_supported": ["none"]}


class Honest(Issuer):
    """Takes registered clients with their own redirect addresses. Names itself in answers if *names_itself*, and takes
    no notice of ``resource``."""

    def __init__(self, *, names_itself: bool) -> None:
        super().__init__()
        self.names_itself = names_itself
        self.metadata = {**PUBLIC, "authorization_response_iss_parameter_supported": names_itself}

    def _authorize(self, query: dict[str, str]) -> Reply:
        clients = {f"client-{number}": each for number, each in enumerate(self.registered, 1)}
        if query["redirect_uri"] not in clients[query["client_id"]]["redirect_uris"]:
            return Reply(b"this client has no such redirect address", 400)
        back = super()._authorize(query)
        location = back.headers["location"]
        own = f"&{urlencode({'iss': self.issuer})}"
        return Reply(status=302, headers={"location": location if self.names_itself else location.replace(own, "")})


class Evil(Issuer):
    """Sends the browsers that come to its page on to *honest*, with *changes* in their query."""

    def __init__(self, honest: Honest, changes: dict[str, str], metadata: dict[str, Any]) -> None:
        super().__init__()
        self.metadata = {**PUBLIC, "authorization_response_iss_parameter_supported": None, **metadata}
        self._honest = honest
        self.changes = changes

    def _authorize(self, query: dict[str, str]) -> Reply:
        onward = f"{self._honest.issuer}/authorize?{urlencode({**query, **self.changes})}"
        return Reply(status=302, headers={"location": onward})


IDENTITY = {"client_id": "client-1"}
THERE = {**IDENTITY, "redirect_uri": "{redirect}"}
PROMISED = {"authorization_response_iss_parameter_supported": True}


@requirement("ACCESS-250", "ACCESS-251", "ACCESS-252")
@pytest.mark.parametrize(
    ("changes", "metadata", "names_itself", "status"),
    [
        # Its document names the page of the honest issuer.
        ({}, {"authorization_endpoint": "{honest}/authorize"}, False, 502),
        ({}, {"authorization_endpoint": "{honest}/authorize"}, True, 502),
        ({}, {"authorization_endpoint": "{honest}/authorize", **PROMISED}, False, 400),
        # Its own page sends the browser on, as the gate's client there, with either redirect address.
        (IDENTITY, {}, False, 400),
        (THERE, {}, False, 400),
        (THERE, {}, True, 400),
        (THERE, PROMISED, False, 400),
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
    evil = Evil(honest, changes, metadata)
    async with honest, evil:
        places = {"honest": honest.issuer, "evil": evil.issuer}
        evil.metadata = {name: _placed(value, **places) for name, value in evil.metadata.items()}
        entries = [
            {"name": name, "url": each.server_url, "credentials": "user"}
            for name, each in (("fine", honest), ("evil", evil))
        ]
        async with running_service(None, None, settings={"upstreams": entries}, public=True) as service:
            ann = Person()
            await ann.sign_in((await service.http.post("/connections/fine")).json()["url"])
            await ann.send(a="connect")
            assert "is connected" in (await ann.go_on()).text
            redirect = honest.authorized[0]["redirect_uri"]
            evil.changes = {name: value.format(redirect=redirect) for name, value in changes.items()}
            # The attacker knows how the gate is called at the honest issuer.
            evil.metadata["registration_endpoint"] = f"{evil.issuer}/register"
            await ann.open((await service.http.post("/connections/evil")).json()["url"])
            answer = await ann.send(a="connect")
            if answer.status_code == 200:
                answer = await ann.go_on()
            assert answer.status_code == status, answer.text
            assert evil.forms == []
            assert len(honest.forms) == 1
            await close_browsers()


def _placed(value: Any, **places: str) -> Any:
    return value.format(**places) if isinstance(value, str) else value
