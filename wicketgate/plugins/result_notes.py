"""Plugins that note facts about a call in its result: a trace, and the cost in tokens (gatekit G106, "token usage")."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from wicketgate.gateway.options import estimate_tokens
from wicketgate.plugin_api import CONTINUE, Continue, MiddlewarePlugin, Request, Result
from wicketgate.results.firewall import is_bulky

META_KEY = "wicketgate/tokens"


class CallTrace(MiddlewarePlugin):
    """Adds one text block to every result of a tool: server, tool, argument names, its size, and the id of the call.

    It is for setting a gateway up, not for production.
    """

    async def on_result(self, request: Request, result: Result) -> Continue:
        if request.method != "tools/call":  # results of other methods have no place for a block
            return CONTINUE
        _, size_bytes = await _json_size(result)
        lines = (
            "Wicketgate trace",
            f"server: {request.server}",
            f"tool: {request.name}",
            f"arguments: {', '.join(sorted(request.arguments))}",
            f"result_bytes: {size_bytes}",
            f"request_id: {request.id}",
        )
        # The trace comes last, behind what the tool gave.
        content = result.get("content")
        blocks = list(content) if isinstance(content, list) else []
        return Continue({**result, "content": [*blocks, {"type": "text", "text": "\n".join(lines)}]})


class TokenUsage(MiddlewarePlugin):
    """Puts ``{"arguments", "result"}`` under ``_meta["wicketgate/tokens"]`` of the result, and into the audit record.

    A token is estimated at four characters: exact counts are kept for what has to fit a budget.
    """

    async def on_result(self, request: Request, result: Result) -> Continue:
        # The part that a model is given, whatever the method.
        shown = next((result[key] for key in ("content", "contents", "messages") if key in result), None)
        arguments_chars, _ = await _json_size(request.arguments)
        result_chars, _ = await _json_size(shown)
        usage = {"arguments": estimate_tokens(arguments_chars), "result": estimate_tokens(result_chars)}
        meta = result.get("_meta")
        kept: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
        note = f"arguments: {usage['arguments']}, result: {usage['result']}"
        return Continue({**result, "_meta": {**kept, META_KEY: usage}}, note)


async def _json_size(value: object) -> tuple[int, int]:
    """Returns characters and bytes of a value as JSON; zero if JSON cannot express it. Large ones go to a thread."""
    return await asyncio.to_thread(_measure, value) if is_bulky(value) else _measure(value)


def _measure(value: object) -> tuple[int, int]:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return 0, 0
    return len(text), len(text.encode("utf-8", "surrogatepass"))
