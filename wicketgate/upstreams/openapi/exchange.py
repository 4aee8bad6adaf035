"""One HTTP request and its whole answer, bounded, for servers that are not MCP (DESIGN §3 "Libraries").

httpx over aiohttp without httpx's client: a gateway keeps no cookies, since callers would share them, follows no
redirect to another origin, and takes no proxy from the environment.
"""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urljoin

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport
from yarl import URL

from wicketgate.net.tls import trusted
from wicketgate.upstreams.openapi.answers import Answer
from wicketgate.upstreams.openapi.bodies import base_type
from wicketgate.upstreams.openapi.outputs import STREAMS
from wicketgate.upstreams.openapi.servers import origin

_CONNECT_S = 10.0
_MAX_CONNECTIONS = 100
_IDLE_S = 30.0
_MAX_HOPS = 3
_DEFAULT_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "wicketgate"}
_REPEATED_AS_IT_IS = (307, 308)
_REDIRECTS = (301, 302, 303, *_REPEATED_AS_IT_IS)

# The transport maps most of aiohttp's errors to those of httpx, and lets the rest through; OSError has TimeoutError.
_BROKEN = (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError)
_NEVER_LEFT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


class NeverSent(Exception):
    """No connection came about, so nothing of the request was carried."""


class ConnectionBroken(Exception):
    """The connection was lost before the answer was whole; the request may have been carried out."""


class HttpExchange:
    """A pool of connections, opened when first needed. Deadlines are the caller's: cancelling ends an exchange."""

    def __init__(self) -> None:
        self._transport: _Verbatim | None = None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, max_bytes: int
    ) -> Answer:
        """The answer, its body cut after *max_bytes*; that of a stream is not read. *url* is sent as it is written.

        A redirect within the origin is followed three times; any other is the answer. Raises NeverSent or
        ConnectionBroken.
        """
        for _ in range(_MAX_HOPS):
            answer = await self._once(method, url, headers, body, max_bytes)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not location or not _is_near(url, location):
                break
            url = urljoin(url, location)
            if answer.status not in _REPEATED_AS_IT_IS and method not in ("GET", "HEAD"):
                method, body = "GET", None
                headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        return answer

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> Answer:
        if self._transport is None:
            self._transport = _Verbatim()
        try:
            # Compression would let a small answer grow without bound; who sends it all the same is decoded.
            all_headers = _DEFAULT_HEADERS | {name.lower(): value for name, value in headers.items()}
            timeouts = {"connect": _CONNECT_S, "pool": None, "read": None}
            request = httpx.Request(
                method, url, headers=all_headers, content=body, extensions={"timeout": timeouts, "url": url}
            )
            response = await self._transport.handle_async_request(request)
            try:
                data, cut = await _read(response, max_bytes)
            finally:
                await response.aclose()
        except _BROKEN as error:
            cause = error if isinstance(error, aiohttp.ClientError) else error.__cause__
            if isinstance(cause, _NEVER_LEFT) or isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
                raise NeverSent(type(cause).__name__) from None
            raise ConnectionBroken(type(cause or error).__name__) from None
        return Answer(
            response.status_code, {name.lower(): value for name, value in response.headers.items()}, data, cut
        )


async def _read(response: httpx.Response, max_bytes: int) -> tuple[bytes, bool]:
    if base_type(response.headers.get("content-type", "")) in STREAMS:
        return b"", True  # it need not end, and nobody here can use it
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > max_bytes:
            return bytes(data[:max_bytes]), True
    return bytes(data), False


def _is_near(url: str, location: str) -> bool:
    try:
        return origin(urljoin(url, location)) == origin(url)
    except ValueError:
        return False


class _Verbatim(AiohttpTransport):
    """Sends a URL as it is written. The transport gives aiohttp a string, which it decodes and encodes again:
    ``%2E%2E`` would become a way up, and a comma inside a value one between two."""

    def __init__(self) -> None:
        super().__init__(verify=trusted(), trust_env=False)
        self._session: _VerbatimSession | None = None

    def get_client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, keepalive_timeout=_IDLE_S, ssl=trusted())
            inner = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
            # aiohttp repeats GET, PUT and DELETE by itself when a kept connection breaks; what may have been carried
            # is not ours to repeat. There is no parameter for it.
            inner._retry_connection = False
            self._session = _VerbatimSession(inner)
        # All that the transport uses of a session is `request`.
        return cast(aiohttp.ClientSession, self._session)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.inner.close()


class _VerbatimSession:
    def __init__(self, inner: aiohttp.ClientSession) -> None:
        self.inner = inner

    def request(self, *, url: str, **options: Any) -> Any:
        return self.inner.request(url=URL(url, encoded=True), **options)
