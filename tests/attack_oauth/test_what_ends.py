"""What was started by a token that its issuer has taken back, and what another issuer under an old name is given."""

import asyncio

import pytest

from tests.contract.test_connected_accounts import Person, link_of, who
from tests.contract.test_connecting_in_a_browser import with_issuer
from tests.contract.test_oauth_door import service_of
from tests.contract.test_revocation import by, listening_chat, rest
from tests.support.issuer import Issuer
from tests.support.person_issuer import CLIENT, SECRET, PersonIssuer
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from wicketgate.config.settings import Settings
from wicketgate.models.provider import TextDelta

_LOOKS_S = 4.0


@pytest.mark.xfail(strict=True, reason="a token is asked about when a request comes, and not while one runs")
@requirement("ACCESS-119", "ACCESS-122")
async def test_a_stream_of_a_token_that_was_taken_back_ends() -> None:
    """Whoever stole it goes on reading until its ``exp``, though new requests are refused after a minute."""
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *says("two")])
    asking = {"client_id": "gate", "client_secret": "secret"}
    async with Issuer() as issuer, service_of(issuer, model, introspection=asking) as (service, clock):
        issuer.opaque["stolen"] = issuer.claims(aud="gate", exp=clock.now + 3_600)
        _, lines = await listening_chat(service, "stolen")
        del issuer.opaque["stolen"]
        clock.now += 61
        assert (await service.http.get("/operations", headers=by("stolen"))).status_code == 401
        reading = asyncio.create_task(rest(lines))
        ended, _ = await asyncio.wait([reading], timeout=_LOOKS_S)
        go_on.set()
        await reading
        assert ended


@pytest.mark.xfail(strict=True, reason="grants belong to the name of an issuer and the subject, not to its URL")
@requirement("ACCESS-120", "ACCESS-156")
async def test_another_issuer_under_an_old_name_is_not_given_the_accounts_of_the_former() -> None:
    """The operator moves from one identity provider to the next, and both have an ann."""
    async with with_issuer("ann") as (service, server, issuer), PersonIssuer("ann") as other:
        token = issuer.token(aud="gate", sub="ann")
        person = Person()
        await person.open(await link_of(service, token))
        await person.send(0)
        await person.go_on()
        await person.choose("ann")
        await person.send(a="connect")
        await person.go_on()
        await person.choose("ann")
        assert await who(service, token) == "ann"
        login = {"client_id": CLIENT, "client_secret": SECRET}
        entry = {"name": "corp", "issuer": other.url, "audience": ["gate"], "login": login}
        own = {"name": "accounts", "url": server.url, "credentials": "user"}
        settings = {"server": {"public_url": service.url}, "upstreams": [own], "auth": {"issuers": [entry]}}
        await service.app.state.gate.apply(Settings.model_validate(settings))
        assert "connect_required" in await who(service, other.token(aud="gate", sub="ann"))
