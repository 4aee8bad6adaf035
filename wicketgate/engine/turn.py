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
from wicketgate.models.provider import Finish, Message, ModelEvent, ModelTool, TextDelta, ToolCall

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
    """

    taken: set[str]
    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    finish: Finish | None = None

    def read(self, batch: Sequence[ModelEvent]) -> list[Event]:
        events: list[Event] = []
        for event in batch:
            if type(event) is TextDelta:  # nearly all of them
                self.text.append(event.content)
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
        return events

    def message(self) -> Message:
        """The assistant message of this turn; text before the calls is kept (CHAT-43).

        Arguments that were not an object become ``{}``: several providers refuse a history that holds them.
        """
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self.text),
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
