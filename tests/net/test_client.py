"""The rules of outgoing requests: redirects, 401, cookies, headers."""

import httpx
import pytest

from tests.support.credentials import Tokens
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from wicketgate.net import HttpClient, NeverSent, Outgoing, Target, fetch
from wicketgate.net.client import redirect_of, send_authorized
from wicketgate.net.outgoing import NotSendable, SchemeRefused

MANY = 1_000_000


@pytest.fixture
async def http() -> HttpClient:
    return HttpClient(Outgoing())


@requirement("UP-25")
@pytest.mark.parametrize(
    "target",
    [
        "/a/%2E%2E/b",
        "/a/../b/./c",
        "/a%2Fb/..%2Fc",
        "/a?x=%2C,%2B+%20&y=%41",
        "/%C3%A9?q[a]=%5B%5D'",
        "/a;b=1/c%3Bd",
        "/a?x=%26%3D%23",
        "//a//",
        "/?",
    ],
)
async def test_a_url_goes_out_as_it_was_written(http: HttpClient, target: str) -> None:
    async with HttpService() as service, http:
        await fetch(http, "GET", service.url + target + "#fragment", {}, max_bytes=MANY)
        await http.transport.send(Target("POST", service.url + target, {}), b"", connect_s=5.0)
    assert [seen.target for seen in service.seen] == [target.removesuffix("?")] * 2


@pytest.mark.parametrize(("written", "sent"), [("", "/"), ("?a=1", "/?a=1"), ("/a b", "/a%20b"), ("/é", "/%C3%A9")])
async def test_what_cannot_stand_in_a_request_is_encoded(http: HttpClient, written: str, sent: str) -> None:
    async with HttpService() as service, http:
        await fetch(http, "GET", service.url + written, {}, max_bytes=MANY)
    assert service.seen[0].target == sent


@requirement("UP-22", "UP-26")
async def test_only_our_headers_go_out_and_cookies_are_not_kept(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with HttpService(lambda seen: Reply(headers={"set-cookie": "who=someone; Path=/"})) as service, http:
        for _ in range(2):
            reply = await fetch(http, "POST", service.url, {"X-A": "1"}, b"data", max_bytes=MANY)
        await http.post(service.url, headers={"X-A": "1"}, content=b"data")
        assert reply.headers["set-cookie"].startswith("who=")
        assert not http.cookies
    for seen in service.seen:
        assert set(seen.headers) == {"host", "accept", "accept-encoding", "user-agent", "x-a", "content-length"}
        assert (seen.headers["accept-encoding"], seen.headers["user-agent"]) == ("identity", "wicketgate")
    assert service.seen[1].body == b"data"


@requirement("UP-26")
async def test_a_body_is_cut_at_its_bound_and_that_of_a_stream_is_left(http: HttpClient) -> None:
    async with HttpService(lambda seen: Reply(b"x" * 100_000)) as service, http:
        cut = await fetch(http, "GET", service.url, {}, max_bytes=1_000)
        whole = await fetch(http, "GET", service.url, {}, max_bytes=100_000)
        left = await fetch(http, "GET", service.url, {}, max_bytes=1_000, unread=lambda kind: "json" in kind)
    assert (len(cut.body), cut.cut) == (1_000, True)
    assert (len(whole.body), whole.cut) == (100_000, False)
    assert (left.body, left.cut) == (b"", True)


@requirement("UP-42")
@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("ftp://127.0.0.1/", SchemeRefused),
        ("http://", SchemeRefused),
        ("/a", SchemeRefused),
        ("http://a\nb/", NotSendable),
    ],
)
async def test_what_is_no_url_of_ours_is_never_sent(http: HttpClient, url: str, kind: type[NeverSent]) -> None:
    async with http:
        with pytest.raises(kind):
            await fetch(http, "GET", url, {}, max_bytes=MANY)
        with pytest.raises(kind):
            Target("GET", url, {})


@requirement("UP-25")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", "a\r\nb: c"),
        ("x", "a\ny"),
        ("x", "a\rb"),
        ("x", "a\0"),
        ("x\ny", "a"),
    ],
)
async def test_a_header_cannot_become_two(http: HttpClient, name: str, value: str) -> None:
    async with HttpService() as service, http:
        target = Target("POST", service.url, {})
        with pytest.raises(NotSendable):
            await fetch(http, "GET", service.url, {name: value}, max_bytes=MANY)
        with pytest.raises(NotSendable):
            Target("POST", service.url, {name: value})
        with pytest.raises(NotSendable):
            await http.transport.send(target, b"", {name: value}, connect_s=5.0)
    assert service.seen == []


async def test_the_credentials_of_a_url_are_sent_in_a_header_both_ways(http: HttpClient) -> None:
    async with HttpService() as service, http:
        url = service.url.replace("://", "://me:p%40ss@")
        await fetch(http, "POST", url, {}, max_bytes=MANY)
        await http.transport.send(Target("POST", url, {}), b"", connect_s=5.0)
        await http.transport.send(Target("POST", url, {"authorization": "mine"}), b"", connect_s=5.0)
    assert [seen.headers["authorization"] for seen in service.seen] == [*["Basic bWU6cEBzcw=="] * 2, "mine"]


# Redirects.


def redirecting(status: int, location: str) -> HttpService:
    def answer(seen: Seen) -> Reply:
        if seen.target == "/from":
            return Reply(status=status, headers={"location": location})
        return Reply(f"{seen.method} {seen.body.decode()}".encode())

    return HttpService(answer)


