"""The loop of the drivers in Python. It needs the standard library only: it runs in the environment of each client."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

URL = os.environ.get("MCP_URL", "")
HEADERS = {"Authorization": f"Bearer {os.environ.get('MCP_KEY', '')}"}
ERA = os.environ.get("MCP_ERA", "")
COMMAND: list[str] = json.loads(os.environ.get("MCP_COMMAND", "[]"))

ANSWER = {"name": "Ada"}
Do = Callable[[dict[str, Any]], Awaitable[Any]]


def plain(value: Any) -> Any:
    """A model of the library as JSON, with the names of the wire."""
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if hasattr(value, "model_dump") else value


async def serve(do: Do) -> None:
    """Answers commands until stdin ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order: dict[str, Any] = json.loads(line)
        try:
            reply: dict[str, Any] = {"ok": plain(await do(order))}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}", "code": getattr(error, "code", None)}
            inner = getattr(error, "error", None)
            if inner is not None:
                reply |= {"code": getattr(inner, "code", None), "data": plain(getattr(inner, "data", None))}
        print(json.dumps(reply, default=str), flush=True)
