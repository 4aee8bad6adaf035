"""Which strings are paths through the catalog (S0 §3.2)."""

import re

from wicketgate.errors import PathInvalid

WILDCARD = "*"
MAX_CHARS = 1_000
"""No path of the graph comes near it; a longer one need not be read."""
SEGMENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def parse_path(path: object) -> tuple[str, ...]:
    """The segments of *path*, ``/`` being none; a final ``*`` stays. Raises PathInvalid."""
    if not isinstance(path, str):
        raise PathInvalid("A path is a string such as /github/issues.")
    if path == "/":
        return ()
    if len(path) > MAX_CHARS:
        raise PathInvalid(f"A path has at most {MAX_CHARS} characters.", path=path)
    if not path.startswith("/"):
        raise PathInvalid("A path begins with '/'.", path=path)
    segments = tuple(path[1:].split("/"))
    for position, segment in enumerate(segments):
        if segment == WILDCARD:
            if position < len(segments) - 1:
                raise PathInvalid("'*' may only be the last segment.", path=path)
        elif not SEGMENT.fullmatch(segment):
            raise PathInvalid(
                "A segment is 1 to 64 of a-z, 0-9, '_' and '-', and begins with a letter or digit.", path=path
            )
    if segments[0][0].isdigit():
        raise PathInvalid("The first segment is a namespace and begins with a letter.", path=path)
    return segments
