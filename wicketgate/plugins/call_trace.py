"""What happened to a call, told in its result (gatekit G106): for whoever sets a gateway up, not for production."""

import asyncio
import json

from wicketgate.plugin_api import CONTINUE, Continue, MiddlewarePlugin, Request, Result
from wicketgate.results.firewall import is_bulky


class CallTrace(MiddlewarePlugin):
    """Adds one text block to every result of a tool: server, tool, argument names, its size, and the call's id."""

    async def on_result(self, request: Request, result: Result) -> Continue:
        if request.method != "tools/call":  # those of other methods have no place for it
            return CONTINUE
        size = await asyncio.to_thread(_size, result) if is_bulky(result) else _size(result)
        lines = (
            "Wicketgate trace",
            f"server: {request.server}",
            f"tool: {request.name}",
            f"arguments: {', '.join(sorted(request.arguments))}",
            f"result_bytes: {size}",
            f"request_id: {request.id}",
        )
        content = result.get("content")
        blocks = list(content) if isinstance(content, list) else []
        return Continue({**result, "content": [*blocks, {"type": "text", "text": "\n".join(lines)}]})


def _size(result: Result) -> int:
    try:
        return len(json.dumps(result, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        return 0
