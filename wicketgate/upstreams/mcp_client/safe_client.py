"""The HTTP client that the SDK's transports are given: one that no failure of a server can end, and no answer of it can
swell (guide "Upstreams").

A refused POST would end the task that owns the client; here it is an answer that says so.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from typing import Literal

import httpx2
from mcp.types import CONNECTION_CLOSED

from wicketgate.net import Credentials
from wicketgate.upstreams.mcp_client import json_rpc
from wicketgate.upstreams.mcp_client.failure import Malformed, no_answer
from wicketgate.upstreams.mcp_client.pace import Pace

CONNECT_S = 10.0
NOTIFY_S = 10.0
"""How long a notification may take: the SDK sends nothing else before it is answered."""

FAILED = "upstream failed"
"""The message of the JSON-RPC error that stands for an answer which never came, or was not taken; ``data`` has the
Failure."""

Failure = Literal["not carried", "lost", "session gone", "too large", "away"]
"""``session gone``: the server was restarted and does not know us; it has not looked at the request. ``away``: a
stream finds nobody, or a server that does not know us."""

_SESSION = "mcp-session-id"
_STREAMS_AT_ONCE = 20
_STREAMS_A_SECOND = 5.0
_MAX_REFUSAL_BYTES = 64 * 1024
_STREAM = "text/event-stream"
_AGAIN = "wicketgate.again"
"""Whether a request is sent once more if it is answered with 401."""
_OF_THE_WIRE = ("content-encoding", "content-length", "transfer-encoding")


async def safe_client(
    headers: Mapping[str, str],
    credentials: Credentials | None,
    max_bytes: int,
    failed: Callable[[Failure], None],
    refused: Callable[[Malformed], None] = lambda _: None,
) -> httpx2.AsyncClient:
    """*failed* hears of each POST that was refused or got no usable answer, and of streams, for which nobody waits;
    *refused* of why a POST got something else than MCP, in the context of its sender."""
    # Reading has no deadline here: each call has its own, and a listening stream may be silent for ever.
    return httpx2.AsyncClient(
        transport=_SafeTransport(await asyncio.to_thread(_trusted), max_bytes, failed, refused),
        # Compression would let a small answer grow without bound.
        headers={"accept-encoding": "identity", **headers},
        auth=None if credentials is None else CredentialAuth(credentials),
        timeout=httpx2.Timeout(CONNECT_S, read=None),
        trust_env=False,
    )


class CredentialAuth(httpx2.Auth):
    """Credentials as the SDK's client takes them; a 401 was not carried out, so it is sent once more."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        request.headers["Authorization"] = await self._credentials.authorization()
        request.extensions[_AGAIN] = True
        response = yield request
        if response.status_code == 401:
            request.extensions[_AGAIN] = False
            await self._credentials.renew()
            request.headers["Authorization"] = await self._credentials.authorization()
            yield request


class _SafeTransport(httpx2.AsyncBaseTransport):
    def __init__(
        self,
        trusted: ssl.SSLContext,
        max_bytes: int,
        failed: Callable[[Failure], None],
        refused: Callable[[Malformed], None],
    ) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=trusted)
        self._max_bytes = max_bytes
        self._failed = failed
        self._refused = refused
        self._streams = Pace(_STREAMS_A_SECOND, _STREAMS_AT_ONCE, asyncio.get_running_loop().time)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        match request.method:
            case "POST":
                return await self._post(request)
            case "GET":
                return await self._stream(request)
        return await self._inner.handle_async_request(request)

    async def _post(self, request: httpx2.Request) -> httpx2.Response:
        if _is_notification(request):
            request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": NOTIFY_S}
        try:
            response = await self._answer(request)
        except httpx2.TransportError as error:
            if _distrusts(error):
                self._refused(Malformed("has a certificate that is not trusted here"))
            # Only a connection that was never made is sure not to have carried the call.
            never_made = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            return self._failure(request, "not carried" if never_made else "lost")
        if response is None:
            return self._failure(request, "too large")
        if _knows_no_session(request, response):
            return self._failure(request, "session gone")
        if response.status_code == 401 and request.extensions.get(_AGAIN):
            return response
        if response.status_code >= 400:
            self._failed("lost")
        if response.status_code >= 300 and not _is_mcp_error(response):
            self._refused(no_answer(response.status_code))
        return response

    async def _stream(self, request: httpx2.Request) -> httpx2.Response:
        # A server may say that its stream is to be opened again at once, and end each; the SDK would obey.
        await asyncio.sleep(self._streams.take())
        try:
            response = await self._answer(request)
        except httpx2.ConnectError:
            if _SESSION in request.headers:
                self._failed("away")
            raise
        if response is None:
            raise httpx2.ReadError("an answer that is too large", request=request)
        if _knows_no_session(request, response):
            self._failed("away")
        return response

    async def _answer(self, request: httpx2.Request) -> httpx2.Response | None:
        """Read here unless it is a stream, since the SDK reads without a bound; None if it is too large."""
        response = await self._inner.handle_async_request(request)
        if _is_stream(response):
            return response
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._max_bytes:
                    return None
        except httpx2.DecodingError:
            return None
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _OF_THE_WIRE]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    def _failure(self, request: httpx2.Request, failure: Failure) -> httpx2.Response:
        self._failed(failure)
        error = {"code": CONNECTION_CLOSED, "message": FAILED, "data": failure}
        return httpx2.Response(502, request=request, json={"jsonrpc": "2.0", "id": None, "error": error})

    async def aclose(self) -> None:
        await self._inner.aclose()


def _knows_no_session(request: httpx2.Request, response: httpx2.Response) -> bool:
    """MCP says 404. Many servers say 400, and some 401, to a session that they do not know, and write so."""
    if _SESSION not in request.headers:
        return False
    in_words = response.status_code in (400, 401) and b"session" in response.content[:_MAX_REFUSAL_BYTES].lower()
    return response.status_code == 404 or in_words


def _is_stream(response: httpx2.Response) -> bool:
    return response.status_code < 300 and response.headers.get("content-type", "").lower().startswith(_STREAM)


def _distrusts(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_mcp_error(response: httpx2.Response) -> bool:
    message = json_rpc.decode(response.content)
    return message is not None and message.method is None and message.error is not json_rpc.ABSENT


def _is_notification(request: httpx2.Request) -> bool:
    try:
        message = json.loads(request.content) if len(request.content) < 4_096 else None
    except (ValueError, httpx2.RequestNotRead):
        return False
    return isinstance(message, dict) and "id" not in message


@cache
def _trusted() -> ssl.SSLContext:
    """Reading the certificates takes 30 ms and more, and keeping them a megabyte: all connections share one."""
    return httpx2.create_ssl_context()
