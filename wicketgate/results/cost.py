"""What a text, or a raw result, costs a model in tokens (S0 §2.3, DESIGN §3 "Results"; counted as cl100k_base).

A long text is counted at its beginning only, and the number says that it is an estimate: counting 50 MB would take
seconds, and a word of 2 MB more.
"""

from dataclasses import dataclass

from wicketgate.catalog.tokens import TokenCounter

# Half a millisecond at most, whatever the text is.
COUNTED_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class TokenCount:
    """*exact* is false when only the beginning was counted and the rest taken to be like it."""

    tokens: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.tokens:,}" if self.exact else f"about {self.tokens:,}"


def count_tokens(text: str, tokens: TokenCounter) -> TokenCount:
    """Exact up to 6,000 characters, else as many more as the text is longer than those."""
    return _from_head(text[:COUNTED_CHARS], len(text), tokens)


def count_json(data: bytes, tokens: TokenCounter) -> TokenCount:
    """As ``count_tokens``, for JSON in UTF-8."""
    return _from_head(data[:COUNTED_CHARS].decode("utf-8", "ignore"), len(data), tokens)


def _from_head(head: str, length: int, tokens: TokenCounter) -> TokenCount:
    """*head* is the first COUNTED_CHARS units of what is *length* units long."""
    counted = tokens.count(head)
    if length <= COUNTED_CHARS:
        return TokenCount(counted, True)
    return TokenCount(round(counted * length / COUNTED_CHARS), False)
