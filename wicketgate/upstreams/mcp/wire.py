"""JSON-RPC messages as bytes: decoded once, encoded once, and cut into lines for stdio.

Nothing of a message's shape is taken for granted. Bytes that are no message give None; a message that one bad byte or
half a character would spoil is mended (UP-9 to UP-11).
"""

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
LARGE_BYTES = 4 * 1024 * 1024
"""A message of more is taken apart by its members, and not mended (UP-64)."""

_SMALL_BYTES = 64 * 1024
_MANY_VALUES = 10_000
_SAMPLE = 64
_MAX_DEPTH = 4
SHOWN = 512

Raw = msgspec.Raw
ABSENT = msgspec.UNSET

DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that decoding may raise."""


class Message(msgspec.Struct):
    """One message. With a *method* it is a request (if it has an *id*) or a notification, otherwise an answer.

    *params*, *result* and *error* of a heavy message are still encoded (``msgspec.Raw``), an *error* only if it is
    heavy itself.
    """

    id: int | str | None = None
    method: str | None = None
    params: Any = None
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


class _Heavy(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _BareError(msgspec.Struct):
    code: int
    message: str


_ID = rb'"id"\s*:\s*"([\w-]+)"'
_JSONRPC = rb'"jsonrpc"\s*:\s*"2\.0"'
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?[\s\[]*\{\s*")
_ID_FIRST = re.compile(rb'%b(?:%b\s*,\s*)?%b(?!\s*,\s*"method")' % (_OBJECT.pattern, _JSONRPC, _ID))
_ID_LAST = re.compile(rb"%b\s*(?:,\s*%b\s*)?[}\]\s]*\Z" % (_ID, _JSONRPC))

_message = msgspec.json.Decoder(Message)
_heavy = msgspec.json.Decoder(_Heavy)
_bare_error = msgspec.json.Decoder(_BareError)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def decode(data: bytes | bytearray) -> Message | None:
    """None for bytes that are not one JSON-RPC message."""
    try:
        if is_heavy(data):
            heavy = _heavy.decode(data)
            error = heavy.error
            if isinstance(error, msgspec.Raw) and not is_heavy(memoryview(error)):
                error = whole(error)
            return Message(heavy.id, heavy.method, heavy.params, heavy.result, error)
        return _message.decode(data)
    except DAMAGED:
        mended = _mended(data)
        if mended is None:
            return None
        try:
            return _message.decode(mended)
        except DAMAGED:
            return None


def answered_id(head: bytes, tail: bytes) -> str:
    """The id that a broken or dropped answer shows, in the text of its first or last bytes; empty if it shows none.

    The id must be a member of the message itself: servers also log the messages that they receive.
    """
    if (found := _ID_FIRST.match(head)) is None and _OBJECT.match(head) and b'"method"' not in head:
        found = _ID_LAST.search(tail)
    return found[1].decode() if found is not None else ""


encode: Callable[[Any], bytes] = _encoder.encode


def is_heavy(data: bytes | bytearray | memoryview) -> bool:
    """True if decoding takes more than some two milliseconds: many values take long, a long text does not."""
    if len(data) <= _SMALL_BYTES:
        return False
    return len(data) > LARGE_BYTES or bytes(data[::_SAMPLE]).count(b",") * _SAMPLE > _MANY_VALUES


def in_parts(raw: msgspec.Raw, depth: int = 0) -> Any:
    """A heavy value, decoded member by member. Run it in a thread: other threads run between the members.

    Raises the exceptions in DAMAGED.
    """
    data = memoryview(raw)
    if depth < _MAX_DEPTH and is_heavy(data):
        match bytes(data[:1]):
            case b"{":
                return {key: in_parts(member, depth + 1) for key, member in _object.decode(data).items()}
            case b"[":
                return [in_parts(member, depth + 1) for member in _array.decode(data)]
    return _any.decode(data)


def whole(value: Any) -> Any:
    """*value*, decoded if it is still encoded, mended if it must be. Raises the exceptions in DAMAGED."""
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return in_parts(value)
    except DAMAGED:
        mended = _mended(bytes(value))
        if mended is None:
            raise
        return _any.decode(mended)


def params_of(message: Message) -> Any:
    """None for heavy parameters: what a server says unasked is read on the event loop, so it must be light (UP-64)."""
    return None if isinstance(message.params, msgspec.Raw) else message.params


def error_of(message: Message) -> Any:
    """The error, a heavy one without its data; None if that cannot be read."""
    if not isinstance(message.error, msgspec.Raw):
        return message.error
    try:
        bare = _bare_error.decode(message.error)
    except DAMAGED:
        return None
    return {"code": bare.code, "message": bare.message}


def _mended(data: bytes | bytearray) -> bytes | None:
    """A JSON object with a mark in the place of bytes that are not UTF-8 and of halves of surrogate pairs (servers cut
    text amid them); None for anything but a JSON object."""
    if len(data) > LARGE_BYTES or data.lstrip()[:1] != b"{":
        return None
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


class LineReader:
    """Cuts a stream into lines: incremental, in linear time, holding one bounded line at most.

    A line of more than *max_bytes* is dropped: *too_long* gets its first and last bytes, which may hold an id.
    """

    def __init__(self, too_long: Callable[[bytes, bytes], None], max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._too_long = too_long
        self._max_bytes = max_bytes
        self._open = bytearray()
        self._head: bytes | None = None
        self._tail = b""

    @property
    def open_bytes(self) -> int:
        """The size of the line that is not complete yet; 1 of one that is dropped."""
        return len(self._open) + (self._head is not None)

    def drop(self) -> bytes:
        """Drops the line that is not complete yet, its end too. Returns its first bytes."""
        head, self._open, self._head = bytes(self._open[:SHOWN]), bytearray(), b""
        return head

    def feed(self, data: bytes) -> list[bytes | bytearray]:
        """The lines that *data* completed, in order, without their ends; blank ones are left out."""
        if b"\n" not in data:
            self._keep(data)
            return []
        lines: list[bytes | bytearray] = [*data.split(b"\n")]
        rest = lines.pop()
        if self._open or self._head is not None:
            lines[0] = self._closed(lines[0])
        if rest:
            self._keep(rest)
        return [line for line in lines if line and not line.isspace()]

    def _closed(self, end: bytes | bytearray) -> bytearray:
        """The open line with its *end*; empty if it was too long."""
        self._keep(end)
        line, self._open = self._open, bytearray()
        if self._head:
            self._too_long(self._head, self._tail)
        self._head, self._tail = None, b""
        return line

    def _keep(self, piece: bytes | bytearray) -> None:
        if self._head is not None:
            self._tail = (self._tail + piece)[-SHOWN:]
            return
        self._open += piece
        if len(self._open) > self._max_bytes:
            self._head, self._tail = bytes(self._open[:SHOWN]), bytes(self._open[-SHOWN:])
            self._open = bytearray()
