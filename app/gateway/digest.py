"""Arguments as one digest: what tells whether two calls ask for the same, and what is noted instead of the values."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the canonical JSON: keys sorted, no blanks."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
