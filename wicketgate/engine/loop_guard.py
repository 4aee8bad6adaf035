"""The same call again and again, with the same result, is answered for the tool from some time on (E62).

What counts is the whole history of the run, since the last word of the user, whatever of it the model is still shown.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from wicketgate.models.provider import Message, ToolCall

PREFIX = "loop_guard: "


@dataclass(slots=True)
class _Seen:
    result: str
    times: int


class LoopGuard:
    """*most*: from which identical call on nothing is run; None is never. A result that changes begins anew, so that
    waiting for something is not taken for a loop."""

    def __init__(self, most: int | None, history: Iterable[Message] = ()) -> None:
        self._most = most
        self._seen: dict[tuple[str, str], _Seen] = {}
        if most is not None:
            self._read(history)

    def refusal(self, call: ToolCall) -> str:
        """Why *call* is not run; empty if it may be."""
        if self._most is None:
            return ""
        seen = self._seen.get(_key(call))
        if seen is None or seen.times < self._most - 1:
            return ""
        return (
            f"{PREFIX}this very call has had the same result {seen.times} times, so it was not run again. "
            "Use that result, change the arguments, or do something else."
        )

    def note(self, call: ToolCall, result: str) -> None:
        if self._most is None or result.startswith(PREFIX):
            return
        seen = self._seen.setdefault(_key(call), _Seen(result, 0))
        if seen.result != result:
            seen.result, seen.times = result, 0
        seen.times += 1

    def _read(self, history: Iterable[Message]) -> None:
        calls: dict[str, ToolCall] = {}
        for message in history:
            match message["role"]:
                case "user":
                    self._seen.clear()
                case "assistant":
                    for call in message.get("tool_calls") or ():
                        function = call["function"]
                        calls[call["id"]] = ToolCall(call["id"], function["name"], None, function["arguments"])
                case "tool" if (made := calls.get(message["tool_call_id"])) is not None:
                    self.note(made, message["content"])


def _key(call: ToolCall) -> tuple[str, str]:
    """Name and arguments in one spelling; what is not JSON is compared as it was written."""
    try:
        arguments = call.arguments if call.arguments is not None else json.loads(call.raw)
        return call.name, json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return call.name, call.raw
