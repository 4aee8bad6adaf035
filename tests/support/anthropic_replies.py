"""Replies of a ModelServer in the dialect of Anthropic Messages.

async with ModelServer(messages_tool_turn(("toolu_1", "tool_browse", {"path": "/"})), messages_text_turn("Done.")):
    ...
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.model_server import Reply

PING = b'event: ping\ndata: {"type": "ping"}\n\n'
STOP = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begin(input_tokens: int = 10, **usage: int) -> bytes:
    counted = {"input_tokens": input_tokens, "output_tokens": 1, **usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": counted}
    return event("message_start", message=message)


def block(index: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[bytes]:
    """One content block, each delta in an event of its own."""
    return [
        event("content_block_start", index=index, content_block=start),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def text_block(index: int, *texts: str) -> list[bytes]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


def thinking_block(index: int, thought: str, signature: str) -> list[bytes]:
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": thought},
        {"type": "signature_delta", "signature": signature},
    )


def tool_block(index: int, call_id: str, name: str, arguments: Mapping[str, Any] | str) -> list[bytes]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    middle = len(raw) // 2
    return block(
        index,
        {"type": "tool_use", "id": call_id, "name": name, "input": {}},
        {"type": "input_json_delta", "partial_json": raw[:middle]},
        {"type": "input_json_delta", "partial_json": raw[middle:]},
    )


def end(stop_reason: str | None, output_tokens: int = 5) -> list[bytes]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [event("message_delta", delta=delta, usage={"output_tokens": output_tokens}), STOP]


def messages_text_turn(*texts: str, stop_reason: str = "end_turn", usage: tuple[int, int] = (10, 5)) -> Reply:
    return Reply([begin(usage[0]), PING, *text_block(0, *texts), *end(stop_reason, usage[1])])


def messages_tool_turn(
    *calls: tuple[str, str, Mapping[str, Any] | str],
    text: str = "",
    thinking: tuple[str, str] | None = None,
    usage: tuple[int, int] = (10, 5),
) -> Reply:
    """*thinking* is a thought and its signature."""
    blocks: list[Sequence[bytes]] = []
    if thinking:
        blocks.append(thinking_block(len(blocks), *thinking))
    if text:
        blocks.append(text_block(len(blocks), text))
    for call in calls:
        blocks.append(tool_block(len(blocks), *call))
    return Reply([begin(usage[0]), *(step for steps in blocks for step in steps), *end("tool_use", usage[1])])
