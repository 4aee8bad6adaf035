"""Callers with a token of an issuer need no browser: it is exchanged for one of the tool server (UP-184 to UP-194)."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time
from typing import Any

import pytest

from tests.contract.test_revocation import by
from tests.support.account_server import AccountServer
from tests.support.exchange_issuer import CLIENT, SECRET, ExchangeIssuer, TokensFor
from tests.support.mcp_client import ERAS, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import BOUND_S, KEY, RunningService, chat_body, running_service
from tests.support.until import until
from tests.support.wire_client import WireClient
from wicketgate.models.provider import ToolCall

GATE = "https://gate.example"
WHOAMI = {"operation": "/accounts/whoami", "input": {}}
UPSTREAM_ERAS = pytest.mark.parametrize("upstream_era", ["client", "2025-11-25", "2026-07-28"])


class Clock:
    """The time of day, moved by hand."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time() + self.ahead_s


@dataclass
class Setup:
    service: RunningService
    issuer: ExchangeIssuer
    server: AccountServer
    tokens: TokensFor
    clock: Clock

    def token(self, person: str = "ann", **claims: Any) -> str:
        return self.issuer.token(sub=person, aud="gate", **claims)

    async def whoami(self, token: str) -> tuple[int, dict[str, Any]]:
        answer = await self.service.http.post("/operations/call", json=WHOAMI, headers=by(token))
        return answer.status_code, answer.json()

    def seen(self) -> str:
        """All credentials that ever came to the tool server."""
        return " ".join(self.server.seen)


@asynccontextmanager
async def serving(
    *,
    script: ScriptModel | None = None,
    exchange: Mapping[str, Any] | None = None,
    oauth: Mapping[str, Any] | None = None,
    era: str = "client",
    more: Mapping[str, Any] | None = None,
    **upstream: Any,
) -> AsyncIterator[Setup]:
    server, clock = AccountServer(), Clock()
    async with asyncio.timeout(BOUND_S), server.running(), ExchangeIssuer() as issuer:
        issuer.clock = clock
        tokens = TokensFor(issuer, server.url)
        server.tokens = tokens  # type: ignore[assignment]
        way = {"issuer": "corp", "client_id": CLIENT, "client_secret": SECRET, **(exchange or {})}
        own = {"name": "accounts", "url": server.url, "credentials": "exchange", "era": era, **upstream}
        settings = {
            "server": {"public_url": GATE},
            "auth": {"issuers": [{"name": "corp", "issuer": issuer.url, "audience": ["gate"]}]},
            "upstreams": [{**own, "oauth": {"exchange": way, **(oauth or {})}}],
            **(more or {}),
        }
        async with running_service(script, None, settings=settings, clock=clock) as service:
            yield Setup(service, issuer, server, tokens, clock)


@requirement("UP-184", "UP-187", "UP-190")
@ERAS
@UPSTREAM_ERAS
async def test_two_callers_are_two_accounts_and_the_server_never_sees_their_tokens(
    mode: str, upstream_era: str
) -> None:
    async with serving(era=upstream_era) as setup:
        both = {person: setup.token(person) for person in ("ann", "ben")}
        for person, token in both.items():
            async with mcp_client(setup.service, mode, token, path="/mcp/namespaced") as client:
                listed = [tool.name for tool in (await client.list_tools()).tools]
                assert "accounts__whoami" in listed
                for _ in range(2):
                    assert person in str((await client.call_tool("accounts__whoami", {})).content)
                resources = (await client.list_resources()).resources
                assert resources
        assert len(setup.issuer.forms) == 2, "one exchange each"
        for form, (person, token) in zip(setup.issuer.forms, both.items(), strict=True):
            assert form["subject_token"] == token
            assert form["resource"] == setup.server.url
            [claims, *_] = [each for each in setup.tokens.claims if each["sub"] == person]
            assert (claims["aud"], claims["act"]) == (setup.server.url, {"sub": CLIENT})
        assert not any(token in setup.seen() for token in both.values())
        assert set(setup.server.seen) == {f"Bearer {each}" for each in setup.issuer.given}


@requirement("UP-190")
@UPSTREAM_ERAS
async def test_answers_of_two_callers_never_mix_under_load(upstream_era: str) -> None:
    async with serving(era=upstream_era) as setup:
        people = ("ann", "ben")
        both = {person: [setup.token(person, jti=str(number)) for number in range(3)] for person in people}

        async def ask(person: str, token: str, era: str) -> tuple[str, str]:
            client = WireClient(setup.service, era)
            called = await client.call("accounts__whoami", headers=by(token))
            listed = await client.ask("resources/list", {}, headers=by(token))
            return person, json.dumps([called["result"]["content"], listed["result"]["resources"]])

        asked = [
            ask(person, token, era)
            for person, tokens in both.items()
            for token in tokens
            for era in (MODERN, HANDSHAKE)
            for _ in range(3)
        ]
        for person, answer in await asyncio.gather(*asked):
            [other] = set(people) - {person}
            assert person in answer
            assert other not in answer
        assert len(setup.issuer.forms) == 6
        assert not any(token in setup.seen() for tokens in both.values() for token in tokens)


