"""Held calls and tasks of other processes, and those of this one as others see them (FACE-105 to FACE-110).

A second attempt, and what is asked of a task, are answered from the row of the call. Answers and cancellations are
written next to it, for the process that runs the call.

For clients of 2026-07-28 that know the extension ``io.modelcontextprotocol/tasks`` long calls are tasks (FACE-80 to
FACE-84): a call that outlives ``tasks.after_s`` is answered with an id, sealed for its actor and this face. By it the
client asks how far the call is (``tasks/get``), answers the server's questions (``tasks/update``) and ends it
(``tasks/cancel``). The SDK has none of it, so the methods are registered by hand.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from wicketgate import mcp_names as names
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.errors import GatewayError, InputRequired
from wicketgate.faces.mcp.caller import HeldAnswers, McpCaller
from wicketgate.faces.mcp.fit import WHOLE, fitted_result
from wicketgate.faces.mcp.held import Asked, HeldCall, HeldCalls, NotHeld
from wicketgate.faces.mcp.request import McpRequest, RpcError
from wicketgate.faces.surface import Refusal
from wicketgate.gateway.kept_calls import (
    CANCEL,
    GIVEN,
    TASK,
    CallUnreadable,
    FollowedCall,
    KeptCalls,
    Row,
    plain,
    raised,
)
from wicketgate.mcp_names import INTERNAL_ERROR
from wicketgate.ports import SilentCaller

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    Ctx = ServerRequestContext[Any, Any]

log = logging.getLogger("wicketgate.mcp")

_TAKEN_S = 2.0
"""For this time a client waits until the process of its call has taken what it said."""

Wish = Literal["get", "update", "cancel"]

_NAME_HEADER = "mcp-name"
TASKS = "io.modelcontextprotocol/tasks"

_POLL_MS = 1_000
_PURPOSE = "task"
_SEALED_S = 30 * 86_400.0
"""Longer than any call runs and any result is kept, which is what bounds a task."""

NO_RESPONSES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A call that goes on as a task, with the row that shows it."""

    id: str
    row: Row


class Elsewhere:
    """The held calls of the door *face* in all processes. *kept* is None if there is no other process."""

    def __init__(self, face: str, kept: KeptCalls | None, held: HeldCalls) -> None:
        self._face = face
        self._kept = kept
        self._held = held
        held.keep = self.keep

    async def keep(self, call: HeldCall[Any]) -> None:
        """Shows a call whose id goes out to other processes, with its questions."""
        if self._kept is not None:
            kept = self._kept
            await kept.keep(call.running, lambda: _Visible(self._face, call, self._held, kept))

    async def resume(
        self, caller: McpCaller, identity: Identity, given: HeldAnswers, after_s: float | None
    ) -> Any | Asked | HeldCall[Any] | TaskRow:
        """As ``HeldCalls.resume``, for a call of any process. Raises also UpstreamUnavailable and UpstreamLost."""
        if self._kept is None or self._kept.is_here(identity.actor, given.id):
            return await self._held.resume(caller, identity, given.id, given.responses, after_s=after_s)
        async with self._kept.following(identity.actor, given.id) as call:
            if call.row is None:
                await self._kept.check_missing(given.id)
            self._check(call.row, identity)
            try:
                next_step = await self._next_step(call, caller, given, after_s)
            except asyncio.CancelledError:
                self._kept.spawn(call.leave(hung_up=True))
                raise
            self._kept.spawn(call.leave())
            if isinstance(next_step, Asked | TaskRow):
                return next_step
            self._kept.spawn(call.say(GIVEN))
        return _unpacked(next_step)

    async def task(self, identity: Identity, id: str, wish: Wish, responses: Mapping[str, Any]) -> Row | None:
        """The row of the task *id* after *wish*; None for one that is not there. Raises UpstreamUnavailable."""
        if self._kept is None or self._kept.is_here(identity.actor, id):
            return self._task(identity, id, wish, responses)
        async with self._kept.following(identity.actor, id) as call:
            try:
                row = self._check(call.row, identity)
            except NotHeld:
                return None
            match wish:
                case "update":
                    answered = await _answer(call, responses)
                    await call.until(lambda: answered.isdisjoint((call.row or {}).get("questions", ())), _TAKEN_S)
                case "cancel":
                    await call.say(CANCEL)
                case _ if call.ended:
                    self._kept.spawn(call.say(GIVEN))
        return row

    def _check(self, row: Row | None, identity: Identity) -> Row:
        """Returns the row of a call of this very identity, which may still use its tools. Raises NotHeld."""
        if row is None or (row.get("door"), row.get("who")) != (self._face, _who(identity)):
            raise NotHeld
        if not self._held.may_use_all(row["tools"], identity):
            raise NotHeld
        return row

    async def _next_step(
        self, call: FollowedCall, caller: McpCaller, given: HeldAnswers, after_s: float | None
    ) -> Asked | TaskRow | Mapping[str, Any]:
        """Returns the next event of a call of another process: questions, a task, or its outcome. Raises
        CallUnreadable."""
        loop = asyncio.get_running_loop()
        ends_at = None if after_s is None else loop.time() + after_s
        answered, progress = set[str](), None
        # Before the answers, so that the call is attended when it has them.
        await call.attend()
        while (row := call.row) is not None and not call.ended:
            if row["progress"] not in (None, progress):
                progress = row["progress"]
                await caller.progress(*progress)
            answered |= await _answer(call, given.responses, caller)
            if requests := {key: one for key, one in row["questions"].items() if key not in answered}:
                return Asked(given.id, requests)
            if ends_at is not None and loop.time() >= ends_at:
                if row["task"]:
                    return TaskRow(given.id, row)
                await call.say(TASK)
                ends_at = loop.time() + _TAKEN_S
            await call.next(None if ends_at is None else max(0.0, ends_at - loop.time()))
        if row is None:
            raise CallUnreadable  # the store has lost it: the attempt is of use again
        outcome: Mapping[str, Any] = row["outcome"]
        return outcome

    def _task(self, identity: Identity, id: str, wish: Wish, responses: Mapping[str, Any]) -> Row | None:
        call = self._held.task(identity, id)
        if call is None:
            return None
        match wish:
            case "get":
                self._held.shown(call)
            case "update":
                call.caller.take(responses)
            case _:
                self._held.cancel(call)
        return _row(call)