@requirement("UP-41")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_call_follows_no_redirect(http: HttpClient, status: int) -> None:
    async with redirecting(status, "/to") as service, http:
        reply = await fetch(http, "POST", service.url + "/from", {}, b"data", max_bytes=MANY)
        response = await http.post(service.url + "/from")
    assert (reply.status, reply.headers["location"], response.status_code) == (status, "/to", status)
    assert len(service.seen) == 2


@requirement("UP-41")
@pytest.mark.parametrize(
    ("status", "method", "arrives"),
    [
        (301, "GET", b"GET "),
        (302, "POST", b"GET "),
        (303, "PUT", b"GET "),
        (307, "POST", b"POST data"),
        (308, "PUT", b"PUT data"),
    ],
)
async def test_a_redirect_within_the_origin_is_followed_where_hops_are_given(
    http: HttpClient, status: int, method: str, arrives: bytes
) -> None:
    async with redirecting(status, "/to/%2E?x=1") as service, http:
        body = None if method == "GET" else b"data"
        reply = await fetch(http, method, service.url + "/from", {}, body, max_bytes=MANY, hops=3)
    assert (reply.status, reply.body) == (200, arrives)
    assert service.seen[1].target == "/to/%2E?x=1"


@requirement("UP-22", "UP-25")
@pytest.mark.parametrize(
    "other", ["http://localhost:{port}/x", "https://127.0.0.1:{port}/x", "//127.0.0.1:1/x", "http://[bad"]
)
async def test_a_redirect_to_another_origin_is_not_followed(http: HttpClient, other: str) -> None:
    async with HttpService() as service, http:
        location = other.format(port=service.url.rpartition(":")[2])
        service.answer = lambda seen: Reply(status=302, headers={"location": location})
        reply = await fetch(http, "GET", service.url, {"Authorization": "secret"}, max_bytes=MANY, hops=3)
    assert reply.status == 302
    assert len(service.seen) == 1


@requirement("UP-25", "UP-41")
async def test_redirects_without_end_end(http: HttpClient) -> None:
    async with HttpService(lambda seen: Reply(status=307, headers={"location": "/again"})) as service, http:
        reply = await fetch(http, "GET", service.url, {}, max_bytes=MANY, hops=3)
    assert reply.status == 307
    assert len(service.seen) == 4


@requirement("UP-41")
@pytest.mark.parametrize(
    ("url", "location", "onward"),
    [
        ("http://a.test/x", "y", "http://a.test/y"),
        ("http://a.test/x", "http://A.test:80/y", "http://A.test:80/y"),
        ("http://a.test/x", "https://a.test/y", "https://a.test/y"),
        ("http://a.test:8080/x", "https://a.test/y", None),
        ("http://a.test/x", "https://a.test:8443/y", None),
        ("https://a.test/x", "http://a.test/y", None),
        ("http://a.test/x", "https://b.test/y", None),
        ("http://a.test/x", "file:///y", None),
        ("http://me:pw@a.test/x", "http://a.test/y", "http://me:pw@a.test/y"),
        ("http://me:pw@a.test/x", "y?a=%2F..%2e", "http://me:pw@a.test/y?a=%2F..%2e"),
        ("http://a.test/x", "http://you@a.test/y", None),
    ],
)
def test_the_origin_is_kept_but_tls_may_be_turned_on(url: str, location: str, onward: str | None) -> None:
    assert redirect_of(url, httpx.Response(307, headers={"location": location})) == onward


# 401.


@requirement("UP-23")
@pytest.mark.parametrize(("good", "sent", "status"), [("t0", 1, 200), ("t1", 2, 200), ("none", 2, 401)])
async def test_after_a_401_the_credential_is_renewed_once(http: HttpClient, good: str, sent: int, status: int) -> None:
    tokens = Tokens("t")

    def answer(seen: Seen) -> Reply:
        return Reply(status=200 if seen.headers["authorization"] == good else 401)

    async with HttpService(answer) as service, http:

        async def send(authorization: str | None) -> httpx.Response:
            assert authorization is not None
            request = http.build_request("POST", service.url, headers={"authorization": authorization})
            return await http.send(request, stream=True)

        response = await send_authorized(tokens, send)
        await response.aclose()
    assert (response.status_code, len(service.seen), tokens.renewals) == (status, sent, sent - 1)


@requirement("UP-23")
@pytest.mark.parametrize(
    ("renews", "challenge", "sent", "status"),
    [
        (True, 'Bearer error="insufficient_scope", scope="a"', 2, 200),
        (False, 'Bearer error="insufficient_scope", scope="a"', 1, 403),
        (True, 'Bearer error="invalid_request"', 1, 403),
        (True, "", 1, 403),
    ],
)
async def test_a_403_is_asked_again_only_where_more_scopes_can_be_had(
    http: HttpClient, renews: bool, challenge: str, sent: int, status: int
) -> None:
    def answer(seen: Seen) -> Reply:
        good = seen.headers["authorization"] == "t1"
        return Reply(status=200 if good else 403, headers={"www-authenticate": challenge})

    async with HttpService(answer) as service, http:

        async def send(authorization: str | None) -> httpx.Response:
            headers = {"authorization": authorization or ""}
            return await http.send(http.build_request("POST", service.url, headers=headers), stream=True)

        response = await send_authorized(Tokens("t", renews=renews), send)
        await response.aclose()
    assert (response.status_code, len(service.seen)) == (status, sent)


@requirement("UP-23")
async def test_without_a_credential_a_401_is_the_answer(http: HttpClient) -> None:
    async with HttpService(lambda seen: Reply(status=401)) as service, http:

        async def send(authorization: str | None) -> httpx.Response:
            assert authorization is None
            return await http.send(http.build_request("POST", service.url), stream=True)

        assert (await send_authorized(None, send)).status_code == 401
    assert len(service.seen) == 1
