"""Requests that are answered past the SDK's server (FACE-135 to FACE-139): within the same session, exchange and key as
on the other way.

The answer is JSON. It becomes a stream of events as soon as there is a notification, or when the call takes so long
that a proxy in between might give up a connection on which nothing comes.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager

from app.mcp_calls import AsgiScope, Receive, Send
from app.mcp_live_session import LiveSession
from app.mcp_live_sessions import LiveSessions
from app.mcp_sessions import SESSION_ID
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.direct import Answer, DirectDoor, refused
from wicketgate.faces.mcp.direct_caller import OpenQuestion
from wicketgate.faces.mcp.direct_requests import DirectRequest, Head, taken
from wicketgate.faces.mcp.exchange import Exchange

PING_S = 15.0
_WATCH_AFTER_S = 0.1
"""Most calls have been answered by then, or by twice that, and need nobody to notice that their client leaves."""

_CANCELLED = -32800
"""The SDK's answer to a request of the handshake era that its client has cancelled."""

_JSON = (b"content-type", b"application/json")
_EVENTS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
_UNCACHED = (b"cache-control", b"no-cache, no-transform")


class DirectWay:
    """*sessions* are those of the face behind *door*."""

    def __init__(self, door: DirectDoor, sessions: LiveSessions) -> None:
        self._door = door
        self._sessions = sessions
        self._watches = _Watches()

    async def serve(
        self, head: Head, body: bytes, scope: AsgiScope, receive: Receive, send: Send, exchange: Exchange
    ) -> bool:
        """Answers a POST, or returns false and has done nothing. Raises SessionsFull and SessionsAway before anything
        is answered."""
        identity: Identity = scope["state"]["identity"]
        live = None if head.session is None else await self._sessions.find(head.session, identity)
        if head.session is not None and live is None:
            return False
        asked = taken(head, body, None if live is None else live.kept, _Http(head.more, scope))
        if asked is None or not self._door.takes(asked):
            return False
        if live is not None:
            # On the other way it has begun here: a key that ends is told in the answer (FACE-40).
            scope["state"]["key_use"].answering = True
        if live is None:
            await self._answer(asked, None, receive, send, exchange)
        else:
            with self._sessions.used(live, identity):
                await self._answer(asked, live, receive, send, exchange)
        return True

    async def _answer(
        self, asked: DirectRequest, live: LiveSession | None, receive: Receive, send: Send, exchange: Exchange
    ) -> None:
        answer = _HttpAnswer(send, live)
        watch = _Watch(receive, answer, exchange)
        self._watches.begin(watch)
        try:
            if live is None:
                outcome = await self._door.answer(asked, answer)
            else:
                running = _Running(exchange)
                with live.runs(asked.id, running):
                    outcome = await self._door.answer(asked, answer)
                if running.cancelled:
                    outcome = refused(asked, _CANCELLED, "Request cancelled")
        finally:
            self._watches.end(watch)
        await answer.end(outcome)


class _Http:
    """Implements HttpRequest."""

    def __init__(self, headers: Mapping[str, str], scope: AsgiScope) -> None:
        self.headers = headers
        self.scope = scope


class _Running:
    """Implements Running for a request that ends with its exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self.cancelled = False
        self._exchange = exchange

    def cancel(self) -> None:
        self.cancelled = True
        self._exchange.end()

    def end(self) -> None:
        self._exchange.end("The session has ended.")


class _HttpAnswer:
    """One answer over HTTP, in the session *live* if there is one. Implements Channel."""

    def __init__(self, send: Send, live: LiveSession | None) -> None:
        self._send = send
        self._live = live
        self._session = () if live is None else ((SESSION_ID, live.id.encode("latin-1")),)
        self._streams = False
        self._over = False
        self._turn: asyncio.Lock | None = None  # most answers are written at once

    def leave(self) -> None:
        """The client has left: nothing is written from now on."""
        self._over = True

    def asking(self, question: OpenQuestion) -> AbstractContextManager[int]:
        if self._live is None:
            raise RuntimeError("a client without a session is not asked while its request runs")
        return self._live.asks(question)

    async def say(self, message: bytes) -> None:
        await self._write(b"event: message\r\ndata: " + message + b"\r\n\r\n")

    async def ping(self) -> None:
        await self._write(b": ping\r\n\r\n")

    async def end(self, answer: Answer) -> None:
        if self._streams:
            await self._write(b"event: message\r\ndata: " + answer.message + b"\r\n\r\n", more=False)
            return
        if self._over:
            return
        self._over = True
        headers = [_JSON, (b"content-length", b"%d" % len(answer.message))]
        if self._session:
            headers += (*self._session, _UNCACHED)
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.message})

    async def _write(self, event: bytes, *, more: bool = True) -> None:
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            if self._over:
                return
            self._over = not more
            if not self._streams:
                # At once: whoever is cancelled meanwhile must not begin it again.
                self._streams = True
                headers = [*_EVENTS, *self._session]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": event, "more_body": more})


class _Watches:
    """Begins to watch the requests that are not answered soon. One timer looks after all of them, since few are left
    when it is due."""

    def __init__(self) -> None:
        self._new: set[_Watch] = set()
        self._due: set[_Watch] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, watch: "_Watch") -> None:
        self._new.add(watch)
        if self._timer is None:
            self._look_again()

    def end(self, watch: "_Watch") -> None:
        self._new.discard(watch)
        self._due.discard(watch)
        watch.stop()

    def _look_again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._look)

    def _look(self) -> None:
        self._timer = None
        due, self._due, self._new = self._due, self._new, set()
        for watch in due:
            watch.begin()
        if self._due:
            self._look_again()


class _Watch:
    """Ends the exchange of a request when its client leaves, and keeps the connection of one that stays in use."""

    def __init__(self, receive: Receive, answer: _HttpAnswer, exchange: Exchange) -> None:
        self._receive = receive
        self._answer = answer
        self._exchange = exchange
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        left = False
        while not left:
            try:
                async with asyncio.timeout(PING_S):
                    left = (await self._receive())["type"] == "http.disconnect"
            except TimeoutError:
                await self._answer.ping()
        self._answer.leave()
        self._exchange.end()
