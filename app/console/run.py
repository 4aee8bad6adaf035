"""A run of a tool from the console: by the caller's own permissions, like any other call (OPS-232, OPS-233)."""

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from app.console.tool import bounded
from wicketgate.errors import GatewayError, UpstreamUnavailable
from wicketgate.faces.long_calls import execution_result
from wicketgate.faces.meta_tool import CONNECTING, dry_run_result, failure, json_result
from wicketgate.gate import Gate
from wicketgate.gateway.calls import CalledTool, DryRun
from wicketgate.ports import CallContext
from wicketgate.results.firewall import is_bulky


async def run_tool(gate: Gate, tool_id: str, args: object, context: CallContext, *, dry_run: bool) -> Mapping[str, Any]:
    """The envelope, or the failure in its place, as ``tool_execute`` gives them, with what was sent to the server and
    what came back."""
    made: list[CalledTool] = []
    began = perf_counter()
    try:
        if not gate.lifecycle.started():
            raise UpstreamUnavailable(CONNECTING)
        await gate.runtime.browsing.prepare(context)
        ended = await gate.runtime.execute(tool_id, args, context, dry_run=dry_run, show=made.append)
        result = dry_run_result(ended) if isinstance(ended, DryRun) else execution_result(ended)
    except GatewayError as error:
        result = failure(error)
    took = perf_counter() - began
    call = made[0] if made else None
    return {
        "is_error": result.is_error,
        "envelope": result.structured,
        "text": result.shown,
        "tokens": gate.runtime.tokens.count(result.shown),
        "request": call and bounded({"name": call.item.upstream_name, "arguments": dict(call.args)}),
        "response": await _response(call),
        "called": call is not None,
        "duration_ms": round(took * 1_000, 3),
        "correlation_id": context.correlation_id,
    }


async def _response(call: CalledTool | None) -> Any:
    if call is None:
        return None
    result = dict(call.result)
    return await asyncio.to_thread(bounded, result) if is_bulky(result) else bounded(result)


async def view_part(gate: Gate, handle: str, selector: object, context: CallContext) -> Mapping[str, Any]:
    """A part of an artifact, as ``tool_view`` gives it; pictures and sounds only as what they are."""
    try:
        view = await gate.runtime.view(handle, selector, context)
    except GatewayError as error:
        result = failure(error)
    else:
        body = {"handle": handle, "selector": selector, "content": view.content, "total": view.total}
        result = json_result(body if view.next is None else {**body, "next": view.next})
    return {"is_error": result.is_error, "view": result.structured, "text": result.shown}