class _Visible(SilentCaller):
    """Implements Door for a held call of this process, and Caller for attempts at others. What the server says reaches
    those by the row, or not at all."""

    def __init__(self, face: str, call: HeldCall[Any], held: HeldCalls, kept: KeptCalls) -> None:
        super().__init__()
        self._face = face
        self._call = call
        self._held = held
        call.caller.on_change = lambda often: kept.changed(call.running, soon=often)

    def row(self) -> Row:
        identity = self._call.identity
        return {"door": self._face, "who": _who(identity), **_row(self._call)}

    def said(self, name: str, value: Any) -> None:
        caller = self._call.caller
        match name:
            case "attempt" if value:
                caller.attend(self)
            case "attempt":
                caller.leave(self)
            case "left":
                if not caller.attended:
                    self._held.cancel(self._call, "its client has left")
            case "cancel":
                self._held.cancel(self._call)
            case "task":
                caller.become_task()
            case _:
                caller.settle(name, value)


async def _answer(call: FollowedCall, responses: Mapping[str, Any], caller: McpCaller | None = None) -> set[str]:
    """Passes on the answers to open questions, and gives up those that *caller* cannot answer. Returns their keys."""
    from wicketgate.faces.mcp.questions import answer_of

    answered = set[str]()
    for key, question in (call.row or {}).get("questions", {}).items():
        answer = answer_of(question["method"], responses[key]) if key in responses else None
        if answer is None and (caller is None or caller.may_be_asked(question["method"], question["params"])):
            continue
        await call.say(key, answer)
        answered.add(key)
    return answered


def not_now(error: GatewayError) -> RpcError:
    """The answer while the home of a call cannot be reached: the same request is of use later."""
    return RpcError(INTERNAL_ERROR, error.message, {"reason": "not_reached", "retryable": True})


def became_task(call: HeldCall[Any]) -> TaskRow:
    """What has ended or is asked since is shown by ``tasks/get``."""
    return TaskRow(call.running.id, {**_row(call), "questions": {}, "outcome": None})


def _row(call: HeldCall[Any]) -> dict[str, Any]:
    """The state of a call as JSON. *outcome* is None while it runs."""
    return {
        "label": call.running.label,
        "tools": sorted(call.caller.tools),
        "created": _iso(call.created),
        "changed": _iso(call.caller.changed),
        "kept_s": call.kept_s,
        "message": call.caller.message,
        "progress": call.caller.last,
        "task": call.caller.has_no_request,
        "questions": call.caller.open(),
        "cancelled": call.running.cancelled,
        "outcome": _packed(call) if call.running.ended else None,
    }


def _who(identity: Identity) -> list[Any]:
    """Returns, as JSON, the parts in which two identities of one actor must be equal."""
    return [list(identity.permissions), list(identity.roles), identity.issuer]


def _packed(call: HeldCall[Any]) -> dict[str, Any]:
    try:
        return {"value": call.outcome()}
    except Exception as error:
        return _packed_error(error)


def _packed_error(error: Exception) -> dict[str, Any]:
    match error:
        case RpcError():
            return {"mcp": [error.code, error.message, error.data]}
        case Refusal():
            return {"refusal": [error.code, error.message, error.data, error.theirs]}
    if not isinstance(error, GatewayError | InputRequired):
        log.error("a held call failed", exc_info=error)
    return {"error": plain(error)}


