"""One request on a connection and the answer to it, as the application sees them (ASGI).

The head of an answer goes out with what follows it in the same turn of the loop (FACE-140): a write costs more than all
that a short answer is made of.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Scope

if TYPE_CHECKING:
    from app.port.protocol import GuardedHttpProtocol

Headers = Iterable[tuple[bytes, bytes]]

CLOSING_STATUSES = frozenset({401, 408, 413, 421, 431})
"""Answers after which the connection is closed: its client has no credential yet, or its body is not wanted."""

MAX_UNREAD_BODY_BYTES = 65_536
"""Above this the connection is not read until the application takes the body."""

_JOINED_BYTES = 64 * 1024
"""A longer piece would cost more to copy than to write by itself."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_NO_NAME = re.compile(b'[\x00-\x20\x7f()<>@,;:\\[\\]={}\\\\"]')
_NO_VALUE = re.compile(b"[\x00-\x08\x0a-\x1f\x7f]")
_FAILED = b"Internal Server Error"

log = logging.getLogger("wicketgate.http")


class RequestCycle:
    """*keeps_alive*: the connection may serve a further request. It knows no scope, which knows it."""

    def __init__(self, protocol: "GuardedHttpProtocol", scope: Scope, *, keeps_alive: bool, continues: bool) -> None:
        self._protocol = protocol
        self._is_head = scope["method"] == "HEAD"
        self._older = scope["http_version"] == "1.0"  # knows no chunks: a stream ends with the connection
        self.keeps_alive = keeps_alive
        self.expects_continue = continues
        # The request. *gone*: its client has left, or was refused.
        self.body = b""
        self.more_body = True
        self.gone = False
        self._end_taken = False
        self._news: asyncio.Event | None = None
        # The answer. *_left*: bytes of the declared length that are to come.
        self.begun = False
        self.answered = False
        self._head = b""
        self._chunked = False
        self._left: int | None = 0

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Has *app* answer. Run it in a task of its own, which it removes from the server's tasks at its end."""
        try:
            await app(scope, self.receive, self)
            if not self.answered and not self.gone:
                log.error("the application ended before its answer was complete")
        except Exception:
            log.exception("the application failed")
        finally:
            # Not in a callback of the task: that would cost each request another turn of the loop.
            self._protocol.server_state.tasks.discard(asyncio.current_task(self._protocol.loop))
            if not self.answered and not self.gone:
                if self.begun:
                    self._protocol.transport.close()
                else:
                    self.keeps_alive = False
                    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21")]
                    self.respond(500, headers, _FAILED)

    async def receive(self) -> Message:
        protocol = self._protocol
        if self.expects_continue and not self.gone and not protocol.transport.is_closing():
            self.expects_continue = False
            protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.gone or self.answered or self.body or not (self.more_body or self._end_taken)):
            protocol.resume_reading()
            if self._news is None:
                self._news = asyncio.Event()
            self._news.clear()
            await self._news.wait()
        if self.gone or self.answered:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        self._end_taken = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def tell(self) -> None:
        """Wakes the application, which may wait for more of the request."""
        if self._news is not None:
            self._news.set()

    def leave(self) -> None:
        """Nobody takes the answer any more."""
        self.gone = True
        self.tell()

    async def __call__(self, message: Message) -> None:
        """ASGI ``send``."""
        if self._protocol.write_paused and not self.gone:
            await self._protocol.drain()
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message.get("headers", ()))
            self._protocol.loop.call_soon(self.flush)
        elif message["type"] == "http.response.body":
            self._go_on(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"an answer has no message {message['type']!r}")

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Gives the whole answer at once. *headers* have its length."""
        self._begin(status, headers)
        self._go_on(body, more=False)

    def write_at_once(self, piece: bytes) -> bool:
        """Writes a *piece* of a stream past the application's ``send``, which is a coroutine behind a wrapper of each
        middleware. Returns False, and has done nothing, if only ``send`` can do it."""
        if not (self.begun and self._chunked and piece) or self.answered or self.gone or self._protocol.write_paused:
            return False
        self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def flush(self) -> None:
        """Writes a head that waits."""
        if self._head:
            head, self._head = self._head, b""
            if not self.gone and not self._protocol.transport.is_closing():
                self._protocol.transport.write(head)

    def _begin(self, status: int, headers: Headers) -> None:
        if self.begun:
            raise RuntimeError("an answer begins once")
        all_headers = [*self._protocol.server_state.default_headers, *headers]
        if _NO_NAME.search(b"".join([name for name, _ in all_headers])) or _NO_VALUE.search(
            b"".join([value for _, value in all_headers])
        ):
            raise RuntimeError("a header of the answer has characters that none may have")
        self.begun = True
        if self.expects_continue and self.more_body:
            self.keeps_alive = False  # without 100 Continue the client may send its next request in place of the body
        self.expects_continue = False
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        length: int | None = None
        for name, value in all_headers:
            name = name.lower()
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and b"close" in value.lower():
                self.keeps_alive = False
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if status in CLOSING_STATUSES:
            self.keeps_alive = False
        self._left = length
        if length is None and (self._is_head or status in (204, 304)):
            self._left = 0
        elif length is None and self._older:
            self.keeps_alive = False
        elif length is None:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _go_on(self, body: bytes, *, more: bool) -> None:
        if not self.begun or self.answered:
            raise RuntimeError("the body of an answer is behind its head, and ends once")
        if self._is_head:
            body = b""
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of an answer has not its declared length")
        self._write(body)
        if not more:
            self.answered = True
            self.tell()
            self._protocol.answer_given(self)

    def _write(self, data: bytes) -> None:
        transport = self._protocol.transport
        if self._head and len(data) <= _JOINED_BYTES:
            head, self._head = self._head, b""
            data = head + data
        else:
            self.flush()
        if data and not transport.is_closing():
            transport.write(data)
