"""A browser that has signed in to connect an account stays signed in while what it signed in with is good."""

from typing import Any

import pytest

from tests.contract.test_connected_accounts import Person, hosted, link_of
from tests.contract.test_connecting_in_a_browser import with_issuer
from tests.support.requirement import requirement
from tests.support.service import RunningService
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings

ADA = {"id": "ada-1", "sha256": hash_key("wg_ada"), "actor": "ada", "permissions": ["tools:*"]}
NEXT = {**ADA, "id": "ada-2", "sha256": hash_key("wg_ada_next")}


async def apply(service: RunningService, **auth: Any) -> None:
    gate = service.app.state.gate
    whole = gate.settings.model_dump(exclude_unset=True)
    await gate.apply(Settings(**{**whole, "auth": {**whole["auth"], **auth}}))


@requirement("ACCESS-211", "ACCESS-39", "ACCESS-165", "ACCESS-184")
@pytest.mark.parametrize("how", ["suspended", "gone", "another actor's"])
async def test_a_browser_session_ends_with_the_key_that_began_it(how: str) -> None:
    after = {
        "suspended": [{**ADA, "suspended": True}, NEXT],
        "gone": [NEXT],
        "another actor's": [{**ADA, "actor": "x"}],
    }
    async with hosted({"auth": {"keys": [ADA, NEXT]}}) as (service, server):
        link = await link_of(service, "wg_ada")
        person, late = Person(), Person()
        assert "Connect your account" in (await person.sign_in(link, "wg_ada")).text
        await late.sign_in(link, "wg_ada_next")
        await person.open(link)
        await person.send(a="connect")
        await person.go_on()
        await apply(service, keys=after[how])
        # On its way back from the issuer, too.
        assert (await person.choose("ann")).status_code == 403
        assert "Who are you" in (await person.open(link)).text
        await apply(service, keys=[ADA, NEXT])
        assert "Who are you" in (await person.open(link)).text, "it does not come back with the key"
        assert "Connect your account" in (await late.open(link)).text
        assert server.tokens == {}


@requirement("ACCESS-211")
async def test_a_browser_session_ends_with_the_issuer_that_began_it() -> None:
    async with with_issuer("ann") as (service, _, issuer):
        link = await link_of(service, issuer.token(aud="gate"))
        person = Person()
        await person.open(link)
        await person.send(0)
        await person.go_on()
        assert "Connect your account" in (await person.choose("ann")).text
        assert "Connect your account" in (await person.open(link)).text
        await apply(service, issuers=[])
        assert "Connect your account" not in (await person.open(link)).text
