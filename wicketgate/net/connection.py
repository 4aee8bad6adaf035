"""One connection to an HTTP/1.1 server, for one exchange after the other: the request out, the head in, the body read
as it comes.

A protocol of our own over httptools: reading a model's stream through httpx's own connections costs three times all
that is done with a token. Everything that the server sends is bounded: the head, and what waits to be read. A
connection serves another exchange only after an answer that was whole, with nothing behind it.
"""

import asyncio
import select
from collections.abc import Callable
from math import inf
from typing import cast

import httptools
import httpx

from wicketgate.net.outgoing import (
    AnswerAbandoned,
    AnswerBroken,
    AnswerTimedOut,
    AnswerTooLarge,
    CannotConnect,
    NoAnswer,
    NotHttp,
)

MAX_HEAD_BYTES = 64 * 1024
"""Of a head, interim answers included, and of chunk sizes and trailers without any content between them."""
_TLS_ALERT = b"\x15\x03"
_WAITING_BYTES = 64 * 1024
"""With more than this unread, reading from the socket pauses."""
_DROPPED_BYTES = 64 * 1024
"""Of the rest of an answer that nobody wants."""


class HttpConnection(asyncio.Protocol):
    """The caller that leaves an exchange before its end closes the connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = _parser(self)
        self._poll: select.poll | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], bool] | None = None
        self._lost = False
        self._paused = False
        # One timer for all reads: making and cancelling one for each costs a fifth of reading a stream.
        self._read_by = inf
        self._due = inf
        self._timer: asyncio.TimerHandle | None = None
        self._begin(is_head=False)

    def _begin(self, *, is_head: bool) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_head = False
        self.keep_s = inf
        """Seconds for which the server says it keeps the connection after this exchange."""
        self.codings: list[bytes] = []
        """The content codings of the body, in the order in which they were applied."""
        self._is_head = is_head
        self._head_bytes = 0
        self._framed = False
        self.declared_bytes: int | None = None
        """The length of the body as it comes; None if the server does not say it in advance."""
        self._body: list[bytes] = []
        self._waiting_bytes = 0
        self._whole = False
        self._keep = False
        self._patience_s = inf
        self._unsent_bytes = 0
        self._failure: httpx.TransportError | None = None
        self._ended: Callable[[], None] | None = None
        self._droppable_bytes = 0

    @property
    def is_reusable(self) -> bool:
        """True if the exchange is over and another one may follow."""
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

    @property
    def has_news(self) -> bool:
        """True if the socket holds bytes, or an end, that the loop has not handed over yet."""
        if self._poll is None:
            assert self._transport is not None
            self._poll = select.poll()
            self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(self._poll.poll(0))

    async def ask(self, request: bytes, read_s: float | None = None, *, is_head: bool = False) -> None:
        """Send a whole *request*; returns when ``status`` and ``headers`` are there.

        The answer has to begin within *read_s*; the time counts again while the server takes in more of the request.
        Raises a NeverSent only if nothing was written.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise CannotConnect("the server closed the connection before the request was written")
        # The request goes out.
        self._begin(is_head=is_head)
        self._take = None
        transport.write(request)
        # Time for the answer to begin.
        self._read_by = inf
        if read_s is not None:
            self._patience_s = read_s
            self._unsent_bytes = transport.get_write_buffer_size()
            self.watch(self._loop.time() + read_s)
        # The head of the answer comes in.
        while not self.has_head:
            if self._failure is not None:
                raise self._failure
            if self._lost:
                if self._head_bytes:
                    raise AnswerBroken("the server closed the connection in the head of its answer")
                raise NoAnswer("the server closed the connection without an answer")
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def read(self) -> bytes:
        """Wait for the next bytes of the body; empty at its end. Bytes that came before a failure are given first."""
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
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def watch(self, read_by: float) -> None:
        """Set until when, in the loop's time, the read that begins now has to give something. Call it before each read;
        between reads no time runs."""
        self._read_by = read_by
        if read_by < self._due:
            self._arm(read_by)

    def pass_on(self, take: Callable[[bytes], bool] | None) -> None:
        """Offer each piece that comes alone while a read waits to *take*, where the socket was read. If it returns True
        the piece is its own, and the read waits on, with its deadline as it is; else the read gets it. *take* must not
        wait, raise or close the connection. None ends it."""
        self._take = take

    def finish(self, within_s: float, ended: Callable[[], None]) -> None:
        """Drop the rest of the answer. *ended* is called once, when it is over: whole, broken off, not over within
        *within_s*, or more than is waited for."""
        if self._whole or self._paused or self._failure is not None:
            ended()
            return
        self._body.clear()
        self._waiting_bytes = 0
        self._droppable_bytes = _DROPPED_BYTES
        self._ended = ended
        self.watch(self._loop.time() + within_s)

    def close(self) -> None:
        """Close at once; a read under way fails as if cut off."""
        if self._transport is not None:
            self._transport.abort()
        if not self._whole:
            self._fail(AnswerAbandoned("the connection was closed"))

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """The timer fired: deadlines may have moved in the meantime, and only a read under way, or a rest that is
        dropped, can be late."""
        self._timer = None
        self._due = inf
        if (self._waiter is None and self._ended is None) or self._lost or self._read_by == inf:
            return
        if self._loop.time() < self._read_by:
            self._arm(self._read_by)
            return
        # A large request that still goes out is no silence.
        transport = self._transport
        unsent = transport.get_write_buffer_size() if transport is not None else 0
        if not self.has_head and unsent < self._unsent_bytes:
            self._unsent_bytes = unsent
            self.watch(self._loop.time() + self._patience_s)
            return
        self._fail(AnswerTimedOut("the server sent nothing in time"))
        if transport is not None:
            transport.abort()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._ended is not None and (self._whole or self._failure is not None or self._lost):
            ended, self._ended = self._ended, None
            ended()

    def _fail(self, failure: httpx.TransportError) -> None:
        if self._failure is None:
            self._failure = failure
        self._keep = False
        self._wake()

    def _refuse(self, failure: httpx.TransportError) -> None:
        self._fail(failure)
        if self._transport is not None:
            self._transport.abort()

    def _resume(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._whole or self._parser is None:
            # Nothing was asked: this must not be taken for the next answer.
            self._surplus()
            return
        self._head_bytes += len(data)  # taken back as soon as some content comes of it
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(AnswerBroken("the server switched to another protocol"))
        except httptools.HttpParserError as error:
            self._misread(error, data)
        if self._head_bytes > MAX_HEAD_BYTES and not self._whole:
            self._refuse(AnswerTooLarge(f"the head of the server's answer is over {MAX_HEAD_BYTES} bytes"))
        transport = self._transport
        if self._waiting_bytes > _WAITING_BYTES and not self._paused and transport and not transport.is_closing():
            self._paused = True
            transport.pause_reading()
        # Waking the task that reads, and walking its frames, costs more than all that is done with a token.
        body, waiter, take = self._body, self._waiter, self._take
        if (
            take is not None
            and waiter is not None
            and len(body) == 1
            # Only the read itself reads on.
            and not (self._whole or self._paused or self._failure is not None or waiter.done())
            and take(body[0])
        ):
            body.clear()
            self._waiting_bytes = 0
            return
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._transport = None
        self._take = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.has_head and not self._whole:
            if exc is None and not self._framed:
                self._whole = True  # an answer without a length ends where the connection does
            else:
                words = f"{type(exc).__name__}: {exc}" if exc else "the server closed it before the answer was whole"
                self._fail(AnswerBroken(words))
        elif exc is not None and not self._whole:
            self._fail(NoAnswer(f"{type(exc).__name__}: {exc}"))
        self._keep = False
        self._wake()
        self._parser = None  # the two hold each other

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._whole:
            self._surplus()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # trailers are dropped
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200 or self._whole:
            return
        self.status = status
        self.has_head = True
        self._head_bytes = 0
        for name, value in self.headers:
            match name.lower():
                case b"content-length":
                    self._framed, self.declared_bytes = True, int(value)
                case b"transfer-encoding":
                    self._framed = True
                    if value.strip().lower() != b"chunked":
                        raise ValueError("a transfer coding that was not asked for")
                case b"content-encoding":
                    self.codings += value.split(b",")
                case b"keep-alive":
                    self.keep_s = _promised_s(value)
        if self._is_head:
            # The parser would wait for the body that the length announces, so the connection ends here.
            self._whole = True

    def on_body(self, body: bytes) -> None:
        if self._whole:
            return  # surplus
        self._head_bytes = 0
        if self._ended is not None:
            self._droppable_bytes -= len(body)
            if self._droppable_bytes < 0:
                self._refuse(AnswerAbandoned("the rest of the answer went on"))
            return
        self._body.append(body)
        self._waiting_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._whole or self._parser is None:
            return  # surplus
        if self.has_head:
            self._whole = True
            self._keep = self._parser.should_keep_alive()
        else:
            self.headers.clear()  # an interim answer: the real one follows

    def _misread(self, error: httptools.HttpParserError, data: bytes) -> None:
        if self._whole:
            self._surplus()
        elif not self.has_head and self._head_bytes == len(data):
            self._refuse(NotHttp(f"the server's answer is not HTTP: {error}", speaks_tls=data.startswith(_TLS_ALERT)))
        else:
            self._refuse(AnswerBroken(f"the server's answer is not HTTP: {error}"))

    def _surplus(self) -> None:
        self._keep = False
        if self._transport is not None:
            self._transport.abort()


def _parser(connection: HttpConnection) -> httptools.HttpResponseParser:
    parser = httptools.HttpResponseParser(connection)
    # Common servers do this, and it deceives no one.
    parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
    return parser


def _promised_s(keep_alive: bytes) -> float:
    """The ``timeout`` of a Keep-Alive header, in seconds."""
    for part in keep_alive.split(b","):
        name, _, value = part.strip().partition(b"=")
        if name.lower() == b"timeout" and value.isdigit() and len(value) < 9:
            return float(value)
    return inf
