"""Requests that a client sends without waiting for answers, read as far as they are served (OPS-50).

uvicorn parses all that has come, and reads on with each answer. A client that sends faster than it is answered fills
the memory with requests, a hundred bytes of memory for each byte sent, and needs no key for that. So bytes behind an
unanswered request wait unparsed, and above a bound unread.
"""

from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.port.closing import ClosingProtocol

PIECE_BYTES = 1024
"""The parser cannot stop within what it was given. So few requests fit into a piece that they need no further bound."""

MAX_HELD_BYTES = 65_536
"""Below this, reading goes on, so that a client which leaves is noticed."""


class _Flow(FlowControl):
    """uvicorn's flow control of one connection; does not read on while *full*."""

    full = False

    def resume_reading(self) -> None:
        if not self.full:
            super().resume_reading()


class PipeliningProtocol(ClosingProtocol):
    """Gives ``read`` the next request when the one before it is answered, and others their turn between two."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held = bytearray()
        self._turn_asked = False
        # Bytes of the body of the request being read, of declared length, that are still to come.
        self._body_left = 0
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.clear()
        # uvicorn tells the newest request only, which may not be the one that runs.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self.lingering:
            super().data_received(data)
            return
        if not (self._held or self._turn_asked) and len(data) <= PIECE_BYTES and not self._unanswered():
            self.read(data)  # as nearly all requests come: one after the other
            return
        self._held += data
        if not self._turn_asked:
            self._read_held()
        self._bound_held()

    def on_headers_complete(self) -> None:
        self._body_left = 0
        if not self.parser.should_upgrade():
            for name, value in self.headers:
                if name == b"content-length":
                    self._body_left = int(value)
                    break
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_left -= len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._held:
            self._ask_for_turn()

    def close_in_order(self, *, unread: bool = False) -> None:
        unread = unread or bool(self._held)
        self._held.clear()
        if isinstance(self.flow, _Flow):
            self.flow.full = False
        super().close_in_order(unread=unread)

    def _unanswered(self) -> bool:
        """Returns True while the newest request has come whole and its answer has not been given."""
        return self.cycle is not None and not self._body_open and not self.cycle.response_complete

    def _read_held(self) -> None:
        while self._held and not self._unanswered():
            before = self.cycle
            size = max(PIECE_BYTES, self._body_left)
            piece = bytes(self._held[:size])
            del self._held[:size]
            self.read(piece)
            if self.cycle is not before and self._held and not self._unanswered() and not self._body_open:
                self._ask_for_turn()
                return

    def _ask_for_turn(self) -> None:
        if not self._turn_asked:
            self._turn_asked = True
            self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_asked = False
        if self.parser is None or self.transport.is_closing() or self.lingering:
            self._held.clear()
            return
        self._read_held()
        self._bound_held()

    def _bound_held(self) -> None:
        flow = self.flow
        assert isinstance(flow, _Flow)
        if len(self._held) > MAX_HELD_BYTES:
            flow.full = True
            flow.pause_reading()
        elif flow.full and not self._held:
            flow.full = False
            flow.resume_reading()
