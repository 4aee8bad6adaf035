"""The one HTTP client, and the rules of outgoing requests: redirects, 401, cookies
(UP-22, UP-23, UP-41)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Protocol
from urllib.parse import urljoin, urlsplit

import httpx

from wicketgate.net.challenge import Refusal, refusal_of
from wicketgate.net.outgoing import NotSendable, Outgoing
from wicketgate.net.transport import IDLE_S, Room, Transport, path_of, read_bounded, read_url

CONNECT_S = 10.0

_REPEATED_AS_IT_IS = (307, 308)
_REDIRECTS = (301, 302, 303, *_REPEATED_AS_IT_IS)


class Credentials(Protocol):
    """The gateway's own credential for one server; a client's is never passed on.

    One object serves all calls of an upstream at the same time; callers that come together wait for one token.
    """

    async def authorization(self) -> str:
        """Return the value of the header, from a cache while it is fresh; empty if the server shall be asked without
        one. Raises UpstreamUnavailable when there is none; the text is fixed and names no address and no secret."""
        ...

    async def renew(self, refusal: Refusal) -> bool:
        """Have ``authorization`` give another value, because the server refused the last one: with a 401, or with a
        403 that asks for more scopes. True if the request may be sent once more.

        Very soon after another renewal it does nothing: of calls that were refused together one is enough. Raises
        UpstreamUnavailable when there is none, also without asking when the last attempt failed a short time ago.
        """
        ...

    async def aclose(self) -> None:
        """End what is under way. The upstream calls it at its end, and at the end of each session."""
        ...


class HttpClient(httpx.AsyncClient):
    """httpx's client with a pool of its own, which its owner closes; without cookies, redirects, netrc or a proxy that
    the transport does not know of. Without *timeout* only connecting has a bound.

    ``transport.send`` is the cheaper way for many requests to one URL. Raises httpx.InvalidURL for a *base_url* that is
    none.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
        base_url: str = "",
        idle_s: float = IDLE_S,
    ) -> None:
        self.transport = Transport(outgoing, idle_s)
        own = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "wicketgate"}
        super().__init__(
            transport=self.transport,
            headers={**own, **{name.lower(): value for name, value in (headers or {}).items()}},
            timeout=timeout or httpx.Timeout(None, connect=CONNECT_S),
            base_url=base_url,
            # None is kept: a gate's callers would share it.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            trust_env=False,
            follow_redirects=False,
        )
        # Keeping a connection is what HTTP/1.1 does anyway.
        del self.headers["connection"]


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. *headers* have names in lower case. *cut*: the body went on, or was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool


async def fetch(
    http: HttpClient,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    max_bytes: int,
    hops: int = 0,
    credentials: Credentials | None = None,
    unread: Callable[[str], bool] = lambda _: False,
    room: Room | None = None,
) -> Reply:
    """One request and its answer, the body cut after *max_bytes*. *url* is sent as it is written.

    At most *hops* redirects within the origin are followed; any other is the answer. The body of a content type that
    is *unread* is left. *room* as in ``Body.gather``. Raises the errors of ``wicketgate.net.outgoing``, and those of
    the *credentials*.
    """
    while True:
        # One exchange.
        response = await send_authorized(credentials, partial(_sent, http, method, url, headers, body))
        names = {name.lower(): value for name, value in response.headers.items()}
        # The answer, if it is no redirect that may be followed.
        onward = redirect_of(url, response) if hops else None
        if onward is None and unread(names.get("content-type", "")):
            await response.aclose()
            return Reply(response.status_code, names, b"", True)
        data, cut = await read_bounded(response, max_bytes, room)
        if onward is None:
            return Reply(response.status_code, names, bytes(data), cut)
        # The redirect; a request that is not repeated as it is becomes a GET, as in browsers.
        hops -= 1
        url = onward
        if response.status_code not in _REPEATED_AS_IT_IS and method not in ("GET", "HEAD"):
            method, body = "GET", None
            headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}


async def _sent(
    http: HttpClient, method: str, url: str, headers: Mapping[str, str], body: bytes | None, authorization: str | None
) -> httpx.Response:
    parsed = read_url(url)
    if authorization is not None:
        headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        headers["Authorization"] = authorization
    try:
        request = http.build_request(
            method, parsed, headers=headers, content=body, extensions={"target": path_of(url, parsed)}
        )
    except UnicodeError:
        raise NotSendable("a character that a header cannot have") from None
    return await http.send(request, stream=True)


def redirect_of(url: str, response: httpx.Response) -> str | None:
    """The URL that *response* to a request for *url* redirects to, if the request may be sent there: within the
    origin, or from http to https of the same host at the usual ports."""
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        before, after = urlsplit(url), urlsplit(urljoin(url, location))
        # The credentials of the URL stay; the server names no others.
        own, _, _ = before.netloc.rpartition("@")
        named, _, host = after.netloc.rpartition("@")
        if named not in ("", own):
            return None
        onward = after._replace(netloc=f"{own}@{host}" if own else host).geturl()
        usual = before.port in (None, 80) and after.port in (None, 443)
        upgraded = (before.scheme, after.scheme) == ("http", "https") and before.hostname == after.hostname and usual
        return onward if upgraded or origin(url) == origin(onward) else None
    except ValueError:
        return None


def origin(url: str) -> tuple[str, str, int]:
    """Returns scheme, host in lower case, and port. Raises ValueError."""
    parts = urlsplit(url)
    usual = 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname or "", usual if parts.port is None else parts.port


async def send_authorized(
    credentials: Credentials | None, send: Callable[[str | None], Awaitable[httpx.Response]]
) -> httpx.Response:
    """The answer to *send* with the credential's header value. After a refusal the credential is renewed and *send* is
    called once more, for any method: a server that asks for another credential has done nothing. A token for which it
    wants more scopes (403) counts apart from one that it does not take (401)."""
    if credentials is None:
        return await send(None)
    refused: set[int] = set()
    while True:
        response = await send(await credentials.authorization() or None)
        refusal = refusal_of(response.status_code, response.headers)
        if refusal is None or refusal.status in refused or not (refusal.status == 401 or refusal.lacks_scopes):
            return response
        refused.add(refusal.status)
        try:
            again = await credentials.renew(refusal)
        except BaseException:
            await response.aclose()
            raise
        if not again:
            return response
        await response.aclose()
