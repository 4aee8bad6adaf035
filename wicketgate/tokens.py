"""Counts the tokens of texts with the table of cl100k_base, and shortens a text to a number of them (CARD-26, CARD-28).

The rank table comes with the program, and is checked before use (CARD-26)."""

import gzip
import hashlib
import re
import zlib
from binascii import a2b_base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import tiktoken

from wicketgate.errors import ConfigError

ELLIPSIS = "…"

# Followed by a space or nothing: "e.g., Node.js" has none.
_SENTENCE_END = re.compile(r"[.!?](?!\S)")

# The longest token of cl100k_base: no sentence end further behind the budget can still fit.
_MAX_TOKEN_CHARS = 128


CHARS_PER_TOKEN = 4


def estimate_tokens(chars: int) -> int:
    """For what is told as an estimate, and cheap enough for every call."""
    return -(-chars // CHARS_PER_TOKEN)


class TokenCounter(Protocol):
    """cl100k_base, with special tokens read as plain text, so that no input is refused."""

    def count(self, text: str) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> bytes:
        """The bytes of these tokens; they may end within a character."""
        ...


def truncate(text: str, budget_tokens: int, tokens: TokenCounter) -> str:
    """Shorten *text* to at most *budget_tokens*, the same way every time (CARD-28).

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
    # As many whole characters as these tokens cover.
    covered = len(tokens.decode(encoded[:budget_tokens]).decode("utf-8", "ignore"))
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
    # tokens. Of the offsets that fit it finds the one that the exact values of the tests name. The halves that do not
    # fit shrink, so all counts together read the text about once.
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


SHIPPED_TABLE = Path(__file__).with_name("cl100k_base.tiktoken.gz")

# Of the unpacked file; the value that tiktoken itself expects.
TABLE_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"

# How cl100k_base parts a text before ranks apply. tiktoken's own loader would fetch the table over the network.
_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def load_token_counter(table: Path = SHIPPED_TABLE) -> "Cl100kCounter":
    """Read and check the table, about a tenth of a second. Raises ConfigError when it is missing or not the one."""
    try:
        unpacked = gzip.decompress(table.read_bytes())
    except (OSError, EOFError, zlib.error):
        raise ConfigError("the token table cl100k_base cannot be read; install the program again") from None
    if hashlib.sha256(unpacked).hexdigest() != TABLE_SHA256:
        raise ConfigError("the token table cl100k_base is not the expected one; install the program again")
    # Each line is a token and its rank, which is the number of the line.
    tokens = unpacked.split()[::2]
    del unpacked
    ranks = dict(zip(map(a2b_base64, tokens), range(len(tokens)), strict=True))
    del tokens
    # No special tokens: their names in a description are text like any other.
    encoding = tiktoken.Encoding("cl100k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
    # The library counts with a copy of its own in Rust, and needs this one to be pickled only: 15 MB.
    ranks.clear()
    return Cl100kCounter(encoding)


@cache
def shipped_token_counter() -> "Cl100kCounter":
    """The counter of this process, loaded at its first use."""
    return load_token_counter()


class Cl100kCounter:
    """Implements TokenCounter."""

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def encode(self, text: str) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def decode(self, tokens: Sequence[int]) -> bytes:
        return self._encoding.decode_bytes(tokens)
