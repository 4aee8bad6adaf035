"""Content codings undone: in steps, so that a small answer cannot swell in memory (UP-26)."""

import asyncio
import zlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from wicketgate.net.outgoing import AnswerUndecodable

_STEP_BYTES = 64 * 1024
"""At most so much is decoded at a time."""
_FED_BYTES = 16 * 1024
"""At most so much is given to zlib at a time, because it copies what it leaves."""
_STEPS_AT_ONCE = 16
"""After so many, other tasks have their turn."""
_MAX_MEMBERS = 8_192
"""Of gzip in one body. A member of twenty bytes costs as much as one that gives 64 KiB."""
_MAX_BARREN_BYTES = 1024 * 1024
"""Of a compressed body that give nothing: no compressor writes so many."""

Read = Callable[[], Coroutine[Any, Any, bytes]]


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


class _Inflating:
    """Undoes gzip or deflate, at most ``_STEP_BYTES`` at a time.

    The loop is never held for long, and a body that costs much and gives little is refused: a caller may have set no
    bound of its own.
    """

    def __init__(self, read: Read, window_bits: int) -> None:
        self._read = read
        self._bits = window_bits
        self._inflate = zlib.decompressobj(window_bits)
        self._pending = memoryview(b"")
        self._begun = False
        self._steps = 0
        self._members = 1
        self._barren_bytes = 0

    async def read(self) -> bytes:
        while True:
            self._steps += 1
            if self._steps % _STEPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not self._pending:
                self._pending = memoryview(await self._read())
                if not self._pending:
                    if self._begun and not self._inflate.eof:
                        raise AnswerUndecodable("the compressed body ended before it was whole")
                    return b""
            if data := self._step():
                return data

    def _step(self) -> bytes:
        piece = self._pending[:_FED_BYTES]
        try:
            if self._inflate.eof:
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise AnswerUndecodable("the compressed body has too many members")
                # gzip may consist of several members; what follows deflate is an error.
                self._inflate = zlib.decompressobj(self._bits)
            data = self._inflate.decompress(piece, _STEP_BYTES)
        except zlib.error:
            if self._begun or self._bits != zlib.MAX_WBITS:
                raise AnswerUndecodable("the body does not hold to its content coding") from None
            # Some servers send deflate without the header of zlib.
            self._bits = -zlib.MAX_WBITS
            self._inflate = zlib.decompressobj(self._bits)
            return self._step()
        self._begun = True
        used = len(piece) - len(self._inflate.unconsumed_tail or self._inflate.unused_data)
        self._pending = self._pending[used:]
        self._barren_bytes = 0 if data else self._barren_bytes + used
        if self._barren_bytes > _MAX_BARREN_BYTES:
            raise AnswerUndecodable("the compressed body goes on without content")
        return data
