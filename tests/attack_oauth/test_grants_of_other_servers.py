"""A grant is for the server at which its owner agreed to it, and for no other that has its name."""

from contextlib import suppress
from typing import Any

from tests.contract.test_connected_accounts import Person, hosted, link_of, who
from tests.support.account_server import AccountServer
from tests.support.requirement import requirement
from wicketgate.config.settings import Settings


def settings_of(service: Any, url: str) -> Settings:
    own = {"name": "accounts", "url": url, "credentials": "user"}
    return Settings.model_validate({"server": {"public_url": service.url}, "upstreams": [own]})


@requirement("ACCESS-156", "ACCESS-221")
async def test_a_grant_is_not_shown_to_another_server_that_takes_the_name() -> None:
    """The operator writes another URL under the same name, and reloads: the token of the former server stays home."""
    async with hosted() as (service, server), AccountServer().running() as other:
        await Person().connect(await link_of(service), "ann")
        assert await who(service) == "ann"
        tokens = set(server.tokens)
        await service.app.state.gate.apply(settings_of(service, other.url))
        with suppress(KeyError):  # a refusal has no text
            await who(service)
        shown = {seen for seen in other.seen if any(token in str(seen) for token in tokens)}
        assert shown == set()
        shown_as = (await service.http.get("/connections")).json()
        assert [each["state"] for each in shown_as["connections"]] == ["reconnect"]
        # It is there again where its own server is back.
        await service.app.state.gate.apply(settings_of(service, server.url))
        assert await who(service) == "ann"


@requirement("ACCESS-221")
async def test_a_login_that_was_under_way_gives_nothing_to_the_server_that_took_the_name() -> None:
    async with hosted() as (service, server), AccountServer().running() as other:
        person = Person()
        await person.sign_in(await link_of(service))
        await person.send(a="connect")
        await person.go_on()
        await service.app.state.gate.apply(settings_of(service, other.url))
        ended = await person.choose("ann")
        assert ended.status_code == 502
        assert "the server is gone" in ended.text
        assert (await service.http.get("/connections")).json() == {"connections": [], "open": ["accounts"]}
        assert server.tokens == {}


@requirement("ACCESS-221", "ACCESS-195")
async def test_what_was_given_at_the_former_server_ends_without_a_word_to_its_issuer() -> None:
    """The client that the configuration gives is one at the issuer of the new server."""
    async with hosted() as (service, server), AccountServer().running() as other:
        await Person().connect(await link_of(service), "ann")
        await service.app.state.gate.apply(settings_of(service, other.url))
        assert (await service.http.delete("/connections/accounts")).json() == {"ended": 1}
        assert server.issuer.revoked == []
        assert (await service.http.get("/connections")).json()["connections"] == []
