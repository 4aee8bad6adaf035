"""What was started by a token that its issuer has taken back, and what another issuer under an old name is given."""

import asyncio
from typing import Any

import pytest

from tests.contract.test_connected_accounts import Person, link_of, who
from tests.contract.test_connecting_in_a_browser import with_issuer
from tests.contract.test_oauth_door import service_of
from tests.contract.test_revocation import listening_chat, rest
from tests.support.issuer import Issuer
from tests.support.person_issuer import CLIENT, SECRET, PersonIssuer
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.until import until
from wicketgate.config.settings import Settings
from wicketgate.models.provider import TextDelta

OPAQUE = {"client_id": "gate", "client_secret": "secret"}


@requirement("ACCESS-234")
async def test_a_stream_of_a_token_that_was_taken_back_ends() -> None:
    """Whoever stole it would go on reading until its ``exp``, though new requests are refused after a minute."""
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *says("two")])
    async with Issuer() as issuer, service_of(issuer, model, introspection=OPAQUE) as (service, clock):
        issuer.opaque["stolen"] = issuer.claims(aud="gate", exp=clock.now + 3_600)
        _, lines = await listening_chat(service, "stolen")
        del issuer.opaque["stolen"]
        clock.now += 61
        # The model never goes on: the stream ends by itself, or not at all.
        ends = await rest(lines)
        assert ends[-1][1]["finish_reason"] == "cancelled"


@requirement("ACCESS-234")
async def test_a_stream_goes_on_while_its_token_is_good_and_while_its_issuer_cannot_be_asked() -> None:
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *says("two")])
    async with Issuer() as issuer, service_of(issuer, model, introspection=OPAQUE) as (service, clock):
        issuer.opaque["good"] = issuer.claims(aud="gate", exp=clock.now + 3_600)
        _, lines = await listening_chat(service, "good")
        for away in (False, True):
            issuer.away = away
            asked = issuer.seen.count("/introspect")
            clock.now += 61
            await until(lambda: issuer.seen.count("/introspect") > asked)
            await until(lambda: not service.app.state.gate.keys.token_watch.asking)
        go_on.set()
        assert (await rest(lines))[-1][1]["finish_reason"] == "stop"


@requirement("ACCESS-222")
async def test_another_issuer_under_an_old_name_is_not_given_the_accounts_of_the_former(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The operator moves from one identity provider to the next, and both have an ann."""
    async with with_issuer("ann") as (service, server, issuer), PersonIssuer("ann") as other:
        token = issuer.token(aud="gate", sub="ann")
        person = await connected(service, token)
        assert await who(service, token) == "ann"
        link = await link_of_another(service, token)
        assert "Connect your account" in (await person.open(link)).text
        await service.app.state.gate.apply(settings_of(service, server, other))
        assert "corp is now the name of another issuer" in caplog.text
        hers = other.token(aud="gate", sub="ann")
        assert "connect_required" in await who(service, hers)
        mine = {"Authorization": f"Bearer {hers}"}
        assert (await service.http.get("/connections", headers=mine)).json()["connections"] == []
        # Nor does the former ann go on in the name of the present one.
        assert "Who are you" in (await person.open(link)).text
        # Back at the former issuer, all is as it was.
        await service.app.state.gate.apply(settings_of(service, server, issuer))
        assert await who(service, token) == "ann"


@requirement("ACCESS-222")
async def test_a_login_that_was_under_way_gives_nothing_to_an_actor_of_another_issuer() -> None:
    async with with_issuer("ann") as (service, server, issuer), PersonIssuer("ann") as other:
        person = Person()
        await person.open(await link_of(service, issuer.token(aud="gate", sub="ann")))
        await person.send(0)
        await person.go_on()
        await person.choose("ann")
        await person.send(a="connect")
        await person.go_on()
        await service.app.state.gate.apply(settings_of(service, server, other))
        assert (await person.choose("ann")).status_code == 403
        assert server.tokens == {}


async def connected(service: Any, token: str) -> Person:
    """A person who has connected the account ann in a browser."""
    person = Person()
    await person.open(await link_of(service, token))
    await person.send(0)
    await person.go_on()
    await person.choose("ann")
    await person.send(a="connect")
    await person.go_on()
    await person.choose("ann")
    return person


async def link_of_another(service: Any, token: str) -> str:
    """The link of a login that would take the place of the one before."""
    offered = await service.http.post("/connections/accounts", headers={"Authorization": f"Bearer {token}"})
    return str(offered.json()["url"])


def settings_of(service: Any, server: Any, issuer: PersonIssuer) -> Settings:
    login = {"client_id": CLIENT, "client_secret": SECRET}
    entry = {"name": "corp", "issuer": issuer.url, "audience": ["gate"], "login": login}
    own = {"name": "accounts", "url": server.url, "credentials": "user"}
    settings = {"server": {"public_url": service.url}, "upstreams": [own], "auth": {"issuers": [entry]}}
    return Settings.model_validate(settings)
