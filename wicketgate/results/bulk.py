"""The weight of values, and their bytes: JSON, UTF-8, base64 and characters (EXEC-27).

A call into C holds the interpreter until it returns, some two milliseconds a megabyte. So callers ask first what a
value weighs, and do what takes long in a thread.
"""

import binascii
import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

_UNIT_CHARS = 16
"""A unit is one value or sixteen characters: writing either takes about the same time."""
# Of longer lists and objects so many values stand for all.
_SAMPLE = 8
_MOST_SAMPLED = 1_024
_GOING_ON = bytes(range(0x80, 0xC0))
_HEAVY = frozenset((str, dict, list, tuple))


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
    return text.encode("utf-8", "surrogatepass")


def read_object(text: str | bytes) -> dict[str, Any] | None:
    """Returns the JSON object in *text*; None if it holds anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_bytes(value: object) -> bytes | None:
    """Writes compact JSON in the value's own key order; None for what JSON cannot express (a cycle, too great a depth).
    A number that JSON lacks (``nan``) is null."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return utf8(odd_json(value, ascii_only=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return None


def base64_bytes(text: str) -> bytes | None:
    """Decodes base64, also when it is wrapped into lines; None for any other text."""
    for unwrapped in (text, "".join(text.split())):
        try:
            return binascii.a2b_base64(unwrapped, strict_mode=True)
        except ValueError:
            continue
    return None


def count_json_chars(data: bytes) -> int:
    """Counts characters of what ``json_bytes`` has written: bytes that do not go on with a character."""
    return len(data) if data.isascii() else len(data.translate(None, _GOING_ON))


def characters(data: bytes, start: int, count: int) -> tuple[str, int]:
    """Returns *count* characters of UTF-8 from *start* on, and the number of all; invalid bytes as ``replace`` decodes
    them."""
    if data.isascii():
        return data[start : start + count].decode("ascii"), len(data)
    text = data.decode("utf-8", "replace")
    return text[start : start + count], len(text)


_encode = msgspec.json.Encoder(enc_hook=str).encode


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
