"""Request bodies of JSON: judged while they arrive (OPS-40), or read ahead and given again.

The time that a body takes is that of its values far more than that of its bytes, and a parser does not let go before it
has read them all. So values are counted first, piece by piece, and a body with too many of them is never parsed.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]

MAX_VALUES = 50_000
"""Values in the JSON of one body. One parse holds the event loop for all of them: some ten milliseconds."""


class TooManyValues(Exception):
    """A body that is refused before it is whole. The text is for the client."""

    def __init__(self) -> None:
        super().__init__(
            f"The request body has more than {MAX_VALUES} values (members of objects, elements of lists): "
            "send less at once"
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


async def read_counted(receive: Receive) -> bytes:
    """Returns the whole body of a request. Its values are counted, not parsed. Raises TooManyValues and
    ClientDisconnect."""
    count, uncounted, size, pieces = ValueCount(), b"", 0, list[bytes]()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        pieces.append(piece)
        # A value takes a byte at least.
        size += len(piece)
        uncounted += piece
        if size > MAX_VALUES:
            count.feed(uncounted)
            uncounted = b""
            if count.values > MAX_VALUES:
                raise TooManyValues
        if not message.get("more_body"):
            return b"".join(pieces)
