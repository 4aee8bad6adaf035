"""Long calls as tasks, for clients of 2026-07-28 that know the extension ``io.modelcontextprotocol/tasks`` (FACE-80 to
FACE-84).

A call that outlives ``tasks.after_s`` is answered with a task: an id that is sealed for its actor and this face, by
which the client asks how far it is (``tasks/get``), answers the server's questions (``tasks/update``) and ends it
(``tasks/cancel``). The SDK has none of it, so the methods are registered by hand.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from mcp import types as t
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.faces.mcp.elsewhere import Elsewhere, TaskState, Wish, not_now
from wicketgate.faces.mcp.fit import WHOLE
from wicketgate.faces.mcp.held import HeldCalls
from wicketgate.faces.mcp.request import McpRequest
from wicketgate.gateway.kept_calls import HomeAway

log = logging.getLogger("wicketgate.mcp")

TASKS = "io.modelcontextprotocol/tasks"

_POLL_MS = 1_000
_PURPOSE = "task"
_SEALED_S = 30 * 86_400.0
"""Longer than any call runs and any result is kept, which is what bounds a task."""

NO_RESPONSES: Mapping[str, Any] = MappingProxyType({})

Ctx = ServerRequestContext[Any, Any]


class TaskParams(t.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class Tasks:
    """The tasks of one door, over the calls that it holds. *face* and the actor are sealed into the ids."""

    def __init__(
        self, held: HeldCalls, elsewhere: Elsewhere, seal: Seal, face: str, who: Callable[[McpRequest], Identity]
    ) -> None:
        self._held = held
        self._elsewhere = elsewhere
        self._seal = seal
        self._purpose = f"{_PURPOSE} {face}"
        self._who = who

    def add_to(self, server: "Server[Any]") -> None:
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.middleware.append(self._declare)

    def after_s(self, asked: McpRequest, can: Mapping[str, Any]) -> float | None:
        """The time after which a call becomes a task, for a client with the capabilities *can*; None if it never
        does."""
        becomes = asked.method == "tools/call" and self._offered(asked) and TASKS in can.get("extensions", ())
        return self._held.after_s if becomes else None

    def created(self, asked: McpRequest, state: TaskState) -> dict[str, Any]:
        """The answer in place of the result of a call that goes on."""
        identity = self._who(asked)
        task_id = self._seal.seal(self._purpose, identity.actor, state.id, _SEALED_S)
        return {"resultType": "task", **_head(task_id, state)}

    async def _get(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        return {**WHOLE, **_head(params.task_id, await self._state(ctx, params.task_id, "get"))}

    async def _update(self, ctx: Ctx, params: UpdateParams) -> dict[str, Any]:
        await self._state(ctx, params.task_id, "update", params.input_responses)
        return dict(WHOLE)

    async def _cancel(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        await self._state(ctx, params.task_id, "cancel")
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

    def _offered(self, asked: McpRequest) -> bool:
        return bool(self._held.after_s) and asked.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _state(
        self, ctx: Ctx, task_id: str, wish: Wish, responses: Mapping[str, Any] = NO_RESPONSES
    ) -> TaskState:
        """The task after *wish*. Raises MCPError, the same for what is not there and what is another's."""
        if not self._offered(ctx):
            raise MCPError(t.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not _knows(ctx):
            raise _undeclared()
        named = None if ctx.request is None else ctx.request.headers.get(MCP_NAME_HEADER)
        if named is not None and decode_header_value(named) != task_id:
            raise MCPError(t.HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the request body's 'taskId'")
        identity = self._who(ctx)
        sealed = self._seal.open(self._purpose, identity.actor, task_id) if task_id.isascii() else None
        state = None
        if sealed is not None and not self._seal.expired(sealed):
            try:
                state = await self._elsewhere.task(identity, sealed.text, wish, responses, ctx.protocol_version)
            except HomeAway as error:
                raise not_now(error) from None
        if state is None:
            raise MCPError(t.INVALID_PARAMS, "Task not found")
        return state


def _knows(ctx: Ctx) -> bool:
    can = ctx.session.client_capabilities
    return can is not None and TASKS in (can.extensions or {})


def _undeclared() -> MCPError:
    wanted: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return MCPError(t.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", wanted)


def _head(task_id: str, state: TaskState) -> dict[str, Any]:
    head: dict[str, Any] = {
        "taskId": task_id,
        "status": state.status,
        "createdAt": state.created,
        "lastUpdatedAt": state.changed,
        # As long as it runs it is not given up.
        "ttlMs": None if state.kept_s is None else int(state.kept_s * 1_000),
        "pollIntervalMs": _POLL_MS,
    }
    if state.message:
        head["statusMessage"] = state.message
    return {**head, **state.more}
