"""What the fast decoder refuses of a provider's stream, read as far as it goes."""

import json
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_damaged(data: bytes, kind: type[T]) -> T | None:
    """Bytes that are not UTF-8, and lone surrogates, which only the slow decoder reads; None if it is no *kind*."""
    try:
        return msgspec.convert(json.loads(data.decode(errors="replace")), kind)
    except (ValueError, RecursionError):
        return None
