"""The response that carries a stream of server-sent events: one write for each piece (guide "Performance").

Between the run and the socket stands nothing: while the reader is slow the write waits, so the run does, and with it
the model. Who takes nothing at all for too long is cut below, at the connection (``edges/http_protocol.py``).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_HEARTBEAT = ServerSentEvent(comment="keepalive", sep="\n").encode()

_HEADERS = EventSourceResponse(iter(())).raw_headers

_PAUSE_EVERY = 32
"""A write to a client that has left returns at once; if the model never waits either, nothing else would run any more,
and the news that it has left would never be heard."""


class EventStream(Response):
    """What sse-starlette's response is, sent our way: that one would take four tasks for a stream, and look twice a
    second whether the server is being stopped, which the engine's drain tells each run by itself.

    *pieces* are whole encoded events. It is read to its end, also when the client has left.

    *left* is called once if the client leaves before the end; it must bring *pieces* to an end soon. *over* is called
    once, last of all.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        *,
        heartbeat_s: float,
        left: Callable[[], None],
        over: Callable[[], Awaitable[None]],
    ) -> None:
        # What else a response sets up, for a body of its own, is done in vain.
        self.status_code = 200
        self.raw_headers = list(_HEADERS)
        self.background = None
        self._heartbeat_s = heartbeat_s
        self._pieces = pieces
        self._left = left
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.create_task(self._watch(receive))
        try:
            # A task of its own, for each wake-up of a task goes through all the frames that it waits in: this one has
            # some forty below it, the framework's and the middleware's, which cost more than all that a delta needs.
            await asyncio.create_task(self._send(scope, send))
        finally:
            watching.cancel()
            await self._over()

    async def _send(self, scope: Scope, send: Send) -> None:
        heart = _Heart(send, self._heartbeat_s)
        try:
            async with aclosing(self._pieces) as pieces:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                now = asyncio.get_running_loop().time
                heart.idle_since = now()
                # Each layer of wrappers around send costs as much as encoding a delta.
                send_piece: Send = scope.get("state", {}).get("send", send)
                sent = 0
                async for piece in pieces:
                    heart.idle_since = None
                    await send_piece({"type": "http.response.body", "body": piece, "more_body": True})
                    heart.idle_since = now()
                    sent += 1
                    if sent % _PAUSE_EVERY == 0:
                        await asyncio.sleep(0)
            await heart.aclose()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await heart.aclose()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left()


class _Heart:
    """Beats while the stream waits for its next piece. One timer that looks at the clock only when it fires: a timer
    made and cancelled for every piece would cost more than the piece."""

    def __init__(self, send: Send, period_s: float) -> None:
        self._send = send
        self._period_s = period_s
        self._loop = asyncio.get_running_loop()
        self.idle_since: float | None = None
        """Since when the stream waits for its next piece; None while it does not."""
        self._beating: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(period_s, self._look)

    async def aclose(self) -> None:
        self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None

    def _look(self) -> None:
        now = self._loop.time()
        due = now + self._period_s
        if self.idle_since is not None and (self._beating is None or self._beating.done()):
            due = self.idle_since + self._period_s
            if due <= now:
                self._beating = self._loop.create_task(self._beat())
                self.idle_since = now
                due = now + self._period_s
        self._timer = self._loop.call_at(due, self._look)

    async def _beat(self) -> None:
        await self._send({"type": "http.response.body", "body": _HEARTBEAT, "more_body": True})
