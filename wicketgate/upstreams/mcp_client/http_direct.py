"""Requests of 2026-07-28 over HTTP without the SDK, which costs several times as much: one POST each, from a pool of
connections; the headers are the SDK's own (guide "Performance", "Tool path").

The caller's own task reads the answer. Leaving it closes the connection, which is how this era cancels.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

from wicketgate.errors import ProviderError
from wicketgate.net import Credentials
from wicketgate.net.sse import SseDecoder
from wicketgate.upstreams.mcp_client import json_rpc
from wicketgate.upstreams.mcp_client.call import LOG, PROGRESS, Call, tell
from wicketgate.upstreams.mcp_client.failure import NOT_VALID, Gone, Malformed, no_answer, refusal
from wicketgate.upstreams.mcp_client.safe_client import CONNECT_S

_MAX_CONNECTIONS = 256
_IDLE_S = 3.0
"""Common servers close an idle connection after five seconds; a call that meets the closing would be lost."""
_READ_BUFFER = 1024 * 1024
_MAX_REDIRECTS = 5
_MAX_REFUSAL_BYTES = 1024 * 1024
_LOST = "the connection was lost"
_NOT_REACHED = "it cannot be reached"
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

# A connection that was never made is sure not to have carried the call; of any other it is not known.
_NEVER_MADE = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class DirectHttp:
    """Implements DirectCalls. Opens nothing before the first request."""

    def __init__(
        self, url: str, headers: Mapping[str, str], credentials: Credentials | None, max_answer_bytes: int
    ) -> None:
        self._url = URL(url)
        self._headers = {**_HEADERS, **headers}
        self._credentials = credentials
        self._max_bytes = max_answer_bytes
        self._http: aiohttp.ClientSession | None = None
        self._running = 0
        self._retired = False

    async def request(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str], call: Call
    ) -> dict[str, Any]:
        body = json_rpc.encode({"jsonrpc": "2.0", "id": call.token, "method": method, "params": params})
        self._running += 1
        try:
            return await self._sent(body, headers, call)
        except _NEVER_MADE:
            raise Gone(_NOT_REACHED, carried=False) from None
        except (aiohttp.ClientError, OSError):
            raise Gone(_LOST, carried=True) from None
        finally:
            self._running -= 1
            if self._retired:
                await self.retire()

    async def retire(self) -> None:
        """No more requests; those that run are read to their end."""
        self._retired = True
        if self._running == 0 and self._http is not None:
            http, self._http = self._http, None
            await http.close()

    async def _sent(self, body: bytes, headers: Mapping[str, str], call: Call) -> dict[str, Any]:
        renewed = False
        while True:
            async with self._answer(body, headers) as response:
                if response.status != 401 or self._credentials is None or renewed:
                    return await self._read(response, call)
            # Refused unseen, so it may be sent once more.
            renewed = True
            await self._credentials.renew()

    @asynccontextmanager
    async def _answer(self, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Redirects are followed within the origin only, with the method kept, as the SDK does."""
        if self._http is None:
            self._http = _session()
        sent = {**self._headers, **headers}
        if self._credentials is not None:
            sent["Authorization"] = await self._credentials.authorization()
        for _ in range(_MAX_REDIRECTS):
            async with self._http.post(self._url, data=body, headers=sent, allow_redirects=False) as response:
                if response.status not in (307, 308) or (onward := self._onward(response)) is None:
                    yield response
                    return
            self._url = onward
        raise Malformed("redirects again and again")

    def _onward(self, response: aiohttp.ClientResponse) -> URL | None:
        """Where a redirect leads, if our headers may go there."""
        try:
            onward = self._url.join(URL(response.headers.get("Location", "")))
        except ValueError:
            return None
        upgraded = self._url.scheme == "http" and onward.scheme == "https" and onward.host == self._url.host
        default_ports = self._url.is_default_port() and onward.is_default_port()
        if onward.user is None and (onward.origin() == self._url.origin() or (upgraded and default_ports)):
            return onward.with_user(self._url.user).with_password(self._url.password)
        return None

    async def _read(self, response: aiohttp.ClientResponse, call: Call) -> dict[str, Any]:
        kind = response.content_type
        if response.status >= 300 or response.status == 202:
            raise await self._refused(response)
        if kind == "application/json":
            return await self._settled(await _body(response, self._max_bytes), call)
        if kind == "text/event-stream":
            return await self._streamed(response, call)
        raise Malformed(NOT_VALID)

    async def _streamed(self, response: aiohttp.ClientResponse, call: Call) -> dict[str, Any]:
        """What is said before the answer is passed on as it comes."""
        decoder = SseDecoder(self._max_bytes, self._max_bytes)
        try:
            async for chunk in response.content.iter_any():
                for event in decoder.feed(chunk):
                    if (result := await self._event(event.data, call)) is not None:
                        return result
        except ProviderError:
            raise Malformed(f"gave an answer of more than {self._max_bytes} bytes, which is not taken") from None
        raise Gone("it ended its stream without an answer", carried=True)

    async def _event(self, data: bytes, call: Call) -> dict[str, Any] | None:
        message = json_rpc.decode(data)
        if message is None:
            return None
        if message.method is None:
            return await self._settled(data, call, message) if message.id in (call.token, None) else None
        if message.method in (PROGRESS, LOG) and not call.silent:
            params = json_rpc.params_of(message)
            if isinstance(params, dict):
                await tell(call.caller, message.method, params)
        return None

    @staticmethod
    async def _settled(data: bytes | bytearray, call: Call, message: json_rpc.Message | None = None) -> dict[str, Any]:
        message = message or json_rpc.decode(data)
        if message is None or message.method is not None or message.id not in (call.token, None):
            raise Malformed(NOT_VALID)
        call.settle(message)
        return await call.answer()

    async def _refused(self, response: aiohttp.ClientResponse) -> Exception:
        """A server may say why in JSON-RPC at any status; else the status has to do."""
        if response.content_type == "application/json":
            message = json_rpc.decode(await _body(response, min(self._max_bytes, _MAX_REFUSAL_BYTES)))
            if message is not None and message.method is None and message.error is not json_rpc.ABSENT:
                return refusal(message.error)
        return no_answer(response.status)


async def _body(response: aiohttp.ClientResponse, max_bytes: int) -> bytearray:
    body = bytearray()
    # Chunk by chunk, for every other way of reading joins them once more.
    async for chunk, _ in response.content.iter_chunks():
        body += chunk
        if len(body) > max_bytes:
            raise Malformed(f"gave an answer of more than {max_bytes} bytes, which is not taken")
    return body


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, keepalive_timeout=_IDLE_S),
        # Each call has its own deadline; a stream may be silent as long.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        read_bufsize=_READ_BUFFER,
    )
