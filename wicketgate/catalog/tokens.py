"""What the core needs of a tokenizer, to keep cards within exact budgets (S0 §2.3). The table itself is an edge."""

from collections.abc import Sequence
from typing import Protocol


class TokenCounter(Protocol):
    """cl100k_base, with special tokens read as plain text, so that no input is refused."""

    def count(self, text: str) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> bytes:
        """The bytes of these tokens; they may end within a character."""
        ...
