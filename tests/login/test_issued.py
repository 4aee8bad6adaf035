"""IssuedCredentials against a real token server (RFC 6749 §4.4, §5.1, §5.2, §6; UP-24)."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.support.clock import Clock
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from wicketgate.errors import UpstreamUnavailable
from wicketgate.login.issued import IssuedCredentials, MachinePlan, MachineSource
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.steps import LoginFailure
from wicketgate.net import Outgoing, Refusal

UNAUTHORIZED = Refusal(401)
FAILURES: list[type[LoginFailure]] = [LoginFailure, *LoginFailure.__subclasses__()]
FIXED = {f"shop cannot be called: {failure.why}." for failure in FAILURES}


class TokenServer:
    """Gives ``t1``, ``t2`` ... to one client; *says* replaces the answer."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.headers: list[Any] = []
        self.says: Reply | None = None
        self.more: dict[str, Any] = {"token_type": "Bearer", "expires_in": 3600}
        self.hold: asyncio.Event | None = None

    async def answer(self, seen: Seen) -> Reply:
        self.forms.append(dict(parse_qsl(seen.body.decode())))
        self.headers.append(seen.headers)
        if self.hold is not None:
            await self.hold.wait()
        if self.says is not None:
            return self.says
        return Reply(json.dumps({"access_token": f"t{len(self.forms)}", **self.more}).encode())


class Setting:
    def __init__(self, credentials: IssuedCredentials, tokens: TokenServer, clock: Clock) -> None:
        self.credentials = credentials
        self.tokens = tokens
        self.clock = clock


@asynccontextmanager
async def setting(**more: Any) -> AsyncIterator[Setting]:
    tokens, clock = TokenServer(), Clock()
    async with HttpService(tokens.answer) as service:
        given = {"client_id": "my id", "client_secret": "s:cret", "auth_method": "client_secret_basic"}
        plan = MachinePlan(token_url=f"{service.url}/token", **(given | more))
        yield Setting(issued(plan, clock), tokens, clock)


def issued(plan: MachinePlan, clock: Clock) -> IssuedCredentials:
    carrier = Carrier(Outgoing(), [plan.token_url], setting="oauth.token_url")
    return IssuedCredentials("shop", MachineSource(plan, carrier, clock), clock)


def refusal(code: str, status: int = 400) -> Reply:
    return Reply(json.dumps({"error": code, "error_description": "secret words"}).encode(), status)


@requirement("UP-24")
async def test_a_token_is_asked_for_by_client_credentials() -> None:
    async with setting(scopes=("read", "write"), audience="https://api") as on:
        assert await on.credentials.authorization() == "Bearer t1"
        asked = {"grant_type": "client_credentials", "scope": "read write", "audience": "https://api"}
        assert on.tokens.forms == [{**asked, "client_id": "my id"}]
        pair = base64.b64decode(on.tokens.headers[0]["authorization"].removeprefix("Basic ")).decode()
        assert pair == "my+id:s%3Acret"


@pytest.mark.parametrize(
    ("plan", "form"),
    [
        ({"auth_method": "client_secret_post"}, {"grant_type": "client_credentials", "client_secret": "s:cret"}),
        (
            {"refresh_token": "r0", "client_secret": "", "auth_method": "none"},
            {"grant_type": "refresh_token", "refresh_token": "r0"},
        ),
    ],
    ids=["the secret in the form", "a public client"],
)
async def test_a_client_may_say_who_it_is_in_the_form(plan: dict[str, str], form: dict[str, str]) -> None:
    async with setting(**plan) as on:
        await on.credentials.authorization()
        assert on.tokens.forms == [{**form, "client_id": "my id"}]
        assert "authorization" not in on.tokens.headers[0]


@requirement("UP-24")
async def test_a_token_is_kept_until_shortly_before_its_end() -> None:
    async with setting() as on:
        assert await on.credentials.authorization() == "Bearer t1"
        on.clock.now += 3_500
        assert await on.credentials.authorization() == "Bearer t1"
        on.clock.now += 50
        assert await on.credentials.authorization() == "Bearer t2"


