"""Fits a long conversation into a model's window (CHAT-79).

When a history outgrows the room, in this order and only as far as needed: results that the model has seen are shrunk,
oldest first; the oldest turns go, whole; the oldest steps of the running turn go, whole, with one line that says so.
System messages, the last user message and the latest step always stay; of that step only results are shrunk, and only
those that could not be shown even if everything else went.

A history is read as it was lived, message by message, and reduced wherever it had outgrown the room, to four fifths of
what could be freed. So what is shown depends on the history alone, and stays the same, byte for byte, from one model
call to the next until the room is used up again: a provider's prompt cache hits.

Tokens are counted as cl100k_base: exact for models of that table, near for the others. Every text is counted once: a
history comes back whole with each request, and a count costs a hundred times more than looking it up.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from wicketgate.catalog.card_lines import CardLine, read_card_lines
from wicketgate.errors import ContextOverflow
from wicketgate.results.page import FAILED, read_page

MESSAGE_TOKENS = 4
"""The tokens of a provider's framing of a message, role included, rounded up."""
CALL_TOKENS = 8
"""The tokens of the framing of one tool call within a message."""

# A piece of this length is counted in a few milliseconds, whatever it holds.
PIECE_CHARS = 16_384
_NEAR_END_CHARS = 1_024
_SHORT_CHARS = 200
"""Up to this length a text is remembered as it is: its digest would cost more than the look."""
# Between these the rules of cl100k_base part every text, so the counts of two pieces add up to the count of both.
_SEAM = re.compile(r"(?<=\S)(?= \S)|(?<=[\r\n])(?=\S)|(?<=[^\W_])(?=[^\w\s])")


class TextCounter(Protocol):
    """A TokenCounter, or CountedTexts over one."""

    def count(self, text: str) -> int: ...


