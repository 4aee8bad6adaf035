"""Long calls as tasks, for clients of 2026-07-28 that know the extension ``io.modelcontextprotocol/tasks`` (FACE-80 to
FACE-84).

A call that outlives ``tasks.after_s`` is answered with a task: an id that is sealed for its actor and this face, by
which the client asks how far it is (``tasks/get``), answers the server's questions (``tasks/update``) and ends it
(``tasks/cancel``). The SDK has none of it, so the methods are registered by hand.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from mcp import types as t
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.faces.mcp.fit import WHOLE
from wicketgate.faces.mcp.held import HeldCall, HeldCalls

log = logging.getLogger("wicketgate.mcp")

TASKS = "io.modelcontextprotocol/tasks"

_POLL_MS = 1_000
_PURPOSE = "task"
_SEALED_S = 30 * 86_400.0
"""Longer than any call runs and any result is kept, which is what bounds a task."""

Ctx = ServerRequestContext[Any, Any]


class TaskParams(t.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class Tasks:
    """The tasks of one door, over the calls that it holds. *face* and the actor are sealed into the ids."""

    def __init__(self, held: HeldCalls, seal: Seal, face: str, who: Callable[[Ctx], Identity]) -> None:
        self._held = held
        self._seal = seal
        self._purpose = f"{_PURPOSE} {face}"
        self._who = who

    def add_to(self, server: "Server[Any]") -> None:
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.middleware.append(self._declare)

    def after_s(self, ctx: Ctx) -> float | None:
        """The time after which a call of *ctx* becomes a task; None if it never does."""
        becomes = ctx.method == "tools/call" and self._offered(ctx) and _knows(ctx)
        return self._held.after_s if becomes else None

    def created(self, ctx: Ctx, call: HeldCall[Any]) -> dict[str, Any]:
        """The answer in place of the result of a call that goes on."""
        identity = self._who(ctx)
        task_id = self._seal.seal(self._purpose, identity.actor, call.id, _SEALED_S)
        return {"resultType": "task", **_head(task_id, "working", call)}

    async def _get(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        call = self._find(ctx, params.task_id)
        status, more = _state(call, ctx.protocol_version)
        self._held.shown(call)
        return {**WHOLE, **_head(params.task_id, status, call), **more}

    async def _update(self, ctx: Ctx, params: UpdateParams) -> dict[str, Any]:
        self._find(ctx, params.task_id).caller.take(params.input_responses)
        return dict(WHOLE)

    async def _cancel(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        self._held.cancel(self._find(ctx, params.task_id))
        return dict(WHOLE)

    async def _declare(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Middleware: shows the extension to clients that can use it, and refuses to listen for tasks to others."""
        if ctx.method == "subscriptions/listen" and self._offered(ctx):
            wanted = (ctx.params or {}).get("notifications")
            if isinstance(wanted, Mapping) and wanted.get("taskIds") is not None and not _knows(ctx):
                raise _undeclared()
        result = await call_next(ctx)
        if ctx.method != "server/discover" or not self._offered(ctx) or not isinstance(result, dict):
            return result
        can = result.get("capabilities") or {}
        return {**result, "capabilities": {**can, "extensions": {**(can.get("extensions") or {}), TASKS: {}}}}

    def _offered(self, ctx: Ctx) -> bool:
        return bool(self._held.after_s) and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def _find(self, ctx: Ctx, task_id: str) -> HeldCall[Any]:
        """The call of a task. Raises MCPError, the same for what is not there and what is another's."""
        if not self._offered(ctx):
            raise MCPError(t.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not _knows(ctx):
            raise _undeclared()
        named = None if ctx.request is None else ctx.request.headers.get(MCP_NAME_HEADER)
        if named is not None and decode_header_value(named) != task_id:
            raise MCPError(t.HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the request body's 'taskId'")
        identity = self._who(ctx)
        sealed = self._seal.open(self._purpose, identity.actor, task_id) if task_id.isascii() else None
        call = None if sealed is None or self._seal.expired(sealed) else self._held.task(identity, sealed.text)
        if call is None:
            raise MCPError(t.INVALID_PARAMS, "Task not found")
        return call


def _knows(ctx: Ctx) -> bool:
    can = ctx.session.client_capabilities
    return can is not None and TASKS in (can.extensions or {})


def _undeclared() -> MCPError:
    wanted: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return MCPError(t.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", wanted)


def _head(task_id: str, status: str, call: HeldCall[Any]) -> dict[str, Any]:
    kept_s = call.kept_s
    head: dict[str, Any] = {
        "taskId": task_id,
        "status": status,
        "createdAt": _iso(call.created),
        "lastUpdatedAt": _iso(call.caller.changed),
        # As long as it runs it is not given up.
        "ttlMs": None if kept_s is None else int(kept_s * 1_000),
        "pollIntervalMs": _POLL_MS,
    }
    if status == "working" and call.caller.message:
        head["statusMessage"] = call.caller.message
    return head


def _state(call: HeldCall[Any], version: str) -> tuple[str, dict[str, Any]]:
    """The status, and what belongs to it. A result is what the call would have been answered with."""
    if not call.ended:
        requests = call.caller.open()
        return ("input_required", {"inputRequests": requests}) if requests else ("working", {})
    if call.cancelled:
        return "cancelled", {}
    try:
        return "completed", {"result": serialize_server_result("tools/call", version, call.outcome())}
    except MCPError as error:
        failure = error.error
    except ValidationError:
        log.exception("the result of a task is not valid")
        failure = t.ErrorData(code=t.INTERNAL_ERROR, message="Handler returned an invalid result")
    except Exception:
        log.exception("a task failed")
        failure = t.ErrorData(code=t.INTERNAL_ERROR, message="The call failed inside the gateway.")
    return "failed", {
        "error": failure.model_dump(by_alias=True, mode="json", exclude_none=True),
        "statusMessage": failure.message,
    }


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
