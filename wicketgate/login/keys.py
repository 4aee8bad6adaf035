"""Keys of rows: hashes, so that a store shows neither actors' tool servers nor secrets of a flow."""

import hashlib
import json


def row_key(*parts: str) -> str:
    """32 hexadecimal digits for a sequence of any strings; another sequence has others."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
