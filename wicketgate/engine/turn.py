"""One model turn: the part of the history that the model is shown, and the events and message of its answer.

CHAT-79 to CHAT-83 has the window.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wicketgate.context.build import Built, TextCounter, build
from wicketgate.engine.contract import MAX_CALL_ID_CHARS, MAX_NAME_CHARS
from wicketgate.engine.events import Event, ToolCallEvent
from wicketgate.models.provider import Finish, Message, ModelEvent, ModelTool, TakeText, TextDelta, ToolCall

MAX_TEXT_CHARS = 32 << 20
"""Bound of the text of one turn. A model that writes more does not come to an end by itself."""

_JOINED_AT = 1_024
_NO_NAME = "unnamed_tool"
_NUMBER_CHARS = 12

# The framing of a tool definition beyond its JSON, rounded up.
_TOOL_TOKENS = 16
# A message counts as its text and some.
_BULKY_CHARS = 100_000
_MESSAGE_CHARS = 100


class ModelWindow:
    """A model's window of *context_tokens*, of which *answer_tokens* are kept free for its answer.

    The answer's share is never more than half of what the tool definitions leave. *tokens* should remember its counts
    (CountedTexts), because a history comes back with each turn.
    """

    def __init__(self, context_tokens: int, answer_tokens: int, tokens: TextCounter) -> None:
        self._context_tokens = context_tokens
        self._answer_tokens = answer_tokens
        self._tokens = tokens
        self._latest: tuple[Sequence[ModelTool], int] = ((), 0)

    async def fit(self, messages: Sequence[Message], tools: Sequence[ModelTool]) -> Built:
        """The part of *messages* that the model is shown. Raises ContextOverflow."""
        # Counting a bulky history would hold up the streams beside it.
        if sum(map(_chars, messages)) > _BULKY_CHARS:
            return await asyncio.to_thread(self._build, tuple(messages), tools)
        return self._build(messages, tools)

    def _build(self, messages: Sequence[Message], tools: Sequence[ModelTool]) -> Built:
        definitions = self._definitions(tools)
        answer = min(self._answer_tokens, max(self._context_tokens - definitions, 0) // 2)
        return build(messages, self._context_tokens, self._tokens, reserve_tokens=definitions + answer)

    def _definitions(self, tools: Sequence[ModelTool]) -> int:
        """Tokens of the definitions; remembered, because most streams have the same."""
        latest, tokens = self._latest
        if latest != tools:
            written = (json.dumps([t.name, t.description, dict(t.parameters)], ensure_ascii=False) for t in tools)
            tokens = sum(self._tokens.count(text) + _TOOL_TOKENS for text in written)
            self._latest = (tools, tokens)
        return tokens


@dataclass(slots=True)
class Turn:
    """Collects the model's events and returns the stream's events, batch by batch.

    *taken* holds the call ids of the whole stream: a model that repeats an id, or leaves it out, still gets
    unique ones, in the stream and in the history alike (CHAT-48). Ids and names are such that a client can send them
    back in its next request, whatever the model wrote.

    A turn whose text reaches MAX_TEXT_CHARS is *overlong*: it has ended with ``length``, and nothing more of it is to
    be read (CHAT-94).
    """

    taken: set[str]
    calls: list[ToolCall] = field(default_factory=list)
    finish: Finish | None = None
    overlong: bool = False
    _text: list[str] = field(default_factory=list)
    _latest: list[str] = field(default_factory=list)
    chars: int = 0

    def read(self, batch: Sequence[ModelEvent]) -> list[Event]:
        events: list[Event] = []
        keep = self._latest.append
        for event in batch:
            if type(event) is TextDelta:  # nearly all of them
                keep(event.content)
                self.chars += len(event.content)
                events.append(event)
                continue
            match event:
                case ToolCall():
                    name = event.name[:MAX_NAME_CHARS] or _NO_NAME
                    call = ToolCall(self._unique(event.id), name, event.arguments, event.raw)
                    self.calls.append(call)
                    events.append(ToolCallEvent(call.id, call.name, call.arguments or {}))
                case Finish():
                    self.finish = event
        if len(self._latest) >= _JOINED_AT:
            self._join()
        if self.chars >= MAX_TEXT_CHARS and self.finish is None:
            self.overlong, self.finish = True, Finish("length", None)
        return events

    def pass_on(self, text: str, take: TakeText) -> bool:
        """Read one TextDelta that *take* takes in the place of the reader. Returns False, and nothing is read, if it
        does not, or if the turn would become overlong."""
        chars = self.chars + len(text)
        if chars >= MAX_TEXT_CHARS or not take(text):
            return False
        self.chars = chars
        latest = self._latest
        latest.append(text)
        if len(latest) >= _JOINED_AT:
            self._join()
        return True

    def _join(self) -> None:
        """Now and then, because each piece by itself takes 70 bytes, whatever its text."""
        self._text.append("".join(self._latest))
        self._latest.clear()

    def cut_off(self) -> tuple[str, str] | None:
        """The id of the call in which the model's output limit has cut this turn off, and what the model is to learn of
        it (CHAT-99); None if there is none."""
        if self.finish is None or self.finish.reason != "length" or not self.calls:
            return None
        last = self.calls[-1]
        if last.arguments is not None:
            return None
        written = self.finish.usage.completion_tokens if self.finish.usage else 0
        known = [tokens for tokens in (written, self.finish.most_tokens) if tokens]
        where = f"{min(known)} tokens" if known else "the limit of one answer"
        return last.id, f"not run: this call was cut off at {where}: make it shorter, or do it in several calls"

    def message(self) -> Message:
        """The assistant message of this turn; text before the calls is kept (CHAT-43).

        Arguments that were not an object become ``{}``: several providers refuse a history that holds them.
        """
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join([*self._text, *self._latest]),
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": (call.arguments and call.raw) or "{}"},
                }
                for call in self.calls
            ],
        }
        if self.finish is not None and self.finish.kept is not None:
            message["kept"] = self.finish.kept
        return message

    def _unique(self, wanted: str) -> str:
        if len(wanted) > MAX_CALL_ID_CHARS - _NUMBER_CHARS:
            wanted = ""
        # A number behind a repeated id; it counts from those taken, so that few are tried.
        candidate, attempt = wanted, len(self.taken)
        while not candidate or candidate in self.taken:
            attempt += 1
            candidate = f"{wanted or 'call'}_{attempt}"
        self.taken.add(candidate)
        return candidate


def _chars(message: Message) -> int:
    arguments = sum(len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))
    return _MESSAGE_CHARS + len(message["content"]) + arguments
