"""Places that a server or an issuer names, and answers of issuers that want more than they should have."""

import json
from typing import Any

import pytest

from tests.login.test_attacks import BACK
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.locked_server import Issuer
from tests.support.requirement import requirement
from wicketgate.login.discovery import Issuer as Found
from wicketgate.login.discovery import issuer_of
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.registrar import registration
from wicketgate.login.steps import Answer, LoginFailure
from wicketgate.login.token_endpoint import Client, Tokens, refresh
from wicketgate.net import Outgoing
from wicketgate.net.guard import Guard

SPECIAL = (
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "2001:0:a9fe:a9fe::1",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fe80::1%eth0",
    "100.100.100.200",
    "169.254.170.2",
    "0.0.0.0",
    "255.255.255.255",
    "240.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "ff0e::1",
    "2001:db8::1",
    "100::1",
    "::1",
    "::",
    "::7f00:1",
)
PUBLIC_TO_SOME = (
    "192.0.0.192",  # the metadata of Oracle's cloud; private (192.0.0.0/24) to newer Pythons
    "fec0::1",  # site-local, as private as fc00::/7
    "::ffff:0:7f00:1",  # translated (SIIT)
    "168.63.129.16",  # the platform of Azure
    "192.88.99.1",  # the relay of 6to4
    "3fff::1",  # documentation
    "5f00::1",  # segment routing
)
PUBLIC = ("1.1.1.1", "9.9.9.9", "192.0.1.1", "2606:4700::1111", "2a00:1450::1", "2001:200::1")


@requirement("UP-142", "ACCESS-223")
@pytest.mark.parametrize("address", [*SPECIAL, *PUBLIC_TO_SOME, *PUBLIC])
def test_no_special_address_is_public_and_those_of_servers_are(address: str) -> None:
    assert Guard().allows_address("as.example.net", address) == (address in PUBLIC)


def run(steps: Any, *answers: Answer) -> Any:
    try:
        next(steps)
        for answer in answers:
            steps.send(answer)
    except StopIteration as end:
        return end.value
    raise AssertionError("more was asked than is answered here")


def answered(document: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode(), False)


def document_of(issuer: str, page: str) -> Answer:
    return answered(
        {
            "issuer": issuer,
            "authorization_endpoint": page,
            "token_endpoint": f"{issuer}/token",
            "code_challenge_methods_supported": ["S256"],
        }
    )


@requirement("UP-142", "ACCESS-224")
@pytest.mark.parametrize("issuer", ["https://as.example.net", "http://localhost:8000"])
@pytest.mark.parametrize(
    "url",
    ["http://as.example.com/authorize", "http://192.168.1.1/apply.cgi?reboot=1", "http://as.example.net/authorize"],
)
def test_no_browser_is_sent_to_a_page_without_tls(issuer: str, url: str) -> None:
    """Nor to a machine in its own network: the code would travel in the clear, and a router takes any GET."""
    with pytest.raises(LoginFailure):
        run(issuer_of(issuer), document_of(issuer, url))


@requirement("ACCESS-224")
@pytest.mark.parametrize(
    "page", ["http://keycloak:8080/authorize", "http://localhost:8080/authorize", "https://x.example/a"]
)
def test_an_issuer_that_the_operator_allows_over_http_sends_browsers_to_itself(page: str) -> None:
    found = run(issuer_of("http://keycloak:8080"), document_of("http://keycloak:8080", page))
    assert found.authorization_endpoint == page


HOLDS = Client("https://as.example.net", "https://as.example.net/token", "gate", "none")
HAD = Tokens("a", "r", frozenset({"read"}), 1.0, "", "https://as.example.net", "https://mcp.example.net/mcp", "gate")


@requirement("UP-142")
@pytest.mark.parametrize(
    "document",
    [
        b"<html>" + b"x" * 100_000,
        b"{" * 50_000,
        json.dumps({"client_id": "<script>alert(1)</script>\r\nEvil: 1"}).encode(),
        json.dumps({"client_id": "x" * 5_000}).encode(),
        json.dumps({"client_id": ["x"]}).encode(),
        json.dumps({"client_id": "x", "token_endpoint_auth_method": "private_key_jwt"}).encode(),
        json.dumps({"client_id": "x", "client_secret": "s", "token_endpoint_auth_method": "tls_client_auth"}).encode(),
        json.dumps({"client_id": "x", "token_endpoint_auth_method": ["none"]}).encode(),
        json.dumps(
            {"client_id": "x", "client_secret": "", "token_endpoint_auth_method": "client_secret_post"}
        ).encode(),
    ],
)
def test_odd_answers_to_a_registration_register_nothing(document: bytes) -> None:
    found = Found("https://as.example.net", "https://as.example.net/token", "", "https://as.example.net/register")
    with pytest.raises(LoginFailure) as failure:
        run(registration(found, "asked", BACK, now=0.0), Answer(201, document, False))
    assert "script" not in failure.value.detail


@requirement("UP-142")
async def test_a_redirect_of_the_token_endpoint_takes_no_secret_elsewhere() -> None:
    """The code, its verifier and the client's secret go to the endpoint of the document alone."""

    async def answer(seen: Seen) -> Reply:
        return Reply(b'{"access_token": "evil", "token_type": "Bearer"}')

    async with HttpService(answer) as evil, Issuer() as issuer:
        for status in (301, 302, 303, 307, 308):

            async def moved(seen: Seen, status: int = status) -> Reply:
                return Reply(b"", status, {"location": f"{evil.url}/token"})

            async with HttpService(moved) as hop:
                client = Client(issuer.url, f"{hop.url}/token", "gate", "client_secret_post", "secret")
                with pytest.raises(LoginFailure):
                    await Carrier(Outgoing(), [hop.url, evil.url]).run(refresh(client, HAD, 0.0))
        assert evil.seen == []