def _unpacked(outcome: Mapping[str, Any]) -> Any:
    """Raises what the call has raised."""
    if "value" in outcome:
        return outcome["value"]
    if "mcp" in outcome:
        raise RpcError(*outcome["mcp"])
    if "refusal" in outcome:
        code, message, data, theirs = outcome["refusal"]
        raise Refusal(code, message, data, theirs=theirs)
    raise raised(outcome["error"])


def _ended(cancelled: bool, outcome: Mapping[str, Any], version: str) -> tuple[str, dict[str, Any]]:
    """The status of an ended call, and what belongs to it. A result is what the call would have been answered with."""
    if cancelled:
        return "cancelled", {}
    if "value" in outcome:
        try:
            return "completed", {"result": fitted_result(outcome["value"], version)}
        except ValueError:
            log.exception("the result of a task is not valid")
            code, message, data = INTERNAL_ERROR, "Handler returned an invalid result", None
    elif "mcp" in outcome:
        code, message, data = outcome["mcp"]
    else:
        message = outcome.get("error", {}).get("message") or "The call failed inside the gateway."
        code, data = INTERNAL_ERROR, None
    failure = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return "failed", {"error": failure, "statusMessage": message}


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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

    def after_s(self, asked: McpRequest, can: Mapping[str, Any]) -> float | None:
        """The time after which a call becomes a task, for a client with the capabilities *can*; None if it never
        does."""
        becomes = asked.method == "tools/call" and self._offered(asked) and TASKS in can.get("extensions", ())
        return self._held.after_s if becomes else None

    def created(self, asked: McpRequest, task: TaskRow) -> dict[str, Any]:
        """The answer in place of the result of a call that goes on."""
        identity = self._who(asked)
        task_id = self._seal.seal(self._purpose, identity.actor, task.id, _SEALED_S)
        return {"resultType": "task", **_shown(task_id, task.row, asked.protocol_version)}

    async def answer(
        self, ctx: "Ctx", task_id: str, wish: Wish, responses: Mapping[str, Any] = NO_RESPONSES
    ) -> dict[str, Any]:
        """The answer to ``tasks/`` and *wish*. Raises RpcError."""
        row = await self._row(ctx, task_id, wish, responses)
        return {**WHOLE, **(_shown(task_id, row, ctx.protocol_version) if wish == "get" else {})}

    async def declare(self, ctx: "Ctx", call_next: "CallNext") -> "HandlerResult":
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
        return bool(self._held.after_s) and asked.protocol_version in names.MODERN_PROTOCOL_VERSIONS

    async def _row(self, ctx: "Ctx", task_id: str, wish: Wish, responses: Mapping[str, Any]) -> Row:
        """The row of the task after *wish*. Raises RpcError, the same for what is not there and what is another's."""
        if not self._offered(ctx):
            raise RpcError(names.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not _knows(ctx):
            raise _undeclared()
        from mcp.shared.inbound import decode_header_value

        named = None if ctx.request is None else ctx.request.headers.get(_NAME_HEADER)
        if named is not None and decode_header_value(named) != task_id:
            raise RpcError(names.HEADER_MISMATCH, f"{_NAME_HEADER} header does not match the request body's 'taskId'")
        identity = self._who(ctx)
        sealed = self._seal.open(self._purpose, identity.actor, task_id) if task_id.isascii() else None
        row = None
        if sealed is not None and not self._seal.expired(sealed):
            try:
                row = await self._elsewhere.task(identity, sealed.text, wish, responses)
            except CallUnreadable as error:
                raise not_now(error) from None
        if row is None:
            raise RpcError(names.INVALID_PARAMS, "Task not found")
        return row


def _knows(ctx: "Ctx") -> bool:
    can = ctx.session.client_capabilities
    return can is not None and TASKS in (can.extensions or {})


def _undeclared() -> RpcError:
    wanted: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return RpcError(names.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", wanted)


def _shown(task_id: str, row: Row, version: str) -> dict[str, Any]:
    """A task as its client, which speaks *version*, is shown it."""
    status, message, more = "working", row["message"], dict[str, Any]()
    if row["outcome"]:
        (status, more), message = _ended(bool(row["cancelled"]), row["outcome"], version), ""
    elif row["questions"]:
        status, message, more = "input_required", "", {"inputRequests": row["questions"]}
    return {
        "taskId": task_id,
        "status": status,
        "createdAt": row["created"],
        "lastUpdatedAt": row["changed"],
        # As long as it runs it is not given up.
        "ttlMs": None if row["kept_s"] is None else int(row["kept_s"] * 1_000),
        "pollIntervalMs": _POLL_MS,
        **({"statusMessage": message} if message else {}),
        **more,
    }