async def test_a_token_that_cannot_be_renewed_is_used_to_its_very_end() -> None:
    async with setting() as on:
        assert await on.credentials.authorization() == "Bearer t1"
        on.tokens.says = Reply(b"out of order", 503)
        on.clock.now += 3_550
        assert await on.credentials.authorization() == "Bearer t1"
        on.clock.now += 50
        with pytest.raises(UpstreamUnavailable):
            await on.credentials.authorization()


@pytest.mark.parametrize("lie", [-5, 0, True, "soon", 1e9, 10**12, None, [], 0.5])
async def test_a_lifetime_that_is_a_lie_hurts_nobody(lie: object) -> None:
    async with setting() as on:
        on.tokens.more = {"token_type": "Bearer", "expires_in": lie}
        assert await on.credentials.authorization() == "Bearer t1"


async def test_a_token_without_a_lifetime_is_kept_until_it_is_refused() -> None:
    async with setting() as on:
        on.tokens.more = {"token_type": "bearer"}
        assert await on.credentials.authorization() == "Bearer t1"
        on.clock.now += 10_000_000
        assert await on.credentials.authorization() == "Bearer t1"
        await on.credentials.renew(UNAUTHORIZED)
        assert await on.credentials.authorization() == "Bearer t2"


@requirement("UP-24")
async def test_calls_that_come_together_ask_once_and_one_that_leaves_takes_nothing_along() -> None:
    async with setting() as on:
        on.tokens.hold = asyncio.Event()
        first = asyncio.create_task(on.credentials.authorization())
        others = [asyncio.create_task(on.credentials.authorization()) for _ in range(20)]
        await asyncio.sleep(0)
        first.cancel()
        on.tokens.hold.set()
        assert set(await asyncio.gather(*others)) == {"Bearer t1"}
        assert first.cancelled() or first.cancelling()
        assert len(on.tokens.forms) == 1


@requirement("UP-23")
async def test_calls_that_were_refused_together_renew_once() -> None:
    async with setting() as on:
        await on.credentials.authorization()
        await asyncio.gather(*(on.credentials.renew(UNAUTHORIZED) for _ in range(20)))
        await on.credentials.renew(UNAUTHORIZED)  # one that was told a moment later
        assert await on.credentials.authorization() == "Bearer t2"
        assert len(on.tokens.forms) == 2
        on.clock.now += 5
        await on.credentials.renew(UNAUTHORIZED)
        assert await on.credentials.authorization() == "Bearer t3"


@requirement("UP-24")
async def test_a_refresh_token_is_used_and_its_successor_kept() -> None:
    async with setting(refresh_token="r0") as on:
        on.tokens.more["refresh_token"] = "r1"
        assert await on.credentials.authorization() == "Bearer t1"
        on.clock.now += 4_000
        del on.tokens.more["refresh_token"]
        await on.credentials.authorization()
        on.clock.now += 4_000
        await on.credentials.authorization()
        assert [form["refresh_token"] for form in on.tokens.forms] == ["r0", "r1", "r1"]
        assert {form["grant_type"] for form in on.tokens.forms} == {"refresh_token"}