@requirement("UP-184")
@pytest.mark.parametrize(
    ("exchange", "oauth", "asked"),
    [
        ({"audience": "tools"}, {"resource": "omit"}, {"audience": "tools"}),
        ({"auth_method": "post"}, {"scope": "a b"}, {"scope": "a b", "client_id": CLIENT}),
        ({"issuer": ""}, {}, {}),
    ],
)
async def test_the_issuer_is_asked_as_it_is_configured(
    exchange: dict[str, Any], oauth: dict[str, Any], asked: dict[str, str]
) -> None:
    async with serving(exchange=exchange, oauth=oauth) as setup:
        if "audience" in exchange:
            setup.tokens.url = "tools"
        assert "ann" in str(await setup.whoami(setup.token()))
        [form] = setup.issuer.forms
        assert asked.items() <= form.items()
        assert ("resource" in form) == ("resource" not in oauth)


@requirement("UP-188")
async def test_many_calls_at_once_are_one_exchange_and_another_token_is_another() -> None:
    async with serving() as setup:
        token = setup.token()
        setup.issuer.exchanging.clear()
        many = [asyncio.create_task(setup.whoami(token)) for _ in range(8)]
        await until(lambda: setup.issuer.forms)
        many[0].cancel()
        await asyncio.wait([many[0]])  # its connection ends, and the exchange must not
        setup.issuer.exchanging.set()
        answers = await asyncio.gather(*many[1:])
        assert all("ann" in str(answer) for answer in answers)
        assert len(setup.issuer.forms) == 1
        assert "ann" in str(await setup.whoami(setup.token(scope="less")))
        assert len(setup.issuer.forms) == 2, "what one token may is not what another may"


@requirement("UP-188", "UP-189")
async def test_what_was_given_is_renewed_at_its_end_and_never_used_after_that_of_the_callers_token() -> None:
    async with serving() as setup:
        setup.issuer.lifetime_s = 100
        token = setup.token(exp=setup.clock() + 150)
        assert "ann" in str(await setup.whoami(token))
        setup.clock.ahead_s = 95
        assert "ann" in str(await setup.whoami(token))
        assert len(setup.issuer.forms) == 2
        setup.clock.ahead_s = 200
        status, _ = await setup.whoami(token)
        assert status == 401
        assert len(setup.issuer.forms) == 2
        # The issuer names no life: the caller's token bounds it.
        setup.issuer.lifetime_s = None
        assert "ann" in str(await setup.whoami(setup.token(exp=setup.clock() + 50)))
        users = setup.service.app.state.gate.fleet.members["accounts"].upstream._users
        assert max(kept.ends_at for kept in users._kept.values()) <= setup.clock() + 50


@requirement("UP-191")
async def test_a_revoked_token_of_a_caller_gets_nothing() -> None:
    async with serving() as setup:
        token = setup.token()
        setup.issuer.revoked.add(token)
        status, body = await setup.whoami(token)
        assert (status, body["code"]) == (403, "FORBIDDEN")
        assert not setup.server.seen
        # Soon after the issuer is left alone.
        await setup.whoami(token)
        assert len(setup.issuer.forms) == 1
        # One that is revoked later is felt when what it gave is renewed.
        setup.issuer.lifetime_s = 100
        other = setup.token(jti="2")
        assert "ann" in str(await setup.whoami(other))
        setup.issuer.revoked.add(other)
        setup.clock.ahead_s = 95
        assert (await setup.whoami(other))[1]["code"] == "FORBIDDEN"


@requirement("UP-191")
async def test_an_issuer_that_is_away_is_no_reason_to_connect_and_what_it_gave_is_used_to_its_end() -> None:
    async with serving() as setup:
        token = setup.token()
        setup.issuer.down = True
        status, body = await setup.whoami(token)
        assert (status, body["code"]) == (503, "UNAVAILABLE")
        setup.issuer.down, setup.clock.ahead_s = False, 11
        setup.issuer.lifetime_s = 100
        assert "ann" in str(await setup.whoami(token))
        setup.issuer.down, setup.clock.ahead_s = True, 11 + 95
        assert "ann" in str(await setup.whoami(token))
        setup.clock.ahead_s = 11 + 120
        assert (await setup.whoami(token))[1]["code"] == "UNAVAILABLE"
        breaker = (await setup.service.health())["upstreams"]["accounts"]
        assert breaker["state"] == "ready"


