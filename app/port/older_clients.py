"""Serves clients that speak HTTP as it was, or offer to speak a later one.

- A client of HTTP/1.0 knows no chunks (RFC 9112 §6.1): a stream to it ends with the connection.
- An offer to upgrade (``Upgrade: h2c``, as Java's client makes with every first request) that is not taken must not
  cost the request its body (RFC 9110 §7.8); the parser stops at one, so the body is read past it.

Both reach into uvicorn's protocol: ``cycle``, ``parser`` and ``_unset_keepalive_if_required``.
"""

import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class _ToTheEnd(int):
    """A length that is not known: whatever was written, the body may go on, and may end."""

    def __sub__(self, written: int) -> "_ToTheEnd":
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class OlderClientsProtocol(HttpToolsProtocol):
    """uvicorn's protocol, without its own upgrades."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Bytes of a body that came with an offer and are still to come.
        self._offered_body_left: int | None = None

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._offered_body_left is not None:
            data = self._read_offered_body(data)
        if data:
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Gives the parser *data*, which is not the body of an offer."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._pass_over_offer(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            # As the server has it for an answer whose length its headers tell; the connection is closed behind it.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _ToTheEnd(sys.maxsize)

    def on_message_complete(self) -> None:
        # At an offer the parser says this with the body still to come.
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False

    def _pass_over_offer(self, rest: bytes) -> None:
        headers = dict(self.headers)
        if b"transfer-encoding" in headers:
            self.send_400_response("A chunked body cannot come with an offer to upgrade.")
            return
        self._offered_body_left = int(headers.get(b"content-length", b"0"))
        if rest := self._read_offered_body(rest):
            self.feed(rest)

    def _read_offered_body(self, data: bytes) -> bytes:
        """Takes what belongs to the body; the rest, if any, is the next request, for a fresh parser."""
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
