"""Work on large values in slices, so that other threads run in between (EXEC-27).

A call into C holds the interpreter until it returns: hashing 50 MB takes tens of milliseconds. No call here handles
more than about a megabyte, but for JSON that is far heavier in one place than its other places tell. That costs two
milliseconds a megabyte, because an encoder in C writes it.
"""

import binascii
import codecs
import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

SLICE = 1 << 20
# A unit is one value or sixteen characters: writing either takes about the same time.
_SLICE_UNITS = 65_536
_UNIT_CHARS = 16
_BATCH = 4_096
# Of longer lists and objects so many values stand for all.
_SAMPLE = 8
_MOST_SAMPLED = 1_024
# Deeper than any JSON from a wire. Below it the encoder takes over, which detects cycles.
_MAX_DEPTH = 60
_GOING_ON = bytes(range(0x80, 0xC0))
_HEAVY = frozenset((str, dict, list, tuple))

_Encode = Callable[[object], bytes]


def outweighs(value: object, units: int) -> bool:
    """Returns true if a JSON value has more than *units* units; looks at no more than that."""
    left = units
    pending: list[Any] = [value]
    while pending and left >= 0:
        each = pending.pop()
        # Exact types, not a match statement: every value of 64 KB of JSON passes here once.
        kind = type(each)
        if kind is str:
            left -= len(each) // _UNIT_CHARS + 1
        elif kind is dict:
            left -= len(each) + 1
            if left >= 0:
                left -= sum(map(len, map(str, each))) // _UNIT_CHARS
                pending += each.values()
        elif kind is list or kind is tuple:
            left -= len(each) + 1
            if left >= 0:
                pending += each
    return left < 0


