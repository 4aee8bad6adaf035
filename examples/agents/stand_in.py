"""The demo's scripted model behind the API of chat completions, so that the examples run without an account.

Start ``python -m examples.agents.stand_in``; then set OPENAI_BASE_URL=http://127.0.0.1:8090/v1 and OPENAI_API_KEY=none.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from wicketgate.models.scripted.model import Call, next_move

app = FastAPI()


@app.post("/v1/chat/completions")
async def complete(request: Request) -> Response:
    wanted = await request.json()
    messages = [{**message, "content": _text(message.get("content"))} for message in wanted["messages"]]
    tools = {tool["function"]["name"] for tool in wanted.get("tools") or ()}
    move = next_move([message for message in messages if message["role"] != "system"], tools)
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(move, Call):
        function = {"name": move.name, "arguments": json.dumps(move.arguments)}
        message["tool_calls"] = [{"id": f"call_{len(messages)}", "type": "function", "function": function}]
    else:
        message["content"] = move
    ended = "tool_calls" if isinstance(move, Call) else "stop"
    body = {"id": "chatcmpl-1", "created": 0, "model": wanted["model"]}
    if wanted.get("stream"):
        return StreamingResponse(_events(body, message, ended), media_type="text/event-stream")
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": ended}
    answer = {**body, "object": "chat.completion", "choices": [choice], "usage": usage}
    return Response(json.dumps(answer), media_type="application/json")


def _events(body: Mapping[str, Any], message: Mapping[str, Any], ended: str) -> Iterator[str]:
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls") or ())]
    delta = {**message, "tool_calls": calls} if calls else message
    for piece, reason in ((delta, None), ({}, ended)):
        choice = {"index": 0, "delta": piece, "finish_reason": reason}
        yield f"data: {json.dumps({**body, 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"


def _text(content: Any) -> str:
    """The text of a message; some frameworks send a tool's result as the JSON of its MCP content."""
    with suppress(ValueError, TypeError, KeyError):
        read = json.loads(content)
        content = read["content"] if isinstance(read, dict) else read if isinstance(read, list) else content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return "" if content is None else str(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8090)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port)
