"""Counts and audit records of logins at tool servers, of refreshed tokens and of exchanges, through real HTTP."""

from pathlib import Path

import pytest

from tests.contract.test_audited_service import audited, records
from tests.contract.test_connected_accounts import Person, hosted, link_of, who
from tests.contract.test_exchanged_tokens import serving
from tests.support.requirement import requirement
from tests.support.service import OTHER_KEY
from wicketgate.login import user_grants


def labels(text: str, name: str) -> dict[str, float]:
    """The samples of a counter, by their labels but the upstream."""
    found = {}
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            head, _, value = line.rpartition(" ")
            assert 'upstream="accounts"' in head
            pairs = [pair for pair in head[len(name) + 1 : -1].split(",") if not pair.startswith("upstream=")]
            found[" ".join(pair.partition("=")[2].strip('"') for pair in pairs)] = float(value)
    return found


@requirement("OPS-380")
async def test_logins_and_refreshes_are_counted_by_what_became_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_grants, "_SOON_S", 0.0)
    async with hosted() as (service, server):
        assert labels(await service.metrics(), "wicketgate_logins_total") == {}
        await Person().connect(await link_of(service), "ann")
        await Person().connect(await link_of(service, OTHER_KEY), "nobody", OTHER_KEY)
        person = Person()
        await person.sign_in(await link_of(service, OTHER_KEY), OTHER_KEY)
        await person.send(a="no")
        # The answer of another issuer, and one that the issuer takes no more.
        for adds, drop in (({"iss": "https://other.example.com"}, False), ({"iss": f"{server.origin}/"}, True)):
            server.issuer.adds = adds
            person = Person()
            await person.sign_in(await link_of(service, OTHER_KEY), OTHER_KEY)
            await person.send(a="connect")
            await person.go_on()
            if drop:
                server.issuer.clients.clear()
            await person.choose("ben")
        assert labels(await service.metrics(), "wicketgate_logins_total") == {
            "begun ": 4,
            "granted ": 1,
            "declined issuer": 1,
            "declined owner": 1,
            "failed other_issuer": 1,
            "failed client_invalid": 1,
        }


@requirement("OPS-380")
async def test_refreshed_tokens_are_counted_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_grants, "_SOON_S", 0.0)
    async with hosted() as (service, server):
        await Person().connect(await link_of(service), "ann")
        assert await who(service) == "ann"
        server.tokens.clear()
        assert await who(service) == "ann"
        assert labels(await service.metrics(), "wicketgate_token_refreshes_total") == {"ok": 1}
        server.tokens.clear()
        server.issuer.refresh.clear()
        assert await link_of(service)
        assert labels(await service.metrics(), "wicketgate_token_refreshes_total") == {"ok": 1, "ended": 1}


@requirement("OPS-380")
async def test_a_page_that_finds_no_issuer_is_a_login_that_failed() -> None:
    async with hosted() as (service, server):
        link = await link_of(service)
        server.metadata = {"authorization_servers": []}
        person = Person()
        assert (await person.sign_in(link)).status_code == 502
        (found,) = labels(await service.metrics(), "wicketgate_logins_total")
        assert found.startswith("failed ")


@requirement("OPS-380", "OPS-381")
async def test_exchanges_are_counted_and_recorded(tmp_path: Path) -> None:
    async with serving(more=audited(tmp_path)) as setup:
        good, bad = setup.token(), setup.token("ben")
        setup.issuer.revoked.add(bad)
        for token in (good, good, bad):
            await setup.whoami(token)
        setup.issuer.down = True
        await setup.whoami(setup.token("eve"))
        counted = labels(await setup.service.metrics(), "wicketgate_token_exchanges_total")
        assert counted == {"ok": 1, "denied": 1, "failed": 1}
        url = setup.issuer.url
    found = [
        (each["outcome"], each["actor"], each["server"], each["detail"]) for each in records(tmp_path, "connection")
    ]
    assert found == [
        ("allowed", "corp:ann", "accounts", f"exchanged: at {url}"),
        ("denied", "corp:ben", "accounts", f"not exchanged: at {url}"),
        ("failed", "corp:eve", "accounts", f"not exchanged: at {url}"),
    ]
    assert good not in (tmp_path / "audit.jsonl").read_text()


@requirement("OPS-381")
async def test_a_grant_that_its_issuer_may_not_have_ended_is_recorded_as_such(tmp_path: Path) -> None:
    async with hosted(audited(tmp_path)) as (service, server):
        await Person().connect(await link_of(service), "ann")
        server.issuer.clients.clear()
        assert (await service.http.delete("/connections/accounts")).json() == {"ended": 1}
    details = [(each["outcome"], each["detail"].partition(":")[0]) for each in records(tmp_path, "connection")]
    assert details == [("allowed", "granted"), ("allowed", "revoked"), ("failed", "not ended at its issuer")]
