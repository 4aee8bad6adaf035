"""Patterns over the names of tools, as the operator writes them in rules: ``<namespace>:<tool>`` with ``*``, ``?`` and
``[...]``, in the tool's own case."""

import fnmatch
import re
from collections.abc import Callable
from functools import partial
from operator import eq

_SPECIAL = re.compile(r"[*?\[]")


def split_pattern(match: str) -> tuple[str, str]:
    """Returns the two globs of *match*. Raises ValueError."""
    namespace, colon, name = match.partition(":")
    if match == "*":
        return "*", "*"
    if not (namespace and colon and name) or ":" in name:
        raise ValueError("must be <namespace>:<tool>, for example github:delete_* or *:*")
    return namespace, name


def compile_glob(pattern: str) -> Callable[[str], bool] | None:
    """Returns None for a glob that matches everything."""
    if pattern == "*":
        return None
    plain = pattern.rstrip("*")
    # A name and a prefix are compared without an expression, which takes several times longer.
    if not _SPECIAL.search(plain):
        return partial(eq, plain) if plain == pattern else lambda text: text.startswith(plain)
    expression = re.compile(fnmatch.translate(pattern))
    return lambda text: expression.match(text) is not None


def is_plain(glob: str) -> bool:
    """Returns whether *glob* fits only the text that it is."""
    return _SPECIAL.search(glob) is None
