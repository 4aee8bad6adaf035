"""MCP over HTTP as far as the SDK carries it: streamable HTTP, and the older SSE transport.

Calls share the transport with the SDK's session (guide "Upstreams"), whose streams do not say when they end, nor which
call a message belongs to; both are found out here.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Self

import anyio
import mcp.client.sse
import mcp.types as t
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, PARSE_ERROR

from wicketgate.net import Credentials
from wicketgate.upstreams.mcp_client.call import Call
from wicketgate.upstreams.mcp_client.connection import Connection, Lost, from_session
from wicketgate.upstreams.mcp_client.exchange import HEAVY, UNASKED_A_SECOND, UNASKED_AT_ONCE, Exchange
from wicketgate.upstreams.mcp_client.failure import NOT_VALID, TOO_LARGE, Gone, Malformed
from wicketgate.upstreams.mcp_client.http_direct import DirectHttp
from wicketgate.upstreams.mcp_client.json_lines import MAX_LINE_BYTES
from wicketgate.upstreams.mcp_client.pace import Pace
from wicketgate.upstreams.mcp_client.safe_client import FAILED, NOTIFY_S, Failure, safe_client

Incoming = SessionMessage | Exception

_LOST = "the connection was lost"
_NOT_REACHED = "it cannot be reached"
_RESTARTED = "it went away, or has been restarted"
_ENDED_STREAMS = ("SSE stream ended", "SSE stream failed")
_UNREADABLE = ("Failed to parse",)

_related: ContextVar[Call | None] = ContextVar("related", default=None)
"""The call whose POST a message came on: the SDK's streams keep the context of what they carry."""

# Without it, an answer of more than 1 MiB ends the session; there is no parameter for it in 2.3.0.
mcp.client.sse.sse_within_origin = partial(  # type: ignore[attr-defined]
    mcp.client.sse.sse_within_origin,  # type: ignore[attr-defined]
    max_event_size=MAX_LINE_BYTES,
)


@asynccontextmanager
async def http_transport(
    name: str,
    url: str,
    headers: Mapping[str, str],
    lost: Lost,
    *,
    credentials: Credentials | None = None,
    max_answer_bytes: int = MAX_LINE_BYTES,
) -> AsyncGenerator[Connection, None]:
    """Talk to the streamable-HTTP endpoint at *url*, with *headers* on every request.

    *lost* is called when the stream of a session of the handshake era cannot be opened again. Else there is no standing
    connection whose end would show; a call that finds nobody tells.
    """

    def failed(failure: Failure) -> None:
        if failure == "away":  # any other is told to the call that meets it
            asyncio.get_running_loop().call_soon(lost, _RESTARTED)

    refusals = [""]

    def refused(error: Malformed) -> None:
        refusals[0] = f"it {error}"
        if (call := _related.get()) is not None:
            call.fail(error)

    direct = DirectHttp(url, headers, credentials, max_answer_bytes)
    try:
        async with (
            await safe_client(headers, credentials, max_answer_bytes, failed, refused) as http,
            streamable_http_client(url, http_client=http, max_sse_event_size=max_answer_bytes) as (read, write),
            _shared(name, read, write, lambda _: None) as connection,
        ):
            yield Connection(connection.streams, connection.exchange, direct, refusal=lambda: refusals[0])
    finally:
        await direct.retire()


@asynccontextmanager
async def sse_transport(
    name: str, url: str, headers: Mapping[str, str], lost: Lost, *, credentials: Credentials | None = None
) -> AsyncGenerator[Connection, None]:
    """Talk to a server of the HTTP+SSE transport of 2024-11-05: its stream is at *url*."""

    def failed(_: Failure) -> None:
        # The answers come on another stream, so their calls would wait.
        asyncio.get_running_loop().call_soon(lost, _NOT_REACHED)

    http = await safe_client(headers, credentials, MAX_LINE_BYTES, failed)
    async with (
        sse_client(url, httpx_client_factory=lambda *_, **__: http) as (read, write),
        _shared(name, read, write, lost) as connection,
    ):
        yield connection


