"""The HTTP client that the SDK's transports are given: one that no failure of a server can end (guide "Upstreams").

A refused POST would end the task that owns the client; here it is an answer that says so.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping

import httpx2
from mcp.types import CONNECTION_CLOSED

from app.edges.credentials import Credentials

CONNECT_S = 10.0
NOTIFY_S = 10.0
"""How long a notification may take: the SDK sends nothing else before it is answered."""

UNREACHABLE = "upstream unreachable"
"""The message of the JSON-RPC error that stands for a POST which never got an answer."""


def safe_client(
    headers: Mapping[str, str], credentials: Credentials | None, refused: Callable[[], None]
) -> httpx2.AsyncClient:
    # Reading has no deadline here: each call has its own, and a listening stream may be silent for ever.
    return httpx2.AsyncClient(
        transport=_SafeTransport(refused),
        headers=dict(headers),
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
        response = yield request
        if response.status_code == 401:
            await self._credentials.renew()
            request.headers["Authorization"] = await self._credentials.authorization()
            yield request


class _SafeTransport(httpx2.AsyncBaseTransport):
    """A POST that finds nobody becomes an answer that says so, instead of ending the task that owns the client."""

    def __init__(self, refused: Callable[[], None]) -> None:
        """*refused* is called when a POST failed; where answers come on another stream, its call would wait."""
        self._inner = httpx2.AsyncHTTPTransport()
        self._refused = refused

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return await self._inner.handle_async_request(request)
        if _is_notification(request):
            request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": NOTIFY_S}
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            self._refused()
            # Only a connection that was never made is sure not to have carried the call.
            carried = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            failure = {"code": CONNECTION_CLOSED, "message": UNREACHABLE, "data": {"carried": carried}}
            return httpx2.Response(502, request=request, json={"jsonrpc": "2.0", "id": None, "error": failure})
        if response.status_code >= 400 and response.status_code != 401:
            self._refused()
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _is_notification(request: httpx2.Request) -> bool:
    try:
        message = json.loads(request.content) if len(request.content) < 4_096 else None
    except (ValueError, httpx2.RequestNotRead):
        return False
    return isinstance(message, dict) and "id" not in message
