"""The requests that are made: bodies that an engine must take, and bodies that it must refuse (cases E02 to E28)."""

import itertools
from collections.abc import Mapping
from typing import Any

DEFAULT_PROMPT = "Say hello, and nothing else."

_numbers = itertools.count(1)


def body(prompt: str, **metadata: Any) -> dict[str, Any]:
    """A good request with a trace id of its own."""
    return with_messages([{"role": "user", "content": prompt}], **metadata)


def with_messages(messages: Any, **metadata: Any) -> dict[str, Any]:
    return {"messages": messages, "metadata": {"correlation_id": f"conform-{next(_numbers)}", **metadata}}


_USER = {"role": "user", "content": "hi"}
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_META = {"correlation_id": "conform-0"}

REFUSED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "E02": ("a body that is not JSON is 400", {"{bad": b"{bad", "a cut body": b'{"messages": [{"role": "user"'}),
    "E03": (
        "a body that is not an object is 400",
        {"an array": b"[]", "a string": b'"x"', "an empty body": b"", "null": b"null"},
    ),
    "E04": ("missing messages are 400", {"no messages": {}, "only metadata": {"metadata": _META}}),
    "E05": ("an empty list of messages is 400", {"no message": with_messages([])}),
    "E06": (
        "messages that are malformed are 400",
        {
            "messages as text": with_messages("hi"),
            "a number for a message": with_messages([5]),
            "no role": with_messages([{"content": "hi"}]),
            "no content": with_messages([{"role": "user"}]),
        },
    ),
    "E07": ("an unknown role is 400", {"role robot": with_messages([{"role": "robot", "content": "hi"}])}),
    "E08": (
        "content that is not a string is 400",
        {
            "content in parts": with_messages([{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
            "content null": with_messages([{"role": "user", "content": None}]),
        },
    ),
    "E10": ("missing metadata is 400: the correlation id is required", {"no metadata": {"messages": [_USER]}}),
    "E11": (
        "metadata without a usable correlation id is 400",
        {
            "metadata as text": {"messages": [_USER], "metadata": "x"},
            "metadata as a list": {"messages": [_USER], "metadata": [1]},
            "empty metadata": {"messages": [_USER], "metadata": {}},
            "an empty correlation id": with_messages([_USER], correlation_id=""),
            "a number for a correlation id": with_messages([_USER], correlation_id=7),
        },
    ),
    "E12": ("an unknown trigger is 400", {"trigger cron": body("hi", trigger="cron")}),
    "E14": ("client_context that is not an object is 400", {"client_context 5": body("hi", client_context=5)}),
}

UNPAIRED: Mapping[str, dict[str, Any]] = {
    "a tool message without tool_call_id": with_messages([_USER, {"role": "tool", "content": "x"}]),
    "tool calls without results": with_messages(
        [_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _USER]
    ),
}

TAKEN: Mapping[str, tuple[str, Mapping[str, dict[str, Any]]]] = {
    "E09": ("empty content is taken", {"content ''": with_messages([{"role": "user", "content": ""}])}),
    "E14b": (
        "client_context is taken, whatever it holds",
        {"a context": body("hi", client_context={"path": "/f", "x": {}})},
    ),
    "E28": (
        "an assistant's message last, or a system message alone, is passed on",
        {
            "assistant last": with_messages([_USER, {"role": "assistant", "content": "and"}]),
            "system alone": with_messages([{"role": "system", "content": "Say hello."}]),
        },
    ),
}

UNKNOWN_FIELDS = {
    "tools": [{"type": "function", "function": {"name": "rm", "parameters": {"type": "object"}}}],
    "model": "another-model",
    "temperature": 2,
    "max_tokens": 1,
}
