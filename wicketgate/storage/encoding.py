"""Digests and JSON bytes that every back end stores: any string is accepted, even invalid Unicode."""

import hashlib
import json
from typing import Any

HASH_CHARS = 32


def hashed(text: str) -> str:
    """Returns 32 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARS]


def packed(value: Any) -> bytes:
    """Returns JSON that keeps any two strings distinct; escapes of lone surrogates would not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def unpacked(packed: bytes) -> Any:
    """Raises ValueError."""
    return json.loads(packed.decode("utf-8", "surrogatepass"))
