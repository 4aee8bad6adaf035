"""The recorded provider streams, and the result of reading one of them in pieces."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.models.openai.stream import ChatStream
from wicketgate.models.provider import Finish, TextDelta, ToolCall
from wicketgate.models.turn_reading import TurnReading

FOLDER = Path(__file__).parent / "provider_streams"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
HTTP_ERRORS: list[dict[str, Any]] = json.loads((FOLDER / "http_errors.json").read_text())

CONTEXT_TOKENS = 8192


@dataclass(slots=True)
class Answer:
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    end: Finish | None = None
    failure: ProviderError | ContextOverflow | None = None

    def summary(self) -> dict[str, Any]:
        """In the words of ``expected.json``."""
        usage = self.end.usage if self.end else None
        counted = usage and {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "finish": self.end.reason if self.end else None,
            "error": self.failure.code if self.failure else None,
            "usage": counted,
            "calls": [
                {"id": call.id, "name": call.name, "arguments": call.arguments, "valid": call.arguments is not None}
                for call in self.calls
            ],
        }


def expected(name: str) -> dict[str, Any]:
    return {key: value for key, value in EXPECTED[name].items() if key != "given"}


def context_tokens(name: str) -> int:
    limit: int = EXPECTED[name].get("given", {}).get("ctx_limit", CONTEXT_TOKENS)
    return limit


def stream_bytes(name: str) -> bytes:
    return (FOLDER / f"{name}.sse").read_bytes()


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """*data* cut at *places*, each taken modulo its length."""
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(bounds)]


def read(pieces: Iterable[bytes], context_tokens: int = CONTEXT_TOKENS) -> Answer:
    """The answer that a chat-completions reader finds in *pieces* and the end of the connection."""
    return read_with(ChatStream(context_tokens), pieces)


def read_with(stream: TurnReading, pieces: Iterable[bytes]) -> Answer:
    answer = Answer()
    for piece in pieces:
        _collect(stream.feed(piece), answer)
        if stream.ended or stream.failure:
            break
    else:
        _collect(stream.close(), answer)
    answer.failure = stream.failure
    answer.reasoning = stream.reasoning
    return answer


def _collect(events: Iterable[object], answer: Answer) -> None:
    for event in events:
        assert answer.end is None, "nothing may follow the end of the turn"
        match event:
            case TextDelta():
                answer.text += event.content
            case ToolCall():
                answer.calls.append(event)
            case Finish():
                answer.end = event
