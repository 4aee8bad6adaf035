"""Kept results as shared stores write them: the name of a key, the result as JSON, and the bounds (EXEC-54)."""

import hashlib
from collections.abc import Mapping
from typing import Any

from wicketgate.call_state import Key
from wicketgate.storage.encoding import packed, unpacked

MAX_RESULTS = 10_000
MAX_BYTES = 64 * 1024 * 1024
MAX_RESULT_BYTES = 256 * 1024
"""A longer result is not kept."""


def result_name(key: Key) -> str:
    """SHA-256, in hex: a store learns neither actors nor arguments."""
    return hashlib.sha256(packed(list(key))).hexdigest()


def packed_result(result: Mapping[str, Any]) -> bytes | None:
    """None for a result that is too long, or is not JSON."""
    try:
        kept = packed(dict(result))
    except (TypeError, ValueError, RecursionError):
        return None
    return kept if len(kept) <= MAX_RESULT_BYTES else None


def read_result(kept: bytes) -> Mapping[str, Any] | None:
    """None for what nobody here has written."""
    try:
        result = unpacked(kept)
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None
