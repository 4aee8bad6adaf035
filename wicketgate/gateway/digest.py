"""Digests of arguments: equal for calls that ask for the same, and noted instead of the values."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_MAX_EXACT = 2**53


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the canonical JSON: keys sorted, no blanks."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def approval_digest(arguments: Mapping[str, Any]) -> str:
    """As ``arguments_digest``, but 1.0 is 1: a client that keeps a conversation in JavaScript sends it back as such."""
    return arguments_digest({key: _plain(value) for key, value in arguments.items()})


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) <= _MAX_EXACT:
            return int(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
