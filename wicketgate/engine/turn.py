"""One model turn being read: what it said, which tools it wants, and the message that goes into the history."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wicketgate.engine.contract import MAX_CALL_ID_CHARS, MAX_NAME_CHARS
from wicketgate.engine.events import Event, ToolCallEvent
from wicketgate.models.provider import Finish, Message, ModelEvent, TextDelta, ToolCall

_NO_NAME = "unnamed_tool"
_NUMBER_CHARS = 12


@dataclass(slots=True)
class Turn:
    """Collects model events and gives the stream's events back, batch by batch.

    *taken* holds the call ids of the whole stream: a model that repeats an id, or leaves it out, still gets
    unique ones, in the stream and in the history alike (E51, E52). Ids and names are such that a client can send them
    back in its next request, whatever the model wrote.
    """

    taken: set[str]
    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    finish: Finish | None = None

    def take(self, batch: Sequence[ModelEvent]) -> list[Event]:
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
        """The assistant message of this turn; text said before the calls is kept (E43).

        Arguments that were not an object go back as ``{}``: several providers refuse a history that holds them.
        """
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self.text),
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
                for call in self.calls
            ],
        }
        if self.finish is not None and self.finish.kept is not None:
            message["kept"] = self.finish.kept
        return message

    def _unique(self, wanted: str) -> str:
        if len(wanted) > MAX_CALL_ID_CHARS - _NUMBER_CHARS:
            wanted = ""
        candidate, attempt = wanted, len(self.taken)
        while not candidate or candidate in self.taken:
            attempt += 1
            candidate = f"{wanted or 'call'}_{attempt}"
        self.taken.add(candidate)
        return candidate


def _arguments(call: ToolCall) -> str:
    return call.raw if call.arguments and call.raw else "{}"
