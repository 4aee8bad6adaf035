"""What the HTTP server lacks for a port that strangers can reach: bounded heads, and upgrades that are passed over.

- A request's head may have 64 KiB and ten seconds; nothing of it is checked before it is whole, not even the key.
- An offer to upgrade (``Upgrade: h2c``, as Java's client makes with every first request) that is not taken must not
  cost the request its body (RFC 9110 §7.8); the parser stops at one, so the body is read past it.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536
HEAD_DEADLINE_S = 10.0

_TOO_LARGE_BODY = b'{"code":"head_too_large","message":"The request head is larger than 64 KiB."}'
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY)
)


class GuardedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, for ``Config(http=...)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._offered_body_left: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._offered_body_left is not None:
            data = self._read_offered_body(data)
        if data:
            self._feed(data)

    def on_message_begin(self) -> None:
        if self._head_timer is None:  # a further request on the connection
            self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        # At an offer the parser says this with the body still to come.
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False

    def _feed(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._pass_over_offer(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")
        if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
            self._end_head()
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _pass_over_offer(self, rest: bytes) -> None:
        headers = dict(self.headers)
        if b"transfer-encoding" in headers:
            self.send_400_response("A chunked body cannot come with an offer to upgrade.")
            return
        self._offered_body_left = int(headers.get(b"content-length", b"0"))
        if rest := self._read_offered_body(rest):
            self._feed(rest)

    def _read_offered_body(self, data: bytes) -> bytes:
        """Take what belongs to the body; the rest, if any, is the next request, for a fresh parser."""
        left = self._offered_body_left or 0
        body, rest = data[:left], data[left:]
        self._offered_body_left = left - len(body)
        if body and not self.cycle.response_complete:
            self.cycle.body += body
            self.cycle.message_event.set()
        if self._offered_body_left == 0:
            self._offered_body_left = None
            self.parser = httptools.HttpRequestParser(self)
            self.cycle.more_body = False
            self.cycle.message_event.set()
        return rest

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_DEADLINE_S, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
