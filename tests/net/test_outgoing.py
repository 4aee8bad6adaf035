"""Trust and proxies: what holds for every connection that goes out."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import certifi
import pytest

from tests.support.certificates import Authority
from tests.support.http_service import HttpService
from tests.support.proxy import HttpProxy
from tests.support.raw_server import CHUNKED, WHOLE, RawServer
from tests.support.requirement import requirement
from wicketgate.net import HttpClient, NeverSent, Outgoing, Reply, fetch
from wicketgate.net.outgoing import CannotConnect, Proxies, ProxyFailed

HELLO = ([WHOLE], False)
SECRET = "p%40ss"


async def get(outgoing: Outgoing, url: str) -> Reply:
    async with HttpClient(outgoing) as http:
        return await fetch(http, "GET", url, {}, max_bytes=1000)


# Trust.


@requirement("UP-40")
@pytest.mark.parametrize("how", ["ca_file", "SSL_CERT_FILE"])
async def test_a_private_authority_is_trusted_once_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    authority = Authority(tmp_path)
    async with RawServer(([CHUNKED + b"5\r\nhello\r\n", b"0\r\n\r\n"], False), HELLO).running(
        authority.serving("127.0.0.1")
    ) as server:
        with pytest.raises(CannotConnect, match="certificate is not trusted"):
            await get(Outgoing(), server.url)
        if how == "ca_file":
            outgoing = Outgoing(ca_file=str(authority.ca_file))
        else:
            monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
            outgoing = Outgoing()
        assert (await get(outgoing, server.url)).body == b"hello"


@requirement("UP-40")
async def test_a_ca_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    first, second = Authority(tmp_path), Authority(_made(tmp_path / "second"))
    outgoing = Outgoing(ca_file=str(first.ca_file))
    async with RawServer(HELLO).running(second.serving("127.0.0.1")) as server:
        with pytest.raises(CannotConnect, match="certificate is not trusted"):
            await get(outgoing, server.url)
        first.ca_file.write_bytes(first.ca_file.read_bytes() + second.ca_file.read_bytes())
        assert (await get(outgoing, server.url)).body == b"hello"


@requirement("UP-27", "UP-42")
@pytest.mark.parametrize(
    ("names", "expired"), [(("127.0.0.2",), False), (("127.0.0.1",), True), (("localhost",), False)]
)
async def test_a_certificate_that_does_not_hold_for_the_host_is_refused(
    tmp_path: Path, names: tuple[str, ...], expired: bool
) -> None:
    authority = Authority(tmp_path)
    async with RawServer().running(authority.serving(*names, expired=expired)) as server:
        with pytest.raises(CannotConnect, match="certificate is not trusted") as caught:
            await get(Outgoing(ca_file=str(authority.ca_file)), server.url)
    assert isinstance(caught.value, NeverSent)
    assert server.requests == []


@requirement("UP-27")
async def test_a_server_that_does_not_speak_tls_is_not_reached() -> None:
    async with HttpService() as service, HttpClient(Outgoing()) as http:
        with pytest.raises(CannotConnect):
            await http.get(service.url.replace("http:", "https:"))
        assert service.seen == []


@requirement("UP-56")
async def test_connections_that_begin_together_share_one_tls_context(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    contexts = await asyncio.gather(*(Outgoing(str(authority.ca_file)).tls() for _ in range(20)))
    assert len({id(context) for context in contexts}) == 1


@requirement("UP-40")
def test_a_system_without_certificates_trusts_those_of_certifi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(_made(tmp_path / "none")))
    theirs = ssl.create_default_context(cafile=certifi.where())
    assert Outgoing().make_tls().get_ca_certs() == theirs.get_ca_certs()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


# Proxies. Names below .test do not exist; the proxy takes them all for 127.0.0.1.


def through(proxy: HttpProxy, ca_file: str = "", **more: str) -> Outgoing:
    url = f"http://127.0.0.1:{proxy.port}"
    return Outgoing.from_environment({"http_proxy": url, "https_proxy": url, **more}, ca_file)


@requirement("UP-39")
async def test_http_through_a_proxy_names_the_whole_url_as_it_was_written() -> None:
    async with (
        RawServer(HELLO, HELLO).running(host="api.test") as server,
        HttpProxy().running() as proxy,
        HttpClient(through(proxy)) as http,
    ):
        for _ in range(2):
            reply = await fetch(http, "POST", server.url + "&b=%2e%2E", {}, b"abc", max_bytes=1000)
            assert reply.body == b"hello"
    assert proxy.requests[0].startswith(f"POST {server.url}&b=%2e%2E HTTP/1.1\r\n".encode())
    assert b"\r\nHost: api.test:" in proxy.requests[0]
    assert (server.connections, len(server.requests)) == (1, 2)
    assert server.requests[0].startswith(b"POST /v1/x?a=%2C&b=%2e%2E HTTP/1.1\r\n")
    assert server.requests[0].endswith(b"abc")


@requirement("UP-39")
async def test_https_through_a_proxy_is_a_tunnel_that_hides_the_request(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving("api.test")
    async with (
        RawServer(HELLO, HELLO).running(serving, host="api.test") as server,
        HttpProxy().running() as proxy,
        HttpClient(through(proxy, str(authority.ca_file))) as http,
    ):
        for _ in range(2):
            reply = await fetch(http, "GET", server.url, {"Authorization": "secret"}, max_bytes=1000)
            assert reply.body == b"hello"
    host = server.url.split("/")[2]
    assert proxy.requests == [f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()]
    assert server.connections == 1


@requirement("UP-27")
async def test_a_server_behind_a_tunnel_has_to_be_trusted_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        RawServer().running(authority.serving("other.test"), host="api.test") as server,
        HttpProxy().running() as proxy,
    ):
        with pytest.raises(CannotConnect, match="certificate is not trusted"):
            await get(through(proxy, str(authority.ca_file)), server.url)
    assert server.requests == []


@requirement("UP-40")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_speaks_tls_has_to_be_trusted_too(tmp_path: Path, scheme: str) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving("api.test") if scheme == "https" else None
    async with (
        RawServer(HELLO).running(serving, host="api.test") as server,
        HttpProxy().running(authority.serving("127.0.0.1")) as proxy,
    ):
        environ = {f"{scheme}_proxy": f"https://127.0.0.1:{proxy.port}"}
        trusting = Outgoing.from_environment(environ, str(authority.ca_file))
        assert (await get(trusting, server.url)).body == b"hello"
        with pytest.raises(CannotConnect, match="certificate is not trusted"):
            await get(Outgoing.from_environment(environ), server.url)


@requirement("UP-39")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_proxy_is_given_its_credentials_and_the_server_is_not(tmp_path: Path, scheme: str) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving("api.test") if scheme == "https" else None
    async with RawServer(HELLO).running(serving, host="api.test") as server, HttpProxy().running() as proxy:
        environ = {"ALL_PROXY": f"http://me:{SECRET}@127.0.0.1:{proxy.port}"}
        await get(Outgoing.from_environment(environ, str(authority.ca_file)), server.url)
    assert b"\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n" in proxy.requests[0]
    if scheme == "https":
        assert b"roxy" not in server.requests[0]


@requirement("UP-42")
@pytest.mark.parametrize(
    ("refusal", "surplus"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\nbody", b""),
        (b"garbage\r\n\r\n", b""),
        (b"HTTP/1.1 200", b""),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, b""),
        (b"", b"\x15\x03\x01"),
    ],
    ids=["407", "502", "garbage", "hangs up", "endless head", "surplus"],
)
async def test_a_tunnel_that_does_not_open_means_never_sent(refusal: bytes, surplus: bytes) -> None:
    async with HttpProxy().running() as proxy:
        proxy.refusal, proxy.surplus = refusal, surplus
        async with RawServer().running() as server:
            url = server.url.replace("http://127.0.0.1", "https://api.test")
            with pytest.raises(ProxyFailed) as caught:
                await get(through(proxy), url)
    assert isinstance(caught.value, NeverSent)


@requirement("UP-39", "UP-42")
async def test_a_proxy_that_cannot_be_reached_means_never_sent() -> None:
    outgoing = Outgoing.from_environment({"http_proxy": f"http://me:{SECRET}@127.0.0.1:1"})
    with pytest.raises(ProxyFailed) as caught:
        await get(outgoing, "http://api.test/")
    assert isinstance(caught.value, NeverSent)
    for text in (str(caught.value), repr(outgoing)):
        assert SECRET not in text
        assert "p@ss" not in text


@requirement("UP-39")
@pytest.mark.parametrize("value", ["socks5://127.0.0.1:1080", "ftp://p", "http://", "http://[x"])
async def test_a_proxy_setting_that_cannot_be_used_names_its_variable(value: str) -> None:
    with pytest.raises(ProxyFailed, match=r"^HTTPS_PROXY "):
        await get(Outgoing.from_environment({"HTTPS_PROXY": value}), "https://api.test/")


@requirement("UP-39")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_loopback_is_always_direct(host: str) -> None:
    async with RawServer(HELLO).running(host=host) as server:
        outgoing = Outgoing.from_environment({"ALL_PROXY": "http://127.0.0.1:1"})
        assert (await get(outgoing, server.url)).body == b"hello"


@requirement("UP-39")
@pytest.mark.parametrize(
    "host",
    [
        *("127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "app.localhost", "10.1.2.3", "api.test", "x.api.test"),
        *("localhost.", "127.0.0.1.", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "::", "10.258", "api.test."),
    ],
)
def test_these_are_direct(host: str) -> None:
    entries = "10.0.0.0/8, .other.test API.test"
    proxies = Outgoing.from_environment({"all_proxy": "http://p", "NO_PROXY": entries}).proxies
    assert proxies.proxy_for(("http", host, 80)) is None


@requirement("UP-39")
@pytest.mark.parametrize(
    ("entries", "host", "port", "direct"),
    [
        ("*", "a.test", 80, True),
        ("a.test:81", "a.test", 80, False),
        ("a.test:80", "a.test", 80, True),
        ("*.a.test", "b.a.test", 80, True),
        (".a.test", "a.test", 80, True),
        ("a.test", "ba.test", 80, False),
        ("192.0.2.1", "192.0.2.1", 80, True),
        ("192.0.2.0/24", "192.0.3.1", 80, False),
        ("2001:db8::/32", "2001:db8::1", 80, True),
        ("[2001:db8::1]:80", "2001:db8::1", 80, True),
        ("[2001:db8::1]:81", "2001:db8::1", 80, False),
        ("a.test.", "a.test", 80, True),
        ("192.0.2.0/24", "3221225985", 80, True),
        ("", "a.test", 80, False),
        (", ,", "a.test", 80, False),
    ],
)
def test_no_proxy_names_hosts_domains_networks_and_ports(entries: str, host: str, port: int, direct: bool) -> None:
    proxies = Outgoing.from_environment({"http_proxy": "http://p:1", "no_proxy": entries}).proxies
    assert (proxies.proxy_for(("http", host, port)) is None) == direct


@requirement("UP-39")
@pytest.mark.parametrize(
    ("environ", "scheme", "host"),
    [
        ({"HTTP_PROXY": "http://a", "http_proxy": "http://b"}, "http", "b"),
        ({"HTTP_PROXY": "http://a", "http_proxy": ""}, "http", ""),
        ({"ALL_PROXY": "http://a", "HTTP_PROXY": "b:3128"}, "http", "b"),
        ({"ALL_PROXY": "http://a", "HTTP_PROXY": "b"}, "https", "a"),
        ({"HTTP_PROXY": "http://a"}, "https", ""),
        ({}, "http", ""),
    ],
)
def test_the_environment_names_a_proxy_for_each_scheme(environ: Mapping[str, str], scheme: str, host: str) -> None:
    proxies: Proxies = Outgoing.from_environment(environ).proxies
    proxy = proxies.proxy_for((scheme, "a.test", 1))
    assert (proxy.host if proxy else "") == host
