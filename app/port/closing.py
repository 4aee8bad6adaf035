"""Closes connections so that the client can read the answer (OPS-27, OPS-28), and sends the head of an answer together
with what follows it (FACE-140).

A socket that is closed while bytes of the client are unread or still come resets the connection, and the answer may be
lost with it. So the closing side only stops writing, reads and drops what comes for a second at most, and closes then.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CLOSING_STATUSES = frozenset({401, 408, 413, 421, 431})
"""Answers after which the connection is closed: its client has no credential yet, or its body is not wanted."""

LINGER_S = 1.0
MAX_DROPPED_BYTES = 32 * 1024 * 1024
_JOINED_BYTES = 64 * 1024
"""A longer piece would cost more to copy than to write by itself."""

_CLOSE = (b"connection", b"close")
_NO_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)


class ClosingProtocol(HttpToolsProtocol):
    """Ends connections in order. ``close_in_order`` takes the place of ``transport.close()``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app: Any = closing(self.app)
        self._body_open = False
        self._linger_timer: asyncio.TimerHandle | None = None
        self._dropped_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._cycle_transport = _CycleTransport(self)

    @property
    def lingering(self) -> bool:
        """True while the answer is out and only the client's bytes are waited for."""
        return self._linger_timer is not None

    def data_received(self, data: bytes) -> None:
        if not self.lingering:
            self.read(data)
            return
        self._drop(data)

    def read(self, data: bytes) -> None:
        """Takes bytes that are part of a request."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        # Only a further request ends the wait for one: the rest of a body, or empty lines, do not.
        self._unset_keepalive_if_required()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._unset_keepalive_if_required()
        self._body_open = True
        self._dropped_bytes = 0
        super().on_headers_complete()
        self.cycle.transport = cast(Any, self._cycle_transport)
        self._cycle_transport.expect_head()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._drop(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_open = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._cycle_transport.flush()  # an answer without a body
        if self.lingering:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        # The original closes at once.
        body = msg.encode("ascii")
        self.refuse(_NO_HTTP % (len(body), body))

    def refuse(self, answer: bytes) -> None:
        """Ends the connection with *answer*, or without any words if the application's own has begun."""
        begun = self.cycle is not None and self.cycle.response_started
        if not begun or (self.cycle.response_complete and not self._body_open):
            self.transport.write(answer)
        self.close_in_order(unread=True)

    def close_in_order(self, *, unread: bool = False) -> None:
        """Closes now if the request has been read whole, otherwise after the client has had time to read the answer.

        *unread*: bytes of the client may wait or come, whatever the parser says.
        """
        transport = self.transport
        if self.lingering or transport.is_closing():
            return
        self._cycle_transport.flush()
        if not unread and not self._body_open and not self.pipeline:
            transport.close()
            return
        self._linger_timer = self.loop.call_later(LINGER_S, self._stop_lingering, transport.get_write_buffer_size())
        transport.write_eof()
        self._cycle_transport.drop_all()
        self.flow.resume_reading()

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes > MAX_DROPPED_BYTES:
            self.transport.abort()

    def _stop_lingering(self, unsent_bytes_before: int) -> None:
        # A reader that still takes the answer may have the rest of it.
        unsent_bytes = self.transport.get_write_buffer_size()
        if 0 < unsent_bytes < unsent_bytes_before:
            self._linger_timer = self.loop.call_later(LINGER_S, self._stop_lingering, unsent_bytes)
        else:
            self.transport.abort()


class _CycleTransport:
    """The transport as uvicorn's request cycles see it. They write the head of an answer by itself, and a write costs
    more than all that a short answer is made of; so the head waits for what follows it in the same turn of the loop."""

    __slots__ = ("_drops", "_head", "_head_comes", "_loop", "_transport", "close", "is_closing")

    def __init__(self, protocol: ClosingProtocol) -> None:
        self._transport = protocol.transport
        self._loop = protocol.loop
        self._head = b""
        self._head_comes = False
        self._drops = False
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.close_in_order

    def expect_head(self) -> None:
        """The next write begins an answer. If it does not, because an earlier answer goes on, it is only written
        a little later."""
        self._head_comes = True

    def write(self, data: bytes) -> None:
        if self._drops:
            return
        if self._head_comes:
            self._head_comes = False
            if self._head:
                self.flush()
            self._head = data
            self._loop.call_soon(self.flush)
        elif self._head and len(data) <= _JOINED_BYTES:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self.flush()
            self._transport.write(data)

    def flush(self) -> None:
        """Writes a head that waits."""
        if self._head:
            head, self._head = self._head, b""
            if not self._transport.is_closing():
                self._transport.write(head)

    def drop_all(self) -> None:
        """Takes the rest of an answer and sends nothing: the connection has been ended without it."""
        self._drops = True


def closing(app: ASGIApp) -> ASGIApp:
    """ASGI: answers with one of the CLOSING_STATUSES announce that the connection is closed."""

    # Both return the awaitable and await nothing themselves: a frame less for each step of a request, or of a stream.
    def announcing(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        def send_closing(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start" and message["status"] in CLOSING_STATUSES:
                message["headers"] = [*message.get("headers", ()), _CLOSE]
            return send(message)

        return app(scope, receive, send_closing)

    return announcing
