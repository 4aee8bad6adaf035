"""What of a definition a pin covers, and its digest: all that a model or a caller goes by (W-PINS)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_COVERED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


def declared(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The covered part; a field that is null counts as absent."""
    return {key: value for key in _COVERED if (value := definition.get(key)) is not None}


def canonical(value: object) -> str:
    """JSON in one spelling: keys in order, no spaces, ASCII only. Raises ValueError when it is not JSON, or nested
    without end."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (TypeError, RecursionError):
        raise ValueError("not JSON") from None


def definition_digest(definition: Mapping[str, Any]) -> str:
    """SHA-256 of the covered part, as 64 hex digits. Raises ValueError."""
    return hashlib.sha256(canonical(declared(definition)).encode("ascii")).hexdigest()