@asynccontextmanager
async def _shared(
    name: str, read: ReadStream[Incoming], write: WriteStream[SessionMessage], lost: Lost
) -> AsyncGenerator[Connection, None]:
    """The SDK's streams, with an exchange that takes its own messages off them."""
    sender = _Sender(write)
    exchange = Exchange(name, sender)

    def ended() -> None:
        exchange.close(_LOST)
        lost(_LOST)

    try:
        yield Connection((_Reads(read, exchange, ended), write), exchange)
    finally:
        exchange.close(_LOST)
        sender.close()


class _Sender:
    """Calls on their way into the SDK's transport, which adds the headers of the handshake era by itself."""

    def __init__(self, write: WriteStream[SessionMessage]) -> None:
        self._write = write
        self._posts: set[asyncio.Task[None]] = set()

    async def send(self, message: Mapping[str, Any], call: Call) -> None:
        params = dict(message["params"])
        request = t.JSONRPCRequest(jsonrpc="2.0", id=message["id"], method=message["method"], params=params)
        before = _related.set(call)
        call.carried = True
        try:
            await self._write.send(SessionMessage(request))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            call.carried = False
            raise Gone(_LOST, carried=False) from None
        finally:
            _related.reset(before)

    def post(self, message: Mapping[str, Any]) -> None:
        sending: t.JSONRPCMessage
        if "method" in message:
            sending = t.JSONRPCNotification(jsonrpc="2.0", method=message["method"], params=message["params"])
        else:
            sending = t.JSONRPCResponse(jsonrpc="2.0", id=message["id"], result=message["result"])
        task = asyncio.create_task(self._post(SessionMessage(sending)))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    def close(self) -> None:
        for task in self._posts:
            task.cancel()

    async def _post(self, message: SessionMessage) -> None:
        try:
            async with asyncio.timeout(NOTIFY_S):
                await self._write.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
            pass


class _Reads:
    """The read stream of the SDK's session, without what is for an exchange."""

    def __init__(self, inner: ReadStream[Incoming], exchange: Exchange, ended: Callable[[], None]) -> None:
        self._inner = inner
        self._exchange = exchange
        self._ended: Callable[[], None] | None = ended
        self._unasked = Pace(UNASKED_A_SECOND, UNASKED_AT_ONCE, asyncio.get_running_loop().time)

    @property
    def last_context(self) -> object:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Incoming:
        while True:
            try:
                incoming = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._end()
                raise
            if isinstance(incoming, Exception):
                return incoming
            context = self.last_context
            related = None if context is None else context.get(_related)  # type: ignore[attr-defined]
            taken = self._take(incoming, related)
            if isinstance(incoming.message, t.JSONRPCNotification | t.JSONRPCRequest) and (
                pause_s := self._unasked.take(1 if taken else HEAVY)
            ):
                await asyncio.sleep(pause_s)
            if not taken:
                return incoming

    def _take(self, incoming: SessionMessage, related: Call | None) -> bool:
        message = incoming.message
        if (
            isinstance(message, t.JSONRPCError)
            and related is not None
            and message.id == related.token
            and (error := _transport_error(message.error)) is not None
        ):
            related.fail(error)
            return True
        return self._exchange.take(from_session(message), related)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def close(self) -> None:
        self._ended = None  # closed by us: not a loss
        self._inner.close()  # type: ignore[attr-defined]  # every stream of the SDK has it; its Protocol does not

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._inner.__aexit__(*error)

    def _end(self) -> None:
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()


def _transport_error(error: t.ErrorData) -> Exception | None:
    """What the SDK's transport says in the server's place, made into what it means."""
    if error.code == CONNECTION_CLOSED and error.message == FAILED:
        match error.data:
            case "not carried":
                return Gone(_NOT_REACHED, carried=False)
            case "session gone":
                return Gone(_RESTARTED, carried=False)
            case "too large":
                return Malformed(TOO_LARGE)
            case "lost":
                return Gone(_LOST, carried=True)
    if error.code == CONNECTION_CLOSED and error.message.startswith(_ENDED_STREAMS):
        return Gone("it ended its stream without an answer", carried=True)
    if error.code == PARSE_ERROR and error.message.startswith(_UNREADABLE):
        return Malformed(NOT_VALID)
    return None
