"""Stands in for the Anthropic SDK: takes what the API takes for a message, and prints it."""

import json
from typing import Any


class _Messages:
    def create(self, *, model: str, max_tokens: int, tools: list[dict[str, Any]], messages: list[Any]) -> None:
        for tool in tools:
            assert (
                {"name", "description", "input_schema"}
                <= set(tool)
                <= {
                    *("name", "description", "input_schema", "cache_control"),
                }
            )
        print(json.dumps({"model": model, "max_tokens": max_tokens, "tools": tools, "messages": messages}))


class Anthropic:
    def __init__(self) -> None:
        self.messages = _Messages()
