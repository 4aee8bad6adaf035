"""Conversations for the tests of the context: how to write one down, and any one that a client could send."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from wicketgate.results.page import FAILED

Message = Mapping[str, Any]


class FourCharacters:
    """A TextCounter that can be reckoned in the head: a token is four characters, begun ones included."""

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def step(results: Mapping[str, str], text: str = "", tool: str = "tool_view") -> list[Message]:
    """An assistant message that calls *tool* once for each id, and the tool messages."""
    calls = [{"id": call, "type": "function", "function": {"name": tool, "arguments": "{}"}} for call in results]
    return [
        {"role": "assistant", "content": text, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": call, "content": content} for call, content in results.items()),
    ]


def page(text: str, *handles: str, failed: bool = False) -> str:
    """The page of a result; *handles* name what is not on it."""
    return "\n".join(
        [*([FAILED] if failed else []), text, *(f"[artifact {handle} (text/plain, 9 bytes)]" for handle in handles)]
    )


def cards(*ids: str) -> str:
    return "\n".join(f"{name} — What it does, told in a line of its own." for name in ids)


def told(messages: Sequence[Message]) -> list[str]:
    """A transcript: a line a message."""
    return [f"{message['role']}: {message['content'] or len(message['tool_calls'])}" for message in messages]


def pieces(messages: Sequence[Message]) -> list[str]:
    """A mark of each message, whatever was done to its text (that of `conversations` ends in a number of its own)."""
    return [
        message.get("tool_call_id")
        or ",".join(call["id"] for call in message.get("tool_calls", ()))
        or message["content"].rpartition("#")[2]
        for message in messages
    ]


_lengths = st.integers(0, 900)


@st.composite
def _result(draw: st.DrawFn) -> str:
    text = "x y " * (draw(_lengths) // 4)
    kind = draw(st.sampled_from(["page", "cards", "error", "foreign"]))
    match kind:
        case "page":
            handles = ["text:shop:orders#12345678:0123456789abcdef"] * draw(st.integers(0, 3))
            return page(text, *handles, failed=draw(st.booleans()))
        case "cards":
            return cards(*(f"shop:tool_{n}#12345678" for n in range(draw(st.integers(0, 25)))))
        case "error":
            return json.dumps({"error": "ARGS_INVALID", "message": text, "path": "", "details": {"expected": text}})
        case _:
            return text


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Any history that the contract accepts: system messages anywhere but within a step, turns without an answer."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 12))):
        number = len(messages)
        text = "a b " * (draw(_lengths) // 8) + f"#{number}"
        kind = draw(st.sampled_from(["user", "user", "assistant", "step", "step", "step", "system"]))
        match kind:
            case "user":
                messages.append(user(text))
            case "assistant":
                messages.append(assistant(text))
            case "system":
                messages.append(system(f"#{number}"))
            case _:
                results = draw(st.lists(_result(), min_size=1, max_size=3))
                messages += step({f"c{number}_{i}": result for i, result in enumerate(results)}, "Let me see.")
    return messages
