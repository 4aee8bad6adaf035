"""Names of keys in Redis: ``wg1:<kind>:{<group>}:<rest>``.

``wg1`` is the version of what is stored: another one begins beside it. What stands in braces decides the slot of a
Cluster, so that a step over several keys of one group is possible there. Names that clients choose are hashed.
"""

from dataclasses import dataclass

VERSION = "wg1"


@dataclass(frozen=True, slots=True)
class Names:
    """*space* stands before the version; empty, unless several uses of one database have to be kept apart."""

    space: str = ""

    def key(self, kind: str, group: str, *rest: str) -> str:
        """*group* and *rest* are ours, or hashed."""
        return ":".join([*([self.space] if self.space else []), VERSION, kind, f"{{{group}}}", *rest])
