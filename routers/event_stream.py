"""The response that carries a stream of server-sent events: one write for each piece.

Between the run and the socket stands no queue: while the reader is slow the write waits, so does the run, and so does
the model. A reader that takes nothing at all for too long is cut below, at the connection (``app/port/protocol.py``).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.types import Receive, Scope, Send

# Importing sse-starlette changes the process: half a second after SIGTERM it cuts every stream, the MCP SDK's too,
# whatever time to drain is configured. Streams of this service are ended by the service, so that is switched off.
AppStatus.enable_automatic_graceful_drain = False

_HEARTBEAT = ServerSentEvent(comment="keepalive", sep="\n").encode()

WRITE_AT_ONCE = "wicketgate.write_at_once"
"""The ASGI extension of a server that writes a piece of a body at once: a function of its bytes, which returns False,
and writes nothing, where ``send`` might have to wait or has not begun. It passes by all middleware, so only a server
that knows what there is may offer it (``app/port/protocol.py``)."""

_PAUSE_EVERY = 32
_PAUSE_BYTES = 16_384
"""The pieces, or the bytes in them, after which others may run. A write to a client that has left returns at once; if
the model never waits either, no other task would run any more, and the news that it has left would never arrive."""


class LastPiece(bytes):
    """A piece behind which nothing comes: it goes out with the end of the body."""


class EventStream(EventSourceResponse):
    """sse-starlette's response with its own way of sending, which takes two tasks for a stream instead of four.

    *pieces* are complete encoded events. They are read to the end, also after the client has left.

    *on_leave* is called once if the client leaves before the end; it must end *pieces* soon. *on_end* is called
    once, last of all. *at_once* may send pieces of its own while the next of *pieces* is waited for.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        *,
        heartbeat_s: float,
        on_leave: Callable[[], None],
        on_end: Callable[[], Awaitable[None]],
        at_once: "PiecesAtOnce | None" = None,
    ) -> None:
        self.__dict__.update(_made(heartbeat_s))
        self.raw_headers = [*self.raw_headers]  # middleware may write into it
        self._pieces = pieces
        self._on_leave = on_leave
        self._on_end = on_end
        self._at_once = at_once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        # It has no work that could take its turn, so it goes past the loop's factory, and its memory (``app/pace.py``).
        watching = asyncio.Task(self._watch(receive), loop=loop)
        # A task of its own: each wake-up of a task goes through all the frames that it waits in, and this one has
        # some forty below it, the framework's and the middleware's.
        sending = loop.create_task(self._send(send))
        try:
            await sending
        finally:
            watching.cancel()
            await self._on_end()
            await asyncio.sleep(0)  # enough for a server whose receive ends at once
            if not watching.done():
                await asyncio.wait([watching])

    async def _send(self, send: Send) -> None:
        heart = _Heart(send, self.ping_interval, self._at_once)
        try:
            last = b""
            async with aclosing(self._pieces) as pieces:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                now = asyncio.get_running_loop().time
                heart.idle_since = now()
                sent = sent_bytes = 0
                async for piece in pieces:
                    if type(piece) is LastPiece:
                        last = piece
                        continue
                    heart.idle_since = None
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    heart.idle_since = now()
                    sent += 1
                    sent_bytes += len(piece)
                    if sent == _PAUSE_EVERY or sent_bytes > _PAUSE_BYTES:
                        sent = sent_bytes = 0
                        await asyncio.sleep(0)
            await heart.aclose()
            await send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            await heart.aclose()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._on_leave()


@cache
def _made(heartbeat_s: float) -> Mapping[str, Any]:
    """Returns the attributes that all responses share. Making them for each would cost a thirtieth of a request."""
    return vars(EventSourceResponse(iter(()), ping=heartbeat_s, sep="\n"))


class PiecesAtOnce:
    """Sends pieces of a stream without waiting, on a way that the server offers beside ``send``. Most do not."""

    def __init__(self, scope: Scope) -> None:
        extensions: Mapping[str, Any] = scope.get("extensions") or {}
        self._write: Callable[[bytes], bool] | None = extensions.get(WRITE_AT_ONCE)
        self._now = asyncio.get_running_loop().time
        self.sent_at = 0.0
        """The time of the last one."""

    def send(self, piece: bytes) -> bool:
        """Returns False, and nothing is sent, where it would have to wait."""
        if self._write is None or not self._write(piece):
            return False
        self.sent_at = self._now()
        return True


class _Heart:
    """Sends a comment line whenever the stream has waited a period for its next piece.

    It has one timer, which looks at the clock when it fires: a timer made and cancelled for every piece would cost more
    than the piece.
    """

    def __init__(self, send: Send, period_s: float, at_once: PiecesAtOnce | None) -> None:
        self._send = send
        self._at_once = at_once
        self._period_s = period_s
        self._loop = asyncio.get_running_loop()
        self.idle_since: float | None = None
        """The time at which the stream began to wait for its next piece; None while it sends one."""
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
            idle_since = self.idle_since if self._at_once is None else max(self.idle_since, self._at_once.sent_at)
            due = idle_since + self._period_s
            if due <= now:
                self._beating = self._loop.create_task(self._beat())
                self.idle_since = now
                due = now + self._period_s
        self._timer = self._loop.call_at(due, self._look)

    async def _beat(self) -> None:
        await self._send({"type": "http.response.body", "body": _HEARTBEAT, "more_body": True})
