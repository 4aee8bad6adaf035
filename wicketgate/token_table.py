"""The cl100k_base rank table, read from the program's own files and checked before use (S0 §2.3, DESIGN §3 "Cards")."""

import base64
import gzip
import hashlib
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import tiktoken

from wicketgate.errors import ConfigError

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
    ranks = {
        base64.b64decode(token): int(rank) for token, rank in (line.split() for line in unpacked.splitlines() if line)
    }
    # No special tokens: their names in a description are text like any other.
    return Cl100kCounter(tiktoken.Encoding("cl100k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={}))


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
