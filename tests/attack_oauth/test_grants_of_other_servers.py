"""A grant is for the server at which its owner agreed to it, and for no other that has its name."""

from contextlib import suppress
from typing import Any

import pytest

from tests.contract.test_connected_accounts import Person, hosted, link_of, who
from tests.support.account_server import AccountServer
from tests.support.requirement import requirement
from wicketgate.config.settings import Settings


def settings_of(service: Any, url: str) -> Settings:
    own = {"name": "accounts", "url": url, "credentials": "user"}
    return Settings.model_validate({"server": {"public_url": service.url}, "upstreams": [own]})


@pytest.mark.xfail(
    strict=True, reason="grants are found by the name of the upstream alone: UserLogins.of gives UserGrants no place"
)
@requirement("ACCESS-156")
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
