"""A request of a client while it is answered, on either way: who watches it, and how its answer is written (FACE-138,
FACE-139, FACE-145).

The answer is JSON. It becomes a stream of events as soon as there is a notification, or when the call takes so long
that a proxy in between might give up a connection on which nothing comes.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from app.mcp.live_sessions import LiveSession, LiveSessions
from app.mcp.requests import SESSION_ID, Receive, RequestId, Send
from wicketgate.faces.mcp.direct import Answer, refused
from wicketgate.faces.mcp.fit import json_rpc
from wicketgate.faces.mcp.message import ReplyMessage
from wicketgate.faces.mcp.request import Exchange

PING_S = 15.0
_WATCH_AFTER_S = 0.1
"""Most calls have been answered by then, so their clients need not be watched."""
_LAST_WORDS_S = 5.0

_CANCELLED = -32800
"""The answer to a request of the handshake era that its client has cancelled."""

_JSON = (b"content-type", b"application/json")
_EVENTS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
_UNCACHED = (b"cache-control", b"no-cache, no-transform")


class HttpAnswer:
    """One answer over HTTP, in the session *live* if there is one. Implements Channel."""

    def __init__(self, send: Send, live: LiveSession | None) -> None:
        self._send = send
        self._live = live
        self._session: tuple[tuple[bytes, bytes], ...] = ()
        if live is not None:
            self.names(live.token)
        self.streams = False
        self._over = False
        self._turn: asyncio.Lock | None = None  # most answers are written at once
        self._unanswered: set[int] = set()
        self._withdrawing: set[asyncio.Task[None]] = set()

    def names(self, token: str) -> None:
        """Names the session *token* in the answer."""
        self._session = ((SESSION_ID, token.encode()),)

    def leave(self) -> None:
        """The client has left: nothing is written from now on."""
        self._over = True

    async def say(self, message: bytes) -> None:
        await self._write(_event(message))

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> ReplyMessage:
        if self._live is None:
            raise RuntimeError("a client without a session is not asked while its request runs")
        with self._live.asks() as (id, reply):
            self._unanswered.add(id)
            try:
                await self.say(json_rpc({"id": id, "method": method, **({"params": params} if params else {})}))
                answer = await reply
            except asyncio.CancelledError:
                self._withdrawing.add(asyncio.create_task(self._withdraw(id)))  # this task ends
                raise
        self._unanswered.discard(id)
        return answer

    async def _withdraw(self, id: int) -> None:
        if id in self._unanswered:
            self._unanswered.discard(id)
            params = {"requestId": id, "reason": "caller cancelled"}
            await self.say(json_rpc({"method": "notifications/cancelled", "params": params}))

    async def ping(self) -> None:
        await self._write(b": ping\r\n\r\n")

    async def open_stream(self) -> None:
        """Begins an answer that is a stream of events from the first."""
        await self._write(b"")

    async def end_stream(self) -> None:
        await self._write(b"", more=False)

    async def end(self, answer: Answer) -> None:
        # The task of a cancelled question may not have run yet.
        if self._unanswered:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    for id in tuple(self._unanswered):
                        await self._withdraw(id)
        if self.streams:
            await self._write(_event(answer.message), more=False)
            return
        if self._over:
            return
        self._over = True
        headers = [(b"content-length", b"%d" % len(answer.message))]
        if answer.message:
            headers.append(_JSON)
        if self._session:
            headers += (*self._session, _UNCACHED)
        respond = getattr(self._send, "respond", None)  # nothing has wrapped what the server gave
        if respond is not None:
            respond(answer.status, headers, answer.message)
            return
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.message})

    async def _write(self, event: bytes, *, more: bool = True) -> None:
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            if self._over:
                return
            self._over = not more
            if not self.streams:
                # Set before the first await: a writer that is cancelled there must not begin the stream twice.
                self.streams = True
                headers = [*_EVENTS, *self._session]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": event, "more_body": more})


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


async def until_left(receive: Receive, answer: HttpAnswer) -> None:
    """Returns when the client has left. Keeps its connection in use until then."""
    left = False
    while not left:
        try:
            async with asyncio.timeout(PING_S):
                left = (await receive())["type"] == "http.disconnect"
        except TimeoutError:
            await answer.ping()
    answer.leave()


class Request:
    """A request under way. Its exchange ends when the client cancels it or leaves, and with its session. Implements
    Running."""

    def __init__(self, answer: HttpAnswer, exchange: Exchange) -> None:
        self._answer = answer
        self._exchange = exchange
        self._cancelled = False
        self._watcher: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        self._cancelled = True
        self._exchange.end()

    def end(self) -> None:
        self._exchange.end("The session has ended.")

    def answer_of(self, id: RequestId | None, answer: Answer) -> Answer:
        """Returns *answer* unless the client has cancelled the request."""
        return refused(id, _CANCELLED, "Request cancelled") if self._cancelled else answer

    @contextmanager
    def under_way(
        self, id: RequestId | None, sessions: LiveSessions, live: LiveSession | None, receive: Receive
    ) -> Iterator[None]:
        """The request, in the session *live* of *sessions* if it has one, runs within the block."""
        if live is not None:
            live.begin(id, self)
        timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._watch, sessions, live, receive)
        try:
            yield
        finally:
            timer.cancel()
            if live is not None:
                live.finish(id, self)
            if self._watcher is not None:
                self._watcher.cancel()

    def _watch(self, sessions: LiveSessions, live: LiveSession | None, receive: Receive) -> None:
        self._watcher = asyncio.create_task(self._watched(sessions, live, receive))

    async def _watched(self, sessions: LiveSessions, live: LiveSession | None, receive: Receive) -> None:
        # Messages of other processes reach the request from now on.
        with nullcontext() if live is None else sessions.calling(live):
            await until_left(receive, self._answer)
        self._exchange.end()