@requirement("UP-191", "UP-192")
async def test_a_server_that_takes_what_was_given_no_more_causes_one_other_exchange() -> None:
    async with serving() as setup:
        token = setup.token()
        assert "ann" in str(await setup.whoami(token))
        setup.clock.ahead_s = 30
        setup.tokens.refused.add(setup.issuer.given[0])
        assert "ann" in str(await setup.whoami(token))
        assert len(setup.issuer.forms) == 2
        setup.clock.ahead_s = 60
        setup.tokens.url = "another"
        assert (await setup.whoami(token))[1]["code"] == "FORBIDDEN"
        assert len(setup.issuer.forms) == 3
        assert token not in setup.seen()


@requirement("UP-191", "UP-193")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_key_has_nothing_to_exchange_and_learns_it(era: str) -> None:
    async with serving() as setup:
        answer = await WireClient(setup.service, era).call("accounts__whoami")
        assert answer["result"]["structuredContent"]["error"] == "FORBIDDEN"
        assert "token" in answer["result"]["structuredContent"]["message"]
        assert not setup.issuer.forms
        assert "ann" in str(await setup.whoami(setup.token()))
        answer = await WireClient(setup.service, era).call("accounts__whoami")
        assert answer["result"]["structuredContent"]["error"] == "FORBIDDEN"
        assert KEY not in setup.seen()


@requirement("UP-187")
async def test_a_chat_uses_the_token_of_its_request() -> None:
    asked = '{"tool_id":"accounts:whoami"}'
    script = ScriptModel(calls(ToolCall("call_1", "tool_execute", {"tool_id": "accounts:whoami"}, asked)), says("you"))
    async with serving(script=script) as setup:
        events = await setup.service.chat(chat_body("who am I?"), headers=by(setup.token("ben")))
        assert "ben" in events[1][1]["output"]


@requirement("UP-194")
async def test_an_issuer_that_hands_back_the_callers_own_token_does_not_have_it_passed_on() -> None:
    async with serving() as setup:
        setup.issuer.hands_back = True
        token = setup.token()
        assert (await setup.whoami(token))[1]["code"] == "UNAVAILABLE"
        assert not setup.server.seen


@requirement("UP-194")
async def test_a_token_for_another_audience_or_of_another_issuer_is_never_exchanged() -> None:
    async with ExchangeIssuer() as other, serving() as setup:
        for token in (
            setup.issuer.token(sub="ann", aud="https://files.example/mcp"),
            setup.issuer.token(sub="ann", aud=setup.server.url),
            other.token(sub="ann", aud="gate"),
            setup.issuer.token(sub="ann", aud="gate", nonce="n"),
            setup.token(exp=setup.clock() - 100),
        ):
            assert (await setup.whoami(token))[0] == 401
        assert not setup.issuer.forms
        assert not other.forms
        assert not setup.server.seen
        # The issuer gives none for a server that it does not know.
        setup.issuer.targets = {"https://files.example/mcp"}
        assert (await setup.whoami(setup.token()))[1]["code"] == "FORBIDDEN"
        assert not setup.server.seen


@requirement("UP-187")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_the_token_of_a_caller_is_not_kept_after_its_request(era: str) -> None:
    async with serving(script=ScriptModel(says("hi"))) as setup:
        for path, call in (("/mcp/namespaced", "accounts__whoami"), ("/mcp/gateway", "tool_browse")):
            client = WireClient(setup.service, era, path)
            arguments = {"path": "/"} if call == "tool_browse" else {}
            answer = await client.call(call, arguments, headers=by(setup.token(scope=call)))
            assert "error" not in answer
        await setup.service.chat(chat_body("hi"), headers=by(setup.token(scope="chat")))
        users = setup.service.app.state.gate.fleet.members["accounts"].upstream._users
        assert users._kept
        await until(lambda: not any(kept.token.reveal() for kept in users._kept.values()))


@requirement("UP-187", "UP-194")
async def test_nothing_of_a_caller_shows_its_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with serving() as setup:
        token = setup.token()
        for _ in range(2):
            answer = await setup.service.http.post(
                "/operations/call", json={"operation": "/accounts/echo", "input": {}}, headers=by(token)
            )
            assert setup.issuer.given[0] not in answer.text
        setup.issuer.revoked.add(token)
        assert token not in caplog.text
        assert SECRET not in caplog.text
        assert not any(given in caplog.text for given in setup.issuer.given)
        assert token not in json.dumps(await setup.service.health())
