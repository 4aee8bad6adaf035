"""Request bodies of JSON: judged while they arrive (OPS-39, OPS-40), or read ahead and given again.

The time that a body takes is that of its values far more than that of its bytes, and a parser does not let go before it
has read them all. So values are counted first, piece by piece, and a body with too many of them is never parsed. A body
that cannot be an object is refused at its first byte.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]

_BLANK = b" \t\r\n"
_SMALL_BYTES = 65_536
_LITERALS = b'"-0123456789tfn'


class BodyRefused(Exception):
    """A body that is refused before it is whole. The text is for the client."""


class NotAnObject(BodyRefused):
    """*likeness* is a short body with the same fault."""

    def __init__(self, likeness: bytes) -> None:
        super().__init__("Request body must be a JSON object")
        self.likeness = likeness


class TooManyValues(BodyRefused):
    def __init__(self, most: int) -> None:
        super().__init__(
            f"The request body has more than {most} values (members of objects, elements of lists): send less at once"
        )


class ValueCount:
    """Counts the commas and opening brackets outside strings, which is nearly the number of values; feed it a JSON text
    in pieces, cut anywhere."""

    def __init__(self) -> None:
        self.values = 0
        self._in_string = False
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        # A backslash at the end belongs to the byte that comes next.
        backslashes = len(data) - len(data.rstrip(b"\\"))
        cut = len(data) - backslashes % 2
        data, self._rest = data[:cut], data[cut:]
        # Without escaped backslashes and quotes, each quote begins or ends a string.
        parts = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")


async def read_short(receive: Receive, most_bytes: int) -> bytes | None:
    """The whole body of a request; None if it is longer than *most_bytes*, or its client has left."""
    body = bytearray()
    while len(body) <= most_bytes:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body) if len(body) <= most_bytes else None
    return None


def given_again(body: bytes, receive: Receive) -> Receive:
    """The *receive* of a request whose *body* has been read."""
    first: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> AsgiMessage:
        return first.pop() if first else await receive()

    return receive_again


def declared_bytes(scope: MutableMapping[str, Any]) -> int | None:
    """The length that the head of a request declares; None if it declares none."""
    for key, value in scope["headers"]:
        if key == b"content-length":
            return int(value) if value.isdigit() else None
    return None


async def read_object(receive: Receive, max_values: int) -> bytes:
    """The whole body of a request, which may be a JSON object: it is not parsed here.

    Raises NotAnObject, TooManyValues, and ClientDisconnect.
    """
    return b"".join([piece async for piece in _pieces(receive, max_values)])


async def _pieces(receive: Receive, max_values: int) -> AsyncIterator[bytes]:
    count, uncounted, size = ValueCount(), b"", 0
    started = False
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        # A small body that came at once is left to the parser, which may find better words.
        if not started and (more or len(piece) > _SMALL_BYTES) and (first := piece.lstrip(_BLANK)[:1]):
            _check_start(first)
            started = True
        # A value takes a byte at least.
        size += len(piece)
        uncounted += piece
        if size > max_values:
            count.feed(uncounted)
            uncounted = b""
            if count.values > max_values:
                raise TooManyValues(max_values)
        yield piece
        if not more:
            return


def _check_start(first: bytes) -> None:
    """Bytes that may begin another encoding are left to the parser."""
    if first == b"[":
        raise NotAnObject(b"[]")
    if first in _LITERALS:
        raise NotAnObject(b"0")