@requirement("UP-24", "UP-140")
@pytest.mark.parametrize(
    "says",
    [
        refusal("invalid_client", 401),
        refusal("invalid_grant"),
        refusal("<script>" * 100),
        Reply(b"oops", 500),
        Reply(b"not json"),
        Reply(b"[]"),
        Reply(b'"x"'),
        Reply(b"{}"),
        Reply(b'{"access_token": 5}'),
        Reply(b'{"access_token": "%s", "token_type": "Bearer"}' % (b"a-" * 10_000)),
        Reply(b'{"access_token": "a\\r\\nX-Evil: 1", "token_type": "Bearer"}'),
        Reply(b'{"access_token": "a", "token_type": "mac"}'),
        Reply(b'{"access_token": "a", "token_type": "DPoP"}'),
        Reply(b'{"access_token": "a", "token_type": ["Bearer"]}'),
        Reply(b'{"access_token": "", "token_type": "Bearer"}'),
        Reply(b'{"access_token": {"x": 1}, "token_type": "Bearer"}'),
        Reply(b'{"error": "<script>", "access_token": "a", "token_type": "Bearer"}'),
        Reply(b'["access_token"]'),
        Reply(b'{"access_token": "a"}', 302),
        Reply(b" " * 300_000),
        Reply(b"\xff"),
        Reply(b'{"access_token": "a"', cut=True),
    ],
)
async def test_whatever_goes_wrong_is_unavailable_in_fixed_words(says: Reply, caplog: pytest.LogCaptureFixture) -> None:
    async with setting() as on:
        on.tokens.says = says
        for attempt in (on.credentials.authorization, lambda: on.credentials.renew(UNAUTHORIZED)):
            with pytest.raises(UpstreamUnavailable) as fault:
                await attempt()
            assert fault.value.message in FIXED
        assert len(on.tokens.forms) == 1, "the second attempt came too soon to ask again"
    for secret in ("s:cret", "s%3Acret", "secret words", "script", "X-Evil", "a-a-"):
        assert secret not in caplog.text


@requirement("UP-24")
async def test_a_server_that_refuses_us_is_asked_ever_more_rarely_and_heals() -> None:
    async with setting() as on:
        on.tokens.says = refusal("invalid_client", 401)
        asked_at: list[float] = []
        for _ in range(1_000):
            before = len(on.tokens.forms)
            with pytest.raises(UpstreamUnavailable):
                await on.credentials.authorization()
            if len(on.tokens.forms) > before:
                asked_at.append(on.clock.now)
            on.clock.now += 1
        assert [after - earlier for earlier, after in pairwise(asked_at)] == [
            5,
            10,
            20,
            40,
            80,
            160,
            300,
            300,
        ]
        on.tokens.says = None
        on.clock.now += 300
        assert (await on.credentials.authorization()).startswith("Bearer t")


async def test_who_waits_for_a_token_at_the_close_gets_an_error_and_a_later_call_asks_anew() -> None:
    async with setting() as on:
        on.tokens.hold = asyncio.Event()
        waiting = asyncio.create_task(on.credentials.authorization())
        async with asyncio.timeout(30):
            while not on.tokens.forms:
                await asyncio.sleep(0)
            await on.credentials.aclose()
            with pytest.raises(UpstreamUnavailable):
                await waiting
            on.tokens.hold.set()
            assert await on.credentials.authorization() == "Bearer t2"


@requirement("UP-67")
@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (None, "it refuses connections ({origin}): start it, or correct the port in oauth.token_url"),
        (
            Reply(b"Client sent an HTTP request to an HTTPS server.\n", 400),
            "it speaks https, not http ({origin}): write https:// in oauth.token_url",
        ),
        (
            Reply(b"<html>sign in</html>"),
            "there is no token server at this path (HTTP status 200) ({origin}): correct oauth.token_url",
        ),
        (Reply(status=404), "there is no token server at this path (HTTP status 404) ({origin}): correct oauth."),
    ],
)
async def test_a_token_server_that_cannot_be_asked_is_told_to_the_operator_alone(
    reply: Reply | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with HttpService(lambda _: reply or Reply()) as service:
        origin = service.url
        if reply is not None:
            await no_token(f"{origin}/private/token?key=hidden")
    if reply is None:
        await no_token(f"{origin}/private/token?key=hidden")
    assert told.format(origin=origin) in caplog.messages[0]
    assert "private" not in caplog.text
    assert "hidden" not in caplog.text


async def no_token(token_url: str) -> None:
    credentials = issued(MachinePlan("id", "client_secret_basic", "s:cret", token_url), Clock())
    with pytest.raises(UpstreamUnavailable) as refused:
        await credentials.authorization()
    assert refused.value.message in FIXED
