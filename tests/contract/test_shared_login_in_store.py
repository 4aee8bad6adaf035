"""The operator's login at a server of all callers, in a store that several processes share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.test_connected_accounts import TOOL, Person, close_browsers
from tests.support.hosted_server import HostedServer, SdkIssuer
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OTHER_KEY, RunningService, running_service
from tests.support.until import until
from tests.support.wire_client import WireClient
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings
from wicketgate.config.user_logins import shares_logins
from wicketgate.login import user_grants

CHIEF = "wg_chief"
_SEAL = "s" * 64
AT_GATE = "wicketgate login accounts --url"


@asynccontextmanager
async def two_gates(folder: Path) -> AsyncIterator[tuple[RunningService, RunningService, HostedServer]]:
    """Two processes of one service, as far as a store can tell, and the server that wants a login."""
    server = HostedServer()
    async with server.running():
        chief = {"id": "chief", "sha256": hash_key(CHIEF), "actor": "chief", "permissions": ["ops:*"]}
        settings: dict[str, Any] = {
            "upstreams": [{"name": "accounts", "url": server.url, "oauth": {}}],
            "storage": {"url": f"sqlite:///{folder / 'store.db'}"},
            "auth": {"seal_keys": [_SEAL], "keys": [chief]},
        }
        async with running_service(None, None, settings=settings, public=True, await_ready=False) as one:
            settings["server"] = {"public_url": one.url}
            async with running_service(None, None, settings=settings, await_ready=False) as two:
                try:
                    yield one, two, server
                finally:
                    await close_browsers()


async def asked(service: RunningService, method: str, path: str, key: str = CHIEF) -> tuple[int, Any]:
    async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=BOUND_S) as http:
        answer = await http.request(method, path, headers={"Authorization": f"Bearer {key}"})
    return answer.status_code, answer.json()


async def called(service: RunningService, key: str = KEY) -> str:
    return str(await WireClient(service).call(TOOL, {}, headers={"Authorization": f"Bearer {key}"}))


async def until_said(words: str, *services: RunningService, absent: bool = False) -> None:
    for service in services:
        for key in (KEY, OTHER_KEY):
            await until(partial(called, service, key), lambda said: (words in said) is not absent)


@requirement("ACCESS-207", "ACCESS-208", "ACCESS-258")
async def test_an_operator_logs_in_once_for_all_callers_of_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SdkIssuer, "scopes", ["read", "admin"])
    async with two_gates(tmp_path) as (one, two, server):
        assert "connect_required" not in await called(one)
        # Who may only call it logs in for nobody.
        for method in ("POST", "DELETE"):
            assert (await asked(one, method, "/connections/accounts", KEY))[0] == 403
        assert (await asked(one, "GET", "/connections", KEY))[1] == {"connections": [], "open": []}
        assert (await asked(one, "GET", "/connections"))[1]["open"] == ["accounts"]

        status, offered = await asked(two, "POST", "/connections/accounts")
        assert status == 200
        # The link is the operator's own, and its page says for whom the login is.
        assert (await Person().sign_in(offered["url"], KEY)).status_code == 403
        person = Person()
        page = await person.sign_in(offered["url"], CHIEF)
        assert "all callers" in page.text
        await person.send(a="connect")
        await person.go_on()
        assert "is connected" in (await person.choose("ann")).text
        await until_said("'ann'", one, two)
        found = (await asked(one, "GET", "/connections"))[1]["connections"]
        assert [(each["upstream"], each["actor"]) for each in found] == [("accounts", "")]
        assert (await asked(one, "GET", "/connections", KEY))[1]["connections"] == []

        # More scopes than the login has are the operator's to add.
        answer = str(await WireClient(one).call("accounts__admin", {}))
        assert "FORBIDDEN" in answer
        assert f"(admin read); an operator can change that: add them to oauth.scope, then: {AT_GATE}" in answer

        # A token that the server takes no more is renewed once, by one of them.
        for token in list(server.tokens):
            del server.tokens[token]
        monkeypatch.setattr(user_grants, "_SOON_S", 0.0)  # a refusal right after a login is not the token's end
        await asyncio.gather(*(called(each) for each in (one, two) for _ in range(3)))
        await until_said("'ann'", one, two)
        assert server.issuer.refreshes == 1

        assert (await asked(two, "DELETE", "/connections/accounts"))[1] == {"ended": 1}
        assert server.tokens == {}
        await until_said("'ann'", one, two, absent=True)


@requirement("ACCESS-208")
async def test_the_command_line_makes_it_at_a_gate_that_runs(tmp_path: Path) -> None:
    async with two_gates(tmp_path) as (one, two, _):
        at = ("--url", two.url, "--key", CHIEF)
        async with program("app", "login", "accounts", "--no-browser", *at) as running:
            link = (await running.wait_for(r"(?m)^(http://\S+/connect/accounts\?f=\S+)$"))[1]
            person = Person()
            await person.sign_in(link, CHIEF)
            await person.send(a="connect")
            await person.go_on()
            await person.choose("ben")
            assert await running.ended() == 0, running.stderr
        await until_said("'ben'", one)
        async with program("app", "connections", *at) as running:
            assert await running.ended() == 0, running.stderr
            assert "for all callers" in running.stdout
        async with program("app", "logout", "accounts", *at) as running:
            assert await running.ended() == 0, running.stderr
            assert "disconnected" in running.stdout


@requirement("ACCESS-207")
@pytest.mark.parametrize("words", [("login", "accounts", "--no-browser"), ("logout", "accounts"), ("connections",)])
async def test_a_login_that_is_kept_at_the_gate_is_not_made_on_the_machine(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "wicketgate.yaml"
    file.write_text(
        "server: {public_url: 'https://gate.example.com'}\n"
        f"storage: {{url: 'sqlite:///{tmp_path / 'store.db'}'}}\n"
        f"auth: {{seal_keys: [{_SEAL}]}}\n"
        "model: {provider: scripted}\n"
        "upstreams: [{name: accounts, url: 'https://mcp.example.net/mcp', oauth: {}}]\n"
    )
    async with program("app", *words, "--config", str(file)) as running:
        code = await running.ended()
        assert code == (0 if words == ("connections",) else 1)
        assert "--url https://gate.example.com" in running.stdout + running.stderr


@requirement("ACCESS-207")
def test_a_login_stays_on_the_machine_where_browsers_do_not_reach_the_gate_or_nothing_is_shared() -> None:
    whole: dict[str, Any] = {
        "server": {"public_url": "https://gate.example.com"},
        "storage": {"url": "redis://redis.example.com:6379"},
        "auth": {"seal_keys": [_SEAL]},
    }
    assert shares_logins(Settings(**whole))
    for without in whole:
        assert not shares_logins(Settings(**{name: each for name, each in whole.items() if name != without}))
