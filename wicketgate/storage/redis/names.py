"""Names of keys in Redis: ``wg1:<kind>:{<group>}:<rest>``.

``wg1`` is the version of what is stored: another one begins beside it. What stands in braces decides the slot of a
Cluster, so that a step over several keys of one group is possible there. Names that clients choose are hashed.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

VERSION = "wg1"
HASH_CHARS = 32


@dataclass(frozen=True, slots=True)
class Names:
    """*space* stands before the version; empty, unless several uses of one database have to be kept apart."""

    space: str = ""

    def key(self, kind: str, group: str, *rest: str) -> str:
        """*group* and *rest* are ours, or hashed."""
        return ":".join([*([self.space] if self.space else []), VERSION, kind, f"{{{group}}}", *rest])


def hashed(text: str) -> str:
    """32 hexadecimal digits for any string, even invalid Unicode."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARS]


def packed(value: Any) -> bytes:
    """JSON that keeps any string apart from any other, which escapes of halves of a pair would not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def unpacked(packed: bytes) -> Any:
    """Raises ValueError."""
    return json.loads(packed.decode("utf-8", "surrogatepass"))