def seems_to_outweigh(value: object, units: int) -> bool:
    """As ``outweighs``, told from a sample of long lists and objects: it takes microseconds for any value, and can be
    wrong about one that is heavy only here and there."""
    left, looks = float(units), _MOST_SAMPLED
    pending: list[tuple[Any, float]] = [(value, 1.0)]
    while pending and left >= 0:
        each, times = pending.pop()
        looks -= 1
        kind = type(each)
        if kind is str:
            left -= times * (len(each) // _UNIT_CHARS + 1)
            continue
        if kind is not dict and kind is not list and kind is not tuple:
            continue
        size = len(each)
        left -= times * (size + 1)
        if left < 0 or looks < 0:
            return True
        if size > _SAMPLE:
            times *= size / _SAMPLE
        if kind is dict:
            sample = list(islice(each.values(), _SAMPLE))
            left -= times * (sum(map(len, map(str, islice(each, _SAMPLE)))) // _UNIT_CHARS)
        else:
            # From all over the list: the first rows of a table are often like no others.
            sample = each if size <= _SAMPLE else each[:: -(-size // _SAMPLE)]
        pending += [(below, times) for below in sample if type(below) in _HEAVY]
    return left < 0


def utf8(text: str) -> bytes:
    """Encodes *text*; a lone surrogate, which a JSON escape can produce, is kept."""
    if len(text) <= SLICE:
        return text.encode("utf-8", "surrogatepass")
    return b"".join(text[at : at + SLICE].encode("utf-8", "surrogatepass") for at in range(0, len(text), SLICE))


def json_bytes(value: object) -> bytes | None:
    """Writes compact JSON in the value's own key order; None for what JSON cannot express (a cycle, too great a depth).
    A number that JSON lacks (``nan``) is null."""
    try:
        return json_with(_encoded, value)
    except (TypeError, ValueError, RecursionError):
        return None


def json_with(encode: Callable[[object], bytes], value: object) -> bytes:
    """Returns *value* as compact JSON. Large values are passed to *encode* in parts. Raises what *encode* raises."""
    return b"".join(_pieces(encode, value))


def base64_bytes(text: str) -> bytes | None:
    """Decodes base64, also when it is wrapped into lines; None for any other text."""
    try:
        return _base64(text)
    except ValueError:
        pass
    # Slices may cut a line anywhere, because only white space is removed.
    unwrapped = "".join("".join(text[at : at + SLICE].split()) for at in range(0, len(text), SLICE))
    try:
        return _base64(unwrapped)
    except ValueError:
        return None


def count_json_chars(data: bytes) -> int:
    """Counts characters of what ``json_bytes`` has written: bytes that do not go on with a character."""
    if data.isascii():
        return len(data)
    return sum(len(data[at : at + SLICE].translate(None, _GOING_ON)) for at in range(0, len(data), SLICE))


def count_chars(data: bytes) -> int:
    """Counts characters of UTF-8; invalid bytes count as ``replace`` decodes them."""
    return characters(data, 0, 0)[1]


def characters(data: bytes, start: int, count: int) -> tuple[str, int]:
    """Returns *count* characters of UTF-8 from *start* on, and the number of all."""
    if data.isascii():
        return data[start : start + count].decode("ascii"), len(data)
    # The decoder carries a character that a slice cuts over to the next one.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    taken: list[str] = []
    position = 0
    for at in range(0, len(data) + SLICE, SLICE):
        text = decoder.decode(data[at : at + SLICE], at + SLICE >= len(data))
        if position < start + count and position + len(text) > start:
            taken.append(text[max(start - position, 0) : start + count - position])
        position += len(text)
    return "".join(taken), position


def count_newlines(data: bytes, start: int = 0, end: int | None = None) -> int:
    stop = len(data) if end is None else end
    return sum(data.count(b"\n", at, min(at + SLICE, stop)) for at in range(start, stop, SLICE))


def _pieces(encode: _Encode, value: Any, depth: int = 0) -> Iterator[bytes]:
    # Small values are written at once. Larger ones are taken apart.
    if depth > _MAX_DEPTH or not seems_to_outweigh(value, _SLICE_UNITS):
        yield encode(value)
    else:
        yield from _taken_apart(encode, value, depth)


def _taken_apart(encode: _Encode, value: Any, depth: int) -> Iterator[bytes]:
    match value:
        case str():
            yield b'"'
            # No JSON escape spans two characters, so a text can be cut anywhere.
            for at in range(0, len(value), SLICE):
                yield encode(value[at : at + SLICE])[1:-1]
            yield b'"'
        case dict():
            yield b"{"
            # Members in batches, because a call for each of a million is slow.
            items = iter(value.items())
            separator = b""
            while batch := list(islice(items, _BATCH)):
                yield separator
                separator = b","
                yield from _members(encode, batch, depth + 1)
            yield b"}"
        case list() | tuple():
            yield b"["
            for at in range(0, len(value), _BATCH):
                yield b"," if at else b""
                yield from _elements(encode, value[at : at + _BATCH], depth + 1)
            yield b"]"
        case _:
            yield encode(value)


def _members(encode: _Encode, batch: list[tuple[Any, Any]], depth: int) -> Iterator[bytes]:
    if not seems_to_outweigh(members := dict(batch), _SLICE_UNITS):
        yield encode(members)[1:-1]
    elif len(batch) > 1:
        yield from _members(encode, batch[: len(batch) // 2], depth)
        yield b","
        yield from _members(encode, batch[len(batch) // 2 :], depth)
    else:
        ((key, value),) = batch
        # Written as a member of its own object, because a key need not be a string here.
        yield encode({key: 0})[1:-2]
        yield from _pieces(encode, value, depth)


def _elements(encode: _Encode, batch: Any, depth: int) -> Iterator[bytes]:
    if not seems_to_outweigh(batch, _SLICE_UNITS):
        yield encode(batch)[1:-1]
    elif len(batch) > 1:
        yield from _elements(encode, batch[: len(batch) // 2], depth)
        yield b","
        yield from _elements(encode, batch[len(batch) // 2 :], depth)
    else:
        yield from _pieces(encode, batch[0], depth)


_encode = msgspec.json.Encoder(enc_hook=str).encode


def _encoded(value: object) -> bytes:
    """Compact JSON. Raises ValueError, TypeError or RecursionError."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return utf8(odd_json(value, ascii_only=False, default=str))


def odd_json(value: object, *, ascii_only: bool, default: Callable[[Any], Any] | None = None) -> str:
    """Returns compact JSON of a value that msgspec's encoder refuses: lone surrogates stay, as escapes if *ascii_only*,
    and a number that JSON lacks is null, as msgspec writes it. *default* gives JSON for any other object. Raises
    ValueError, TypeError or RecursionError."""
    separators = (",", ":")
    try:
        return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, separators=separators, default=default)
    except ValueError:
        # A cycle fails again.
        read = json.loads(json.dumps(value, ensure_ascii=False, default=default), parse_constant=lambda _: None)
        return json.dumps(read, ensure_ascii=ascii_only, separators=separators)


def _base64(text: str) -> bytes:
    """Decodes slices of whole groups of four; padding is valid at the end of the last one only."""
    # SLICE is a multiple of four, so each slice decodes by itself.
    slices = [text[at : at + SLICE] for at in range(0, len(text), SLICE)]
    if any(each.endswith("=") for each in slices[:-1]):
        raise ValueError
    return b"".join(binascii.a2b_base64(each, strict_mode=True) for each in slices)
