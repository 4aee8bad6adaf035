"""The body of an answer as it comes: undone content coding, bounds, and one read at a time.

A server is asked for no content coding; gzip and deflate are undone all the same, in steps, so that a small answer
cannot swell in memory.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Protocol

import httpx

from wicketgate.net.connection import HttpConnection
from wicketgate.net.errors import AnswerAbandoned, AnswerTooLarge, AnswerUndecodable

MAX_BODY_BYTES = 64 * 1024 * 1024
"""The bound of what iterating gives, unless the request says otherwise."""
_STEP_BYTES = 64 * 1024
"""At most so much is decoded at a time."""

Read = Callable[[], Coroutine[Any, Any, bytes]]


class Body(httpx.AsyncByteStream):
    """Read it by iterating or, without a generator around each piece, by ``read``: it gives what one read from the
    socket produced, and ``b""`` at the end. Only iterating is bounded, by *max_bytes*, and timed, by *read_s*;
    before ``read``, call ``watch`` with a deadline in the loop's time."""

    def __init__(
        self,
        connection: HttpConnection,
        leave: Callable[[], None],
        decode: Read | None,
        max_bytes: float,
        read_s: float | None,
    ) -> None:
        self.read: Read = decode or connection.read
        self.watch: Callable[[float], None] = connection.watch
        self._leave = leave
        self._max_bytes = max_bytes
        self._read_s = read_s
        self._time = asyncio.get_running_loop().time

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        while data := await self._read_in_time():
            left -= len(data)
            if left < 0:
                raise AnswerTooLarge(f"the body of the server's answer is over {self._max_bytes} bytes")
            yield data

    async def read_bounded(self, max_bytes: int) -> tuple[bytes, bool]:
        """At most *max_bytes* of the rest, and whether there was more."""
        data = bytearray()
        while piece := await self._read_in_time():
            data += piece
            if len(data) > max_bytes:
                return bytes(data[:max_bytes]), True
        return bytes(data), False

    async def aclose(self) -> None:
        """Keep the connection if the answer has come to its end; close it otherwise."""
        self.read, self.watch = _closed, _ignored
        self._leave()

    def _read_in_time(self) -> Coroutine[Any, Any, bytes]:
        if self._read_s is not None:
            self.watch(self._time() + self._read_s)
        return self.read()


def body_of(response: httpx.Response) -> Body:
    """The Body behind *response*, also where httpx's client has wrapped it."""
    body = response.extensions["body"]
    assert isinstance(body, Body)
    return body


async def read_bounded(response: httpx.Response, max_bytes: int) -> tuple[bytes, bool]:
    """At most *max_bytes* of the body, and whether there was more. Closes the response."""
    try:
        return await body_of(response).read_bounded(max_bytes)
    finally:
        await response.aclose()


def decoder_of(codings: Sequence[bytes], read: Read) -> Read | None:
    """A read that undoes the content codings; None if there is nothing to undo.

    Raises AnswerUndecodable for one that is not known here.
    """
    codings = [coding.strip().lower() for coding in codings]
    codings = [coding for coding in codings if coding not in (b"", b"identity")]
    if not codings:
        return None
    if len(codings) > 1:
        raise AnswerUndecodable("the server used several content codings, none of which was asked for")
    match codings[0]:
        case b"gzip" | b"x-gzip":
            return _Inflating(read, zlib.MAX_WBITS | 16).read
        case b"deflate":
            return _Inflating(read, zlib.MAX_WBITS).read
    raise AnswerUndecodable("the server used a content coding that was not asked for")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


class _Inflating:
    """Undoes gzip or deflate, at most ``_STEP_BYTES`` at a time."""

    def __init__(self, read: Read, window_bits: int) -> None:
        self._read = read
        self._bits = window_bits
        self._inflate: _Decompressor = zlib.decompressobj(window_bits)
        self._pending = b""
        self._begun = False

    async def read(self) -> bytes:
        while True:
            if not self._pending:
                self._pending = await self._read()
                if not self._pending:
                    if self._begun and not self._inflate.eof:
                        raise AnswerUndecodable("the compressed body ended before it was whole")
                    return b""
            if data := self._step():
                return data

    def _step(self) -> bytes:
        try:
            if self._inflate.eof:
                # gzip may consist of several members; what follows deflate is an error.
                self._inflate = zlib.decompressobj(self._bits)
            data = self._inflate.decompress(self._pending, _STEP_BYTES)
        except zlib.error:
            if self._begun or self._bits != zlib.MAX_WBITS:
                raise AnswerUndecodable("the body does not hold to its content coding") from None
            # Some servers send deflate without the header of zlib.
            self._bits = -zlib.MAX_WBITS
            self._inflate = zlib.decompressobj(self._bits)
            return self._step()
        self._begun = True
        self._pending = self._inflate.unconsumed_tail or self._inflate.unused_data
        return data


async def _closed() -> bytes:
    raise AnswerAbandoned("the response was closed")


def _ignored(_: float) -> None:
    """A deadline for a body that is closed."""
