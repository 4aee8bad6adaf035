"""Counts the tokens that a message takes in a model's window.

Counted as cl100k_base: exact for models of that table, near for the others. Every text is counted once: a history comes
back whole with each request, and a count costs a hundred times more than looking it up.
"""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Protocol

MESSAGE_TOKENS = 4
"""The tokens of a provider's framing of a message, role included, rounded up."""
CALL_TOKENS = 8
"""The same for one tool call within a message."""

# A piece of this length is counted in a few milliseconds, whatever it holds.
PIECE_CHARS = 16_384
_NEAR_END_CHARS = 1_024
# Between these the rules of cl100k_base part every text, so the counts of two pieces add up to the count of both.
_SEAM = re.compile(r"(?<=\S)(?= \S)|(?<=[\r\n])(?=\S)|(?<=[^\W_])(?=[^\w\s])")


class TextCounter(Protocol):
    """A TokenCounter, or CountedTexts over one."""

    def count(self, text: str) -> int: ...


class CountedTexts:
    """A TextCounter that counts a text once and remembers at least the latest *remembered* texts, by digest.

    The time for a count is linear in the text. It is exact, but for more than 16,384 characters without any place
    where cl100k_base is sure to part a text (one endless word): they are taken as a token a byte, which is never too
    few. May be used from several threads.
    """

    def __init__(self, tokens: TextCounter, remembered: int = 50_000) -> None:
        self._tokens = tokens
        self._remembered = remembered
        # Two generations instead of an order of use: no step of it can fail between threads.
        self._recent: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}

    def count(self, text: str) -> int:
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        recent = self._recent
        count = recent.get(key)
        if count is None:
            count = self._older.get(key)
            if count is None:
                count = sum(self._piece(piece) for piece in _pieces(text))
            if len(recent) >= self._remembered:
                self._older, self._recent = recent, {key: count}
            else:
                recent[key] = count
        return count

    def _piece(self, piece: str | bytes) -> int:
        return self._tokens.count(piece) if isinstance(piece, str) else len(piece)


def message_tokens(message: Mapping[str, Any], tokens: TextCounter) -> int:
    """Tokens of a chat-completions message: its content, its calls with their ids, the framing of each, and thoughts
    that go back with it."""
    content = message.get("content") or ""
    texts = [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)]
    calls = message.get("tool_calls") or ()
    for call in calls:
        texts += (call["id"], call["function"]["name"], call["function"]["arguments"])
    if answered := message.get("tool_call_id"):
        texts.append(answered)
    if (kept := message.get("kept")) is not None:
        texts.append(kept.text)
    # One text a message, so that it is looked up once.
    return tokens.count("\n".join(texts)) + MESSAGE_TOKENS + CALL_TOKENS * len(calls)


def _pieces(text: str) -> Iterator[str | bytes]:
    """*text* in pieces that can be counted one by one; as bytes where it cannot be parted."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        seam = _last_seam(text, end - _NEAR_END_CHARS, end) or _last_seam(text, start + 1, end)
        piece = text[start : seam or end]
        yield piece if seam else piece.encode("utf-8", "surrogatepass")
        start += len(piece)
    yield text[start:]


def _last_seam(text: str, start: int, end: int) -> int:
    """The position of the last seam from *start* to *end* is; 0 when there is none."""
    last = 0
    for seam in _SEAM.finditer(text, start, end + 1):
        last = seam.start()
    return last
