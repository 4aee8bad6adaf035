"""Host and Origin, at every door alike."""

import pytest

from middleware.hosts import HostCheck, HostRule
from middleware.refusals import Refusal
from tests.support.requirement import requirement

RULE = HostRule(["localhost", "127.0.0.1", "::1"], ["gate.example", "Any.Example:*"], ["https://app.example"])


@requirement("ACCESS-34")
@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8080",
        "127.0.0.1:1",
        "[::1]:8080",
        "10.2.3.4",
        "10.2.3.4:8080",
        "[2001:db8::1]:8080",
        "gate.example",
        "GATE.example",
        "any.example",
        "any.example:8443",
    ],
)
def test_loopback_names_addresses_and_listed_names_are_taken(host: str) -> None:
    assert RULE.takes_host(host)


@requirement("ACCESS-34")
@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "localhost:1@evil.example",
        "evil.example#localhost",
        "localhost:",
        "localhost:x",
        "localhost:8080:9",
        "gate.example:8443",
        "evil.gate.example",
        "any.example:1@evil.example",
        "[::1].evil.example",
        "[::1",
        "::1",
        "127.0.0.1.evil.example",
        "127.1",
        "2130706433",
        "localhost, evil.example",
        "localhost evil.example",
        "loc\u00e4lhost",
    ],
)
def test_other_hosts_and_what_only_begins_like_one_are_refused(host: str) -> None:
    assert not RULE.takes_host(host)


@requirement("ACCESS-34")
def test_a_star_takes_every_well_formed_name() -> None:
    rule = HostRule([], ["*"])
    assert rule.takes_host("evil.example:8080")
    assert not rule.takes_host("localhost:1@evil.example")


@requirement("ACCESS-35")
def test_origins_are_compared_whole() -> None:
    taken = (
        "http://localhost",
        "http://localhost:3000",
        "http://[::1]:9",
        "https://app.example",
        "HTTPS://App.Example",
    )
    assert all(map(RULE.takes_origin, taken))
    refused = ("null", "", "https://localhost", "http://evil.example", "https://app.example:444", "app.example")
    assert not any(map(RULE.takes_origin, refused))
    assert not RULE.takes_origin("http://localhost:1@evil.example")


def knock(path: str, *headers: tuple[bytes, bytes], version: str = "1.1") -> Refusal | None:
    return HostCheck(RULE).refusal({"type": "http", "http_version": version, "path": path, "headers": list(headers)})


HOME = (b"host", b"localhost")


@requirement("ACCESS-34", "ACCESS-35")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/gateway", "/engine/chat", "/operations/tool_browse", "/metrics", "/x"])
def test_the_check_stands_before_every_door(path: str) -> None:
    for headers in ([(b"host", b"evil.example")], [], [HOME, HOME]):
        refusal = knock(path, *headers)
        assert refusal is not None
        assert refusal.status == 421
        assert "server.allowed_hosts" in refusal.message
    refusal = knock(path, HOME, (b"origin", b"http://evil.example"))
    assert refusal is not None
    assert refusal.status == 403
    assert (b"connection", b"close") in refusal.headers
    assert knock(path, HOME, (b"origin", b"http://localhost:1 ")) is None


@requirement("ACCESS-34")
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_asked_under_any_name(path: str) -> None:
    assert knock(path, (b"host", b"evil.example")) is None


@requirement("ACCESS-34")
def test_an_older_client_may_send_no_host_but_no_foreign_one() -> None:
    assert knock("/engine/chat", version="1.0") is None
    refusal = knock("/engine/chat", (b"host", b"evil.example"), version="1.0")
    assert refusal is not None
    assert refusal.status == 421
