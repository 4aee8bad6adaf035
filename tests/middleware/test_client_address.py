"""The client behind proxies: only trusted ones are believed."""

import pytest

from middleware.client_address import UNKNOWN, TrustedProxies, client_of, from_client
from tests.support.requirement import requirement

PROXIES = TrustedProxies(["10.0.0.0/8", "192.0.2.1", "fd00::/8"])
PEER = "10.0.0.1"


def forwarded_for(*lines: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", line.encode("latin-1")) for line in lines]


def forwarded(*lines: str) -> list[tuple[bytes, bytes]]:
    return [(b"forwarded", line.encode("latin-1")) for line in lines]


@requirement("ACCESS-31")
@pytest.mark.parametrize("headers", [forwarded_for("198.51.100.1"), forwarded("for=198.51.100.1")])
@pytest.mark.parametrize("peer", ["203.0.113.9", "127.0.0.1", "2001:db8::1", "testclient"])
def test_headers_of_others_than_trusted_proxies_are_not_read(peer: str, headers: list[tuple[bytes, bytes]]) -> None:
    assert client_of(peer, headers, PROXIES) == peer
    assert client_of(peer, headers, TrustedProxies()) == peer


@requirement("ACCESS-31")
@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ([], PEER),
        (forwarded_for("203.0.113.9"), "203.0.113.9"),
        (forwarded_for("127.0.0.1, 203.0.113.9"), "203.0.113.9"),
        (forwarded_for("127.0.0.1, 203.0.113.9, 192.0.2.1, 10.9.9.9"), "203.0.113.9"),
        (forwarded_for("127.0.0.1", "203.0.113.9, 10.2.0.1"), "203.0.113.9"),
        (forwarded_for("10.1.1.1, 10.2.2.2"), "10.1.1.1"),
        (forwarded_for("203.0.113.9:4711"), "203.0.113.9"),
        (forwarded_for("[2001:DB8::7]:4711"), "2001:db8::7"),
        (forwarded_for("2001:db8::7, fd00::1"), "2001:db8::7"),
        (forwarded_for("::ffff:203.0.113.9"), "203.0.113.9"),
        (forwarded("for=203.0.113.9"), "203.0.113.9"),
        (forwarded("For=127.0.0.1, for=203.0.113.9;proto=https;by=10.0.0.2"), "203.0.113.9"),
        (forwarded('for="[2001:db8::7]:4711";by=_hidden'), "2001:db8::7"),
        (forwarded('for="203.0.113.9:_port", for=10.4.4.4'), "203.0.113.9"),
        (forwarded("for=127.0.0.1", "for=203.0.113.9"), "203.0.113.9"),
        (forwarded('for="127.0.0.1, for=203.0.113.9'), "203.0.113.9"),
        (forwarded('by="x, for=203.0.113.9;proto="https"'), "203.0.113.9"),
        ([*forwarded("for=127.0.0.1"), *forwarded_for("203.0.113.9")], "203.0.113.9"),
    ],
)
def test_the_client_is_the_last_one_that_is_not_a_trusted_proxy(
    headers: list[tuple[bytes, bytes]], client: str
) -> None:
    assert client_of(PEER, headers, PROXIES) == client


@requirement("ACCESS-32")
@pytest.mark.parametrize(
    "headers",
    [
        forwarded_for("127.0.0.1, unknown"),
        forwarded_for("127.0.0.1,"),
        forwarded_for("203.0.113.9:99999999"),
        forwarded_for("203.0.113.9 evil"),
        forwarded_for("203.0.113.999"),
        forwarded_for("127.0.0.1, _hidden, 10.0.0.2"),
        forwarded_for(", ".join(["10.0.0.2"] * 100)),
        forwarded_for("::1%eth0"),
        forwarded_for("::1%any text"),
        forwarded(""),
        forwarded("for=127.0.0.1", " "),
        forwarded("for=unknown"),
        forwarded('for="_hidden"'),
        forwarded("for=127.0.0.1;for=127.0.0.2"),
        forwarded("proto=https"),
        forwarded("for=127.0.0.1, for"),
        forwarded('for="127.0.0.1'),
    ],
)
def test_a_client_that_a_trusted_proxy_does_not_name_well_is_unknown_never_local(
    headers: list[tuple[bytes, bytes]],
) -> None:
    assert client_of(PEER, headers, PROXIES) == UNKNOWN


@requirement("ACCESS-31")
def test_all_behind_the_middleware_sees_the_client_and_no_forwarding_header() -> None:
    headers = [(b"host", b"a"), *forwarded_for("203.0.113.9"), *forwarded("for=127.0.0.1")]
    clients = ((PEER, 5), ("203.0.113.7", 6), None)
    seen = [from_client({"type": "http", "client": client, "headers": headers}, PROXIES) for client in clients]
    assert [scope["client"] for scope in seen] == [("203.0.113.9", 0), ("203.0.113.7", 6), None]
    assert [len(scope["headers"]) for scope in seen] == [1, 3, 3]
