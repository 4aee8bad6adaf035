"""Lua scripts, and steps that run one."""

import hashlib
from collections.abc import Sequence

Argument = str | bytes | int | float


class Script:
    """A Lua script: its keys are of one group (``Names``)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


Step = tuple[Script, Sequence[str], Sequence[Argument]]
"""A script, its keys and its arguments."""
