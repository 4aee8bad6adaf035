"""The part of OpenAI's package that the guide uses, with the scripted model behind it."""

import json
from types import SimpleNamespace
from typing import Any

from wicketgate.models.scripted.model import Call, next_move


class AsyncOpenAI:
    def __init__(self) -> None:
        self.chat = SimpleNamespace(completions=self)

    async def create(self, model: str, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        said = [message if isinstance(message, dict) else message.as_dict for message in messages]
        move = next_move(said, {tool["function"]["name"] for tool in tools})
        message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": None}
        calls = None
        if isinstance(move, Call):
            function = {"name": move.name, "arguments": json.dumps(move.arguments)}
            message["tool_calls"] = [{"id": f"call_{len(said)}", "type": "function", "function": function}]
            calls = [SimpleNamespace(id=f"call_{len(said)}", function=SimpleNamespace(**function))]
        else:
            message["content"] = move
        turn = SimpleNamespace(content=message["content"], tool_calls=calls, as_dict=message)
        return SimpleNamespace(choices=[SimpleNamespace(message=turn)])
