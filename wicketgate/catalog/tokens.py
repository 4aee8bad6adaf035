"""Counting tokens, and shortening a text to a number of them (S0 §2.3, §2.4). The rank table is read elsewhere."""

import re
from collections.abc import Sequence
from typing import Protocol

ELLIPSIS = "…"

# Followed by a space or nothing: "e.g., Node.js" has none.
_SENTENCE_END = re.compile(r"[.!?](?!\S)")

# The longest token of cl100k_base: no sentence end further behind the budget can still fit.
_MAX_TOKEN_CHARS = 128


class TokenCounter(Protocol):
    """cl100k_base, with special tokens read as plain text, so that no input is refused."""

    def count(self, text: str) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> bytes:
        """The bytes of these tokens; they may end within a character."""
        ...


def truncate(text: str, budget_tokens: int, tokens: TokenCounter) -> str:
    """Shorten *text* to at most *budget_tokens*, the same way every time (S0 §2.4).

    The longest prefix that ends a sentence (``.``, ``!`` or ``?``, then a space) and fits; without one, the text up
    to ``budget_tokens - 1`` tokens and ``…``, never cut inside a character. A budget of zero gives nothing. The cost
    grows with the length of the text, once.
    """
    if budget_tokens <= 0:
        return ""
    encoded = tokens.encode(text)
    if len(encoded) <= budget_tokens:
        return text
    return _sentences(text, encoded, budget_tokens, tokens) or _hard_cut(text, budget_tokens, tokens)


def _sentences(text: str, encoded: list[int], budget_tokens: int, tokens: TokenCounter) -> str | None:
    covered = _chars(encoded[:budget_tokens], tokens)
    # A run of punctuation is encoded as one piece, so a prefix of it can take fewer tokens than the piece so far.
    end = covered
    while end < min(len(text), covered + _MAX_TOKEN_CHARS) and not (text[end].isspace() or text[end].isalnum()):
        end += 1
    for position in reversed([found.end() for found in _SENTENCE_END.finditer(text, 0, end + 1)]):
        if position <= end and tokens.count(text[:position]) <= budget_tokens:
            return text[:position]
    return None


def _hard_cut(text: str, budget_tokens: int, tokens: TokenCounter) -> str:
    # Bisection, though the count does not quite grow with the text: within a word a longer prefix can take fewer
    # tokens. Of the offsets that fit it finds the one that the vectors of S0 §2.4 name. The halves that do not fit
    # shrink, so all counts together read the text about once.
    best, low, high = 0, 0, len(text)
    while low <= high:
        middle = (low + high) // 2
        if tokens.count(text[:middle]) < budget_tokens:
            best, low = middle, middle + 1
        else:
            high = middle - 1
    # The ellipsis may be read as one piece with what stands before it, and then takes more than one token.
    while best and tokens.count(text[:best].rstrip() + ELLIPSIS) > budget_tokens:
        best -= 1
    return text[:best].rstrip() + ELLIPSIS


def _chars(encoded: list[int], tokens: TokenCounter) -> int:
    """The number of whole characters that these tokens cover."""
    return len(tokens.decode(encoded).decode("utf-8", "ignore"))