class CountedTexts:
    """A TextCounter that counts a text once and remembers at least the latest *remembered* texts, long ones by digest.

    The time for a count is linear in the text. It is exact, but for more than 16,384 characters without any place
    where cl100k_base is sure to part a text (one endless word): they are taken as a token a byte, which is never too
    few. May be used from several threads.
    """

    def __init__(self, tokens: TextCounter, remembered: int = 10_000) -> None:
        self._tokens = tokens
        self._remembered = remembered
        # Two generations instead of an order of use: no step of it can fail between threads.
        self._recent: dict[str | bytes, int] = {}
        self._older: dict[str | bytes, int] = {}

    def count(self, text: str) -> int:
        key: str | bytes = text
        if len(text) > _SHORT_CHARS:
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
    """Yields *text* in pieces that can be counted one by one; as bytes where it cannot be parted."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        seam = _last_seam(text, end - _NEAR_END_CHARS, end) or _last_seam(text, start + 1, end)
        piece = text[start : seam or end]
        yield piece if seam else piece.encode("utf-8", "surrogatepass")
        start += len(piece)
    yield text[start:]


def _last_seam(text: str, start: int, end: int) -> int:
    """Returns the position of the last seam from *start* to *end*; 0 when there is none."""
    last = 0
    for seam in _SEAM.finditer(text, start, end + 1):
        last = seam.start()
    return last


_SHRUNK = " to save room]"
"""The end of a text that was shortened."""
_MAX_SHRUNK_CHARS = 8_500
_SUMMARY_CHARS = 160
_HEAD_CHARS = 240
_MAX_IDS = 20
_MAX_HANDLES = 2
# A name in a foreign result can be of any length; a part of one leads nowhere.
_MAX_NAME_CHARS = 400


def shrink(content: str) -> str:
    """A shorter form of a tool message's content, at most about 8,500 characters; *content* itself if there is none.

    The page of a result keeps its status, its beginning and its first handles; lines of cards keep their ids. Any other
    text keeps its first 240 characters and says how much was cut. What was shrunk is not shrunk further. Never raises.
    """
    if content.endswith(_SHRUNK) and len(content) <= _MAX_SHRUNK_CHARS:
        return content
    if lines := read_card_lines(content):
        shown = _ids_of_lines(lines)
    elif (page := read_page(content)).handles:
        whole = ", ".join(handle for handle in page.handles[:_MAX_HANDLES] if len(handle) <= _MAX_NAME_CHARS)
        head = _short(f"{FAILED}\n{page.text}" if page.failed else page.text)
        shown = f"{head}\n[tool_view shows the whole: {whole}; shortened{_SHRUNK}"
    elif len(content) > 2 * _HEAD_CHARS:
        shown = f"{content[:_HEAD_CHARS]}… [{len(content) - _HEAD_CHARS:,} more characters left out{_SHRUNK}"
    else:
        return content
    return shown if len(shown) < len(content) else content


def _ids_of_lines(lines: Sequence[CardLine]) -> str:
    short = "\n".join(f"{line.id} (internal)" if line.is_internal else line.id for line in lines[:_MAX_IDS])
    left_out = len(lines) - _MAX_IDS
    if left_out > 0:
        short += f"\n[{left_out} more cards left out{_SHRUNK}"
    return short


def _short(text: str) -> str:
    return text if len(text) <= _SUMMARY_CHARS else text[: _SUMMARY_CHARS - 1] + "…"


ChatMessage = Mapping[str, Any]
"""``{role, content, tool_calls?, tool_call_id?}``, as in chat completions."""

# A saving below this is not worth what it takes away.
_WORTH_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Built:
    """The messages that are shown, in order; those that were not changed are the very objects that came in.

    *tokens* is their sum. A turn is a user message and what follows it; a step is an assistant message and the results
    of its calls: *dropped_steps* went out of a turn that was running. *shrunk_results* counts those that are shown.
    """

    messages: tuple[ChatMessage, ...]
    tokens: int
    dropped_turns: int
    dropped_steps: int
    shrunk_results: int


def build(
    messages: Sequence[ChatMessage], budget_tokens: int, tokens: TextCounter, *, reserve_tokens: int = 0
) -> Built:
    """Fit *messages* into ``budget_tokens - reserve_tokens``. Raises ContextOverflow if what must stay does not fit.

    Every tool message must follow the call it answers and every call must be answered, as the contract demands. The
    input is not changed. Linear in the history, but for the counts of texts that *tokens* does not remember.
    """
    history = _History(budget_tokens - reserve_tokens, tokens)
    fits = True
    for position, message in enumerate(messages, start=1):
        history.add(message)
        # Between a call and its answers nothing can be decided: they go together.
        if position == len(messages) or messages[position]["role"] != "tool":
            fits = history.fit()
    if not fits:
        raise ContextOverflow(
            f"{history.must_tokens} tokens of the history cannot be left out; "
            f"there is room for {history.room_tokens} (window {budget_tokens}, reserved {reserve_tokens})"
        )
    return history.built()


class _History:
    """A conversation as far as it was read, and what is shown of it. Every position is reduced at most once."""

    def __init__(self, room_tokens: int, tokens: TextCounter) -> None:
        self.room_tokens = room_tokens
        self.must_tokens = 0
        self._is_hopeless = False
        """True if the messages that must stay did not fit, and only system messages have come since."""
        self._tokens = tokens
        self._read: list[ChatMessage] = []
        self._shown: list[ChatMessage | None] = []
        self._sizes: list[int] = []
        self._total = 0
        self._system_tokens = 0
        self._stubs: dict[int, str] = {}
        """Results that are shrunk, by position."""
        self._notes: dict[int, str] = {}
        self._next_result = 0
        self._users: list[int] = []
        self._turns_end = 0
        """Turns before this position are dropped."""
        self._next_turn = 0
        self._steps: list[int] = []
        """The positions at which the steps of the running turn begin."""
        self._steps_end = 0
        self._next_step = 0
        self._dropped_messages = 0
        self._dropped_calls = 0
        self._dropped_turns = 0
        self._dropped_steps = 0

    def add(self, message: ChatMessage) -> None:
        position, size = len(self._read), message_tokens(message, self._tokens)
        self._read.append(message)
        self._shown.append(message)
        self._sizes.append(size)
        self._total += size
        match message["role"]:
            case "system":
                self._system_tokens += size
                self.must_tokens += size
                return
            case "user":
                self._users.append(position)
                self._steps, self._next_step, self._steps_end = [], 0, position + 1
                self._dropped_calls = 0
            case "assistant":
                self._steps.append(position)
        self._is_hopeless = False

    def fit(self) -> bool:
        """Reduces the shown messages if they have outgrown the room. Returns False, and changes nothing, if that cannot
        be enough."""
        if self._total <= self.room_tokens:
            return True
        if self._is_hopeless:
            return False
        latest = self._steps[-1] if self._steps else self._steps_end
        savings = self._savings(latest)
        last_user_tokens = self._sizes[self._users[-1]] if self._users else 0
        step_tokens = sum(self._sizes[position] for position in self._span(latest, len(self._read)))
        self.must_tokens = self._system_tokens + last_user_tokens + step_tokens - sum(savings.values())
        spare = self.room_tokens - self.must_tokens
        if spare < 0:
            self._is_hopeless = True
            return False
        goal = self.must_tokens + spare * 4 // 5
        self._shrink_longest(savings, goal - self.must_tokens)
        self._shrink_oldest(goal, latest)
        self._drop_turns(goal)
        self._drop_steps(goal, latest)
        return True

    def built(self) -> Built:
        return Built(
            messages=tuple(message for message in self._shown if message is not None),
            tokens=self._total,
            dropped_turns=self._dropped_turns,
            dropped_steps=self._dropped_steps,
            shrunk_results=sum(self._shown[position] is not None for position in self._stubs),
        )

    def _savings(self, latest: int) -> dict[int, int]:
        """The tokens that shrinking each result of the latest step would save, by position."""
        savings = {}
        for position in range(latest, len(self._read)):
            if (shorter := self._shorter(position)) is not None:
                savings[position] = self._sizes[position] - shorter[2]
        return savings

    def _shrink_longest(self, savings: Mapping[int, int], spare: int) -> None:
        # The model has not seen these yet: one that goes costs it a call.
        unseen = sum(savings.values())
        for position, saved in sorted(savings.items(), key=lambda item: (-item[1], item[0])):
            if unseen <= spare:
                return
            unseen -= saved
            self._shrink(position)

    def _shrink_oldest(self, goal: int, latest: int) -> None:
        while self._total > goal and self._next_result < latest:
            if self._shown[self._next_result] is not None:
                self._shrink(self._next_result)
            self._next_result += 1

    def _drop_turns(self, goal: int) -> None:
        last_user = self._users[-1] if self._users else 0
        before = self._turns_end
        while self._total > goal and self._turns_end < last_user:
            end = self._users[self._next_turn]
            dropped = self._drop(self._turns_end, end)
            self._dropped_messages += dropped
            self._dropped_turns += dropped > 0
            self._turns_end = end
            self._next_turn += 1
        # The last user message is never touched; before any other, one line says so.
        if before < self._turns_end < last_user and self._dropped_messages:
            self._note(self._turns_end, f"[Earlier messages left out to save room: {self._dropped_messages}]")

    def _drop_steps(self, goal: int, latest: int) -> None:
        before = self._steps_end
        while self._total > goal and self._steps_end < latest:
            end = self._steps[self._next_step]
            calls = (self._read[position].get("tool_calls") for position in range(self._steps_end, end))
            self._dropped_calls += sum(len(asked) for asked in calls if asked)
            self._dropped_steps += self._drop(self._steps_end, end) > 0
            self._steps_end = end
            self._next_step += 1
        if before < self._steps_end and self._dropped_calls:
            # With a result, not with the call: a model takes what stands in its own messages for its own words.
            results = (i for i in self._span(self._steps_end, len(self._read)) if self._read[i]["role"] == "tool")
            self._note(
                next(results, self._steps_end),
                f"[Earlier tool calls of this task left out to save room: {self._dropped_calls}]",
            )

    def _shorter(self, position: int) -> tuple[str, ChatMessage, int] | None:
        """Returns the stub of a result, its message and the tokens of that; None if nothing can be gained."""
        message = self._shown[position]
        if message is None or message["role"] != "tool" or position in self._stubs:
            return None
        stub = shrink(self._read[position]["content"])
        shorter = self._message(position, stub, self._notes.get(position))
        size = message_tokens(shorter, self._tokens)
        return (stub, shorter, size) if self._sizes[position] - size >= _WORTH_TOKENS else None

    def _shrink(self, position: int) -> None:
        if (shorter := self._shorter(position)) is not None:
            self._stubs[position], message, size = shorter
            self._show(position, message, size)

    def _note(self, position: int, note: str) -> None:
        """Put *note* before what is shown at *position*, if there is room for it."""
        content = self._stubs.get(position) or self._read[position]["content"]
        message = self._message(position, content, note)
        size = message_tokens(message, self._tokens)
        if self._total - self._sizes[position] + size <= self.room_tokens:
            self._notes[position] = note
            self._show(position, message, size)

    def _message(self, position: int, content: str, note: str | None) -> ChatMessage:
        return {**self._read[position], "content": f"{note}\n{content}" if note else content}

    def _drop(self, start: int, end: int) -> int:
        """Hides this span. Returns the number of messages that were hidden."""
        span = self._span(start, end)
        for position in span:
            self._show(position, None, 0)
        return len(span)

    def _span(self, start: int, end: int) -> list[int]:
        """Returns the positions from *start* to *end* that are shown and may go: system messages always stay."""
        return [
            position
            for position in range(start, end)
            if (message := self._shown[position]) is not None and message["role"] != "system"
        ]

    def _show(self, position: int, message: ChatMessage | None, size: int) -> None:
        self._total += size - self._sizes[position]
        self._sizes[position] = size
        self._shown[position] = message
