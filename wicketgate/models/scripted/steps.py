"""What has happened since the last user message, as the scripted model reads it from the conversation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wicketgate.models.provider import Message
from wicketgate.models.scripted.arguments import Filling, fill_arguments, read_expected


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A call that was made, and what came back: the JSON object, or other text under ``text``."""

    call: Call
    result: Mapping[str, Any]

    @property
    def tool_id(self) -> str:
        return str(self.call.arguments.get("tool_id", ""))

    @property
    def args(self) -> Mapping[str, Any]:
        args = self.call.arguments.get("args")
        return args if isinstance(args, Mapping) else {}

    @property
    def refused(self) -> bool:
        """Whether the arguments did not fit, so that nothing ran and the result teaches what would."""
        return self.result.get("error") == "ARGS_INVALID"

    @property
    def details(self) -> Mapping[str, Any]:
        return self.result.get("details") or {}


def read_conversation(messages: Sequence[Message]) -> tuple[str, list[Step]]:
    """The last user message, and the answered calls after it in order."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            question = str(messages[index].get("content") or "").strip()
            return question, list(_steps(messages[index + 1 :]))
    return "", []


def refill(question: str, step: Step) -> Filling:
    """What *question* gives for the arguments that the refusal of *step* told, without the values that it refused."""
    wrong = {_top_name(error.get("path")) for error in step.details.get("errors") or ()}
    keep = {name: value for name, value in step.args.items() if name not in wrong}
    refused = {name: value for name, value in step.args.items() if name in wrong}
    return fill_arguments(question, read_expected(step.details.get("expected") or {}), keep, refused)


def read_object(text: str) -> dict[str, Any]:
    """The JSON object that *text* is, else ``{"text": text}``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"text": text}


def _steps(messages: Sequence[Message]) -> Iterator[Step]:
    answers = {message.get("tool_call_id"): message for message in messages if message.get("role") == "tool"}
    for message in messages:
        for call in message.get("tool_calls") or ():
            if answer := answers.get(call["id"]):
                function = call["function"]
                made = Call(function["name"], read_object(function["arguments"]))
                yield Step(made, read_object(str(answer.get("content") or "")))


def _top_name(path: object) -> str:
    """``$.items[0].id`` is about the argument ``items``."""
    return str(path or "").removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
