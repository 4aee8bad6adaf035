"""Servers and issuers that want to be given what is another's, or to have the gate ask places of their choice."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.support.http_service import HttpService, Reply
from tests.support.locked_server import Issuer, query_of
from tests.support.requirement import requirement
from wicketgate.login.client import LoginClient, LoginPlan
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.registrar import GivenClient
from wicketgate.login.steps import Answer, Distrusted, IssuerAway, NotOffered, Steps, get
from wicketgate.net import HttpClient, Outgoing, Refusal, fetch
from wicketgate.net.guard import Guard
from wicketgate.net.outgoing import AddressRefused

BACK = "http://127.0.0.1:1/callback"
PUBLIC_SERVER = "https://mcp.example.net/mcp"
UNAUTHORIZED = Refusal(401)


def client_of(on: Issuer, **plan: Any) -> LoginClient:
    return LoginClient(LoginPlan(on.server_url, **plan), Carrier(Outgoing(), [on.server_url]), lambda: 1_000.0)


async def browse(url: str) -> Mapping[str, str]:
    async with HttpClient(Outgoing()) as http:
        reply = await fetch(http, "GET", url, {}, max_bytes=1_000)
    return query_of(reply.headers["location"])


def one(url: str) -> Steps[Answer]:
    answer: Answer = yield get(url)
    return answer


@requirement("UP-142")
@pytest.mark.parametrize(
    "url",
    [
        "http://mcp.example.net/x",
        "http://127.0.0.1/x",
        "https://127.0.0.1/x",
        "https://localhost/x",
        "https://[::1]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://[64:ff9b::7f00:1]/x",
        "https://[2002:7f00:1::]/x",
        "https://10.0.0.1/x",
        "https://192.168.1.1/x",
        "https://169.254.169.254/latest/meta-data",
        "https://100.64.0.1/x",
        "https://0.0.0.0/x",
        "https://0x7f000001/x",
        "https://2130706433/x",
        "https://127.1/x",
        "https://[fe80::1]/x",
        "https://[fd00::1]/x",
        "https://224.0.0.1/x",
        "ftp://mcp.example.net/x",
        "file:///etc/passwd",
        "https://user:secret@mcp.example.net/x",
        "https://mcp.example.net\\@127.0.0.1/x",
    ],
)
async def test_no_private_place_is_asked_for_a_server_elsewhere(url: str) -> None:
    with pytest.raises(Distrusted):
        await Carrier(Outgoing(), [PUBLIC_SERVER]).run(one(url))


@requirement("UP-142")
@pytest.mark.parametrize("onward", ["https://169.254.169.254/", "http://10.0.0.1/", "https://10.0.0.1/", "file:///x"])
async def test_a_redirect_is_judged_like_any_url(onward: str) -> None:
    async with HttpService(lambda _: Reply(status=302, headers={"location": onward})) as service:
        with pytest.raises(Distrusted):
            await Carrier(Outgoing(), [service.url]).run(one(f"{service.url}/x"))


@requirement("UP-142")
async def test_redirects_end_and_a_post_follows_none() -> None:
    async with HttpService(lambda _: Reply(status=302, headers={"location": "/x"})) as service:
        with pytest.raises(Distrusted):
            await Carrier(Outgoing(), [service.url]).run(one(f"{service.url}/x"))
        assert len(service.seen) == 4


@requirement("UP-142")
async def test_a_name_that_means_another_address_a_moment_later_leads_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[str] = []

    async def resolver(host: str, port: int, **_: Any) -> list[Any]:
        looked_up.append(host)
        address = "127.0.0.1" if len(looked_up) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver, raising=False)
    async with HttpService(lambda _: Reply(b"judged")) as service:
        port = service.url.rpartition(":")[2]
        allowed = Outgoing(guard=Guard(private=("127.0.0.1",)))
        async with HttpClient(allowed) as http:
            reply = await fetch(http, "GET", f"http://rebinding.example:{port}/", {}, max_bytes=100)
        assert (reply.body, looked_up) == (b"judged", ["rebinding.example"])
        async with HttpClient(allowed) as http:
            with pytest.raises(AddressRefused):
                await fetch(http, "GET", f"http://rebinding.example:{port}/", {}, max_bytes=100)
        assert len(service.seen) == 1


@requirement("UP-142")
async def test_an_answer_without_end_is_cut_and_no_document() -> None:
    async with HttpService(lambda _: Reply(b"{" + b" " * 300_000 + b"}")) as service:
        answer = await Carrier(Outgoing(), [service.url]).run(one(f"{service.url}/x"))
        assert answer.document() is None


@requirement("UP-142")
async def test_the_operator_may_allow_hosts_of_his_own() -> None:
    async with HttpService(lambda _: Reply(b"{}")) as service:
        for private in (("127.0.0.1",), ("127.0.0.0/8",)):
            assert (await Carrier(Outgoing(), [PUBLIC_SERVER], private).run(one(f"{service.url}/x"))).status == 200


ENDPOINTS = ("token_endpoint", "authorization_endpoint", "registration_endpoint")
NO_PAGES = ("javascript:alert(1)", "file:///etc/passwd", "https://a@evil.example/", "//x", 5)


@requirement("UP-140", "UP-141")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        # It does not say that it checks PKCE.
        *(("code_challenge_methods_supported", each) for each in (None, [], ["plain"], "S256")),
        # Metadata of another issuer, or for another resource.
        *(("issuer", each) for each in ("{issuer}/", "https://as.example.net", "{url}", None)),
        *(("resource", each) for each in ("https://api.example.net/mcp", "{url}/mcp/deeper", "{url}/mc", None, 5)),
        # Endpoints that are no web pages.
        *((name, url) for name in ENDPOINTS for url in NO_PAGES),
    ],
)
async def test_metadata_that_could_lead_elsewhere_is_refused(name: str, value: object) -> None:
    async with Issuer() as on:
        told = on.resource if name == "resource" else on.metadata
        told[name] = value.format(issuer=on.issuer, url=on.url) if isinstance(value, str) else value
        with pytest.raises(Distrusted):
            await client_of(on).begin(BACK, UNAUTHORIZED)
        assert name != "issuer" or not on.registered


@requirement("UP-142")
@pytest.mark.parametrize("name", ["token_endpoint", "registration_endpoint"])
async def test_an_endpoint_at_a_private_address_is_sent_nothing(name: str) -> None:
    async with Issuer() as on:
        on.metadata[name] = "https://169.254.169.254/x"
        with pytest.raises(Distrusted):
            await client_of(on).log_in(BACK, browse, UNAUTHORIZED)


@requirement("UP-145")
@pytest.mark.parametrize(
    "came",
    [
        {"iss": "https://evil.example"},
        {"iss": "{issuer}/"},
        {"iss": ""},
        {"iss": "https://evil.example", "error": "access_denied", "error_description": "go to https://evil.example"},
        {"state": "another"},
        {"state": ""},
    ],
)
async def test_an_answer_of_another_issuer_or_login_gets_no_code_redeemed(came: dict[str, str]) -> None:
    async with Issuer() as on:
        on.comes_back = {name: value.format(issuer=on.issuer) for name, value in came.items()}
        with pytest.raises(Distrusted) as refused:
            await client_of(on).log_in(BACK, browse, UNAUTHORIZED)
        assert not on.forms
        assert "evil" not in f"{refused.value.why} {refused.value.detail}"
        # It says that it names itself, and so has to.
        pending = await client_of(on).begin(BACK, UNAUTHORIZED)
        with pytest.raises(Distrusted):
            await client_of(on).finish(pending, {"code": "x", "state": pending.state})
        assert not on.forms


@requirement("UP-143")
async def test_a_client_of_one_issuer_is_shown_to_no_other() -> None:
    async with Issuer() as on:
        given = GivenClient("https://id.example.com", "wicketgate", "s3cret")
        with pytest.raises(Distrusted):
            await client_of(on, given=given).begin(BACK, UNAUTHORIZED)
        with pytest.raises(Distrusted):
            await client_of(on, issuer="https://id.example.com").begin(BACK, UNAUTHORIZED)
        assert not on.forms
        assert not any(b"s3cret" in seen.body for seen in on.service.seen)


@requirement("UP-143")
async def test_a_registration_is_used_at_its_issuer_and_redirect_address_only() -> None:
    async with Issuer() as one, Issuer() as other:
        known = (await client_of(one).log_in(BACK, browse, UNAUTHORIZED)).registration
        for on, back in ((other, BACK), (one, "http://127.0.0.1:2/callback")):
            pending = await client_of(on).begin(back, UNAUTHORIZED, known=known)
            assert pending.registration is not known
        assert (await client_of(one).begin(BACK, UNAUTHORIZED, known=known)).registration is known


@requirement("UP-140")
async def test_a_server_without_metadata_leads_to_itself_alone() -> None:
    async with HttpService(lambda _: Reply(status=404)) as service:
        plan = LoginPlan(f"{service.url}/mcp", service.url)
        found = await LoginClient(plan, Carrier(Outgoing(), [service.url]), lambda: 0.0).find()
        assert found.issuer.token_endpoint == f"{service.url}/token"
    async with HttpService(lambda _: Reply(status=503)) as service:
        with pytest.raises(IssuerAway):
            plan = LoginPlan(f"{service.url}/mcp")
            await LoginClient(plan, Carrier(Outgoing(), [service.url]), lambda: 0.0).find()


@requirement("UP-143")
async def test_an_issuer_without_registration_says_what_the_operator_does() -> None:
    async with Issuer() as on:
        on.metadata["registration_endpoint"] = None
        with pytest.raises(NotOffered) as refused:
            await client_of(on).begin(BACK, UNAUTHORIZED)
        assert "oauth.client_id" in refused.value.detail


async def test_a_guard_lets_no_address_through_beside_the_scheme() -> None:
    async with HttpService(lambda _: Reply()) as service:
        async with HttpClient(Outgoing(guard=Guard())) as http:
            with pytest.raises(httpx.ConnectError):
                await fetch(http, "GET", service.url, {}, max_bytes=10)
        assert not service.seen
