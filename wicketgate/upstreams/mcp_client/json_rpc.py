"""JSON-RPC messages as they come from tool servers: decoded once, and nothing of their shape taken for granted.

What is no message gives None; what one bad byte or half a character would spoil is mended (gatekit G65 to G70).
"""

import json
from typing import Any

import msgspec

_LARGE_BYTES = 4 * 1024 * 1024
_SMALL_BYTES = 64 * 1024
_MANY_VALUES = 10_000
_SAMPLE = 64
_MAX_DEPTH = 4

Raw = msgspec.Raw
ABSENT = msgspec.UNSET

DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding may raise."""


class Message(msgspec.Struct):
    """One message. With a *method* it is a request (if it has an *id*) or a notification, else an answer.

    *params* and *result* of a heavy message are still encoded (``msgspec.Raw``).
    """

    id: int | str | None = None
    method: str | None = None
    params: Any = None
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


class _Large(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Any = msgspec.UNSET


_message = msgspec.json.Decoder(Message)
_large = msgspec.json.Decoder(_Large)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def decode(data: bytes | bytearray) -> Message | None:
    """None for what is not one JSON-RPC message."""
    try:
        if is_heavy(data):
            large = _large.decode(data)
            return Message(large.id, large.method, large.params, large.result, large.error)
        return _message.decode(data)
    except DAMAGED:
        mended = _mended(data)
        if mended is None:
            return None
        try:
            return _message.decode(mended)
        except DAMAGED:
            return None


def is_heavy(data: bytes | bytearray | memoryview) -> bool:
    """Whether decoding takes more than some two milliseconds: many values take long, a long text does not."""
    if len(data) <= _SMALL_BYTES:
        return False
    return len(data) > _LARGE_BYTES or bytes(data[::_SAMPLE]).count(b",") * _SAMPLE > _MANY_VALUES


def in_parts(raw: msgspec.Raw, depth: int = 0) -> Any:
    """A heavy value, decoded member by member. To be run in a thread: it lets the others run between the members.

    Raises what is in DAMAGED.
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
    """*value*, decoded if it is still encoded, mended if it must be. Raises what is in DAMAGED."""
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
    """None where they cannot be read."""
    try:
        return whole(message.params)
    except DAMAGED:
        return None


def encode(message: Any) -> bytes:
    return _encoder.encode(message)


def _mended(data: bytes | bytearray) -> bytes | None:
    """JSON whose strings hold bytes that are not UTF-8, or halves of surrogate pairs (servers cut text amid them),
    with a mark in their place; None for what is not a JSON object."""
    if data.lstrip()[:1] != b"{":
        return None
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
