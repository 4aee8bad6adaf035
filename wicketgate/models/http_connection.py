"""One connection to an HTTP/1.1 server, for one exchange after the other: the request out, the head in, the body read
as it comes (guide "Performance": httpx's own connections cost three times all that is done with a model's token).

What the server sends is bounded: the head, and what waits to be read. A connection is good for another exchange only
after an answer that was whole, with nothing behind it.
"""

import asyncio
from typing import cast

import httptools
import httpx

MAX_HEAD_BYTES = 64 * 1024
_WAITING_BYTES = 64 * 1024
"""More than this unread, and nothing is taken from the socket until it is read."""


class HttpConnection(asyncio.Protocol):
    """Errors are those of httpx. Whoever leaves an exchange before its end closes the connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = _parser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._lost = False
        self._paused = False
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_head = False
        self._head_bytes = 0
        self._framed = False
        self._body: list[bytes] = []
        self._waiting_bytes = 0
        self._whole = False
        self._keep = False
        self._failure: httpx.TransportError | None = None

    @property
    def is_reusable(self) -> bool:
        """Whether the exchange is over and another one may follow."""
        transport = self._transport
        return (
            self._whole
            and self._keep
            and not self._lost
            and not self._paused
            and self._failure is None
            and transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() == 0
        )

    async def ask(self, request: bytes) -> None:
        """Send a whole *request*; returns when ``status`` and ``headers`` are there."""
        assert self._transport is not None
        self._begin()
        self._transport.write(request)
        while not self.has_head:
            if self._failure is not None:
                raise self._failure
            if self._lost:
                raise httpx.RemoteProtocolError("the server closed the connection without an answer")
            await self._wait()

    async def read(self) -> bytes:
        """What has come of the body, waited for; empty at its end. What came before a failure is given first."""
        while True:
            body = self._body
            if body:
                data = body[0] if len(body) == 1 else b"".join(body)
                body.clear()
                self._waiting_bytes = 0
                if self._paused:
                    self._resume()
                return data
            if self._failure is not None:
                raise self._failure
            if self._whole:
                return b""
            # As _wait does; a call more is felt at each token.
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        """At once; a read under way fails as if cut off."""
        if self._transport is not None:
            self._transport.abort()
        if not self._whole:
            self._fail(httpx.ReadError("the connection was closed"))

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, failure: httpx.TransportError) -> None:
        if self._failure is None:
            self._failure = failure
        self._keep = False
        self._wake()

    def _refuse(self, words: str) -> None:
        self._fail(httpx.RemoteProtocolError(words))
        if self._transport is not None:
            self._transport.abort()

    def _resume(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._whole:
            # Nothing was asked: what is said now must not be taken for the next answer.
            self._surplus()
            return
        self._head_bytes += len(data)  # taken back as soon as something comes of it
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse("the server left HTTP")
        except httptools.HttpParserError as error:
            self._misread(error)
        if self._head_bytes > MAX_HEAD_BYTES and not self._whole:
            self._refuse(f"the head of the server's answer is over {MAX_HEAD_BYTES} bytes")
        transport = self._transport
        if self._waiting_bytes > _WAITING_BYTES and not self._paused and transport and not transport.is_closing():
            self._paused = True
            transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._transport = None
        if self.has_head and not self._whole:
            if exc is None and not self._framed:
                self._whole = True  # an answer without a length ends where the connection does
            else:
                words = f"{type(exc).__name__}: {exc}" if exc else "the server closed it before the answer was whole"
                self._fail(httpx.ReadError(words))
        elif exc is not None and not self._whole:
            self._fail(httpx.ReadError(f"{type(exc).__name__}: {exc}"))
        self._keep = False
        self._wake()
        del self._parser  # the two hold each other

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._whole:
            self._surplus()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # trailers say nothing that is wanted
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._whole:
            return
        self.status = status
        self.has_head = True
        self._head_bytes = 0
        for name, value in self.headers:
            match name.lower():
                case b"content-length":
                    self._framed = True
                case b"transfer-encoding":
                    self._framed = True
                    if value.strip().lower() != b"chunked":
                        raise ValueError("a transfer coding that was not asked for")

    def on_body(self, body: bytes) -> None:
        if self._whole:
            return  # surplus
        self._body.append(body)
        self._waiting_bytes += len(body)
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        if self._whole:
            return  # surplus
        if self.has_head:
            self._whole = True
            self._keep = self._parser.should_keep_alive()
        else:
            self.headers.clear()  # an interim answer: the real one follows

    def _misread(self, error: httptools.HttpParserError) -> None:
        if self._whole:
            self._surplus()
        else:
            self._refuse(f"the server's answer is not HTTP: {error}")

    def _surplus(self) -> None:
        self._keep = False
        if self._transport is not None:
            self._transport.abort()


def _parser(connection: HttpConnection) -> httptools.HttpResponseParser:
    parser = httptools.HttpResponseParser(connection)
    # What servers are seen to do and nobody is deceived by.
    parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
    return parser
