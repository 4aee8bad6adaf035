"""Calls through the meta-tools that take longer than clients wait (FACE-68 to FACE-71).

After ``tasks.after_s`` a client gets a handle in place of the result, and the call goes on without its request. Two
selectors of ``tool_view`` are for such handles: ``wait`` and ``cancel``.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any

import anyio

from wicketgate.access.identity import Identity
from wicketgate.errors import GatewayError, HydrateFailed, InputRequired, RateLimited, ViewFailed
from wicketgate.faces.meta_tool import json_result
from wicketgate.faces.surface import SurfaceResult
from wicketgate.gateway.archive import CALL_HANDLE, Execution, handle_parts
from wicketgate.gateway.carried_errors import pack_error, unpack_error
from wicketgate.gateway.lent_callers import ANSWERS_WITHIN_S
from wicketgate.gateway.options import TokenCost
from wicketgate.gateway.peer_json import as_payload, from_payload
from wicketgate.gateway.running_calls import AttendedCaller, Progress, RunningCall
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.peers import Payload
from wicketgate.ports import SILENT, CallContext, InputAnswers
from wicketgate.results.envelope import ResultEnvelope, shorten

_VIEW = "view"
_AFTER_AN_ANSWER_S = 2.0
"""A tool that has its answer often ends at once. Its client has waited long by then."""
_MESSAGE_CHARS = 200

FORMS = ('{"type":"wait","timeout_s":20}', '{"type":"cancel"}')
_FIELDS = {"wait": {"timeout_s"}, "cancel": set[str]()}


@dataclass(frozen=True, slots=True)
class Asked:
    """The call as its client made it, for a second attempt with answers."""

    tool_id: str
    args: object


def execution_result(execution: Execution) -> SurfaceResult:
    envelope = execution.envelope
    return json_result(
        envelope.as_dict(),
        is_error=envelope.status == "error",
        text=execution.text,
        lines=execution.page,
        cost=execution.cost,
        meta=execution.meta,
    )


class LongCalls:
    """Runs and views for a face whose clients may not wait for long."""

    def __init__(self, runtime: ProxyRuntime) -> None:
        self._runtime = runtime
        self._running = runtime.running
        self._kept = runtime.kept
        self._kept.answer(_VIEW, self._for_peer)

    def may_leave(self, context: CallContext) -> bool:
        """True for a caller that can come back for its result; the engine, and programs that embed the gate, wait."""
        return isinstance(context.caller, AttendedCaller) and self._running.limits.after_s > 0

    async def execute(self, tool_id: str, args: object, context: CallContext) -> SurfaceResult:
        """The result of a call for a caller that may leave, or a handle if it would have to wait too long. Raises as
        ``ProxyRuntime.execute``."""
        caller, work = context.caller, self._runtime.execute(tool_id, args, context)
        assert isinstance(caller, AttendedCaller)
        try:
            whole = self._runtime.whole_id(tool_id, context)
        except HydrateFailed:
            return execution_result(await work)  # it fails the same way, in its audit record
        identity = context.identity
        call = self._running.begin(
            identity.actor, whole, work, key_id=identity.key_id, caller=caller, request=Asked(tool_id, args)
        )
        async with self._of_this_request(call, caller):
            if not await _ends_within(call, self._running.limits.after_s):
                try:
                    await self._running.hold(call)
                except RateLimited:
                    # No place is left: it is this request's alone, as it would be without handles.
                    await call.settled(None)
                else:
                    await self._kept.keep(call, {"tool_id": whole}, _ended)
                    return self._still_running(call)
        return execution_result(call.outcome())

    async def view(self, handle: str, selector: object, context: CallContext) -> SurfaceResult:
        """The result of the call of *handle*, as ``execute`` gives it, or how far it is. Raises as that one does, and
        ViewFailed."""
        self._read(handle, selector)
        home = self._kept.home_of(handle_parts(handle)[2])
        if home is None:
            return await self._view(handle, selector, context)
        answer = await self._ask(home, handle, selector, context)
        if answer is None:
            answer = (await self._runtime.viewing.left_behind(handle, context))["outcome"]
        if "error" in answer:
            raise unpack_error(answer["error"])
        return json_result(
            answer["result"], is_error=answer["is_error"], cost=TokenCost(*answer["cost"]), meta=answer["meta"]
        )

    async def _ask(self, home: str, handle: str, selector: object, context: CallContext) -> Mapping[str, Any] | None:
        """The view as the *home* of the call gives it; None if that has ended. Raises UpstreamUnavailable."""
        identity, answers = context.identity, context.answers
        with ExitStack() as stack:
            caller = None
            if isinstance(context.caller, AttendedCaller):
                caller = stack.enter_context(self._kept.callers.lending(context.caller))
            asked = {
                "handle": handle,
                "selector": selector,
                "identity": identity.row(),
                "context": [context.correlation_id, context.session, context.source],
                "meta": dict(context.meta),
                "answers": answers and [getattr(answers, each.name) for each in fields(InputAnswers)],
                "caller": caller,
            }
            timeout_s = self._running.limits.after_s + ANSWERS_WITHIN_S
            call = identity.actor, handle_parts(handle)[2]
            found: Mapping[str, Any] | None = await self._kept.ask(home, _VIEW, asked, timeout_s, call)
            return found

    async def _for_peer(self, payload: Payload) -> Payload:
        """A view for a client of another process, which has authenticated it."""
        asked = from_payload(payload)
        trace, session, source = asked["context"]
        lent = asked["caller"] and self._kept.callers.lent(asked["caller"])
        context = CallContext(
            Identity.of_row(asked["identity"]),
            trace,
            session,
            AttendedCaller(lent) if lent else SILENT,
            asked["answers"] and InputAnswers(*asked["answers"]),
            source=source,
            meta=asked["meta"],
        )
        try:
            return await as_payload(_packed(await self._view(asked["handle"], asked["selector"], context)))
        except (GatewayError, InputRequired) as error:
            return await as_payload({"error": pack_error(error)})
        finally:
            if lent:
                await lent.finish()

    async def _view(self, handle: str, selector: object, context: CallContext) -> SurfaceResult:
        """``view`` of a call of this process."""
        kind, timeout_s = self._read(handle, selector)
        async with self._runtime.viewing.watching(handle, context) as call:
            is_answered = call.question is not None and context.answers is not None
            if not is_answered:
                if kind == "cancel" and not call.ended:
                    return await self._cancelled(call)
                await self._attended(call, context, timeout_s)
                if not call.ended:
                    return self._still_running(call)
                self._running.give(call)
        if not is_answered:
            return execution_result(call.outcome())
        # The second attempt after a question of the server is a call of its own (FACE-71).
        asked: Asked = call.request
        self._running.drop(call)
        return await self.execute(asked.tool_id, asked.args, context)

    def _read(self, handle: str, selector: object) -> tuple[str, float]:
        kind = selector.get("type") if isinstance(selector, Mapping) else None
        if not isinstance(selector, Mapping) or not isinstance(kind, str) or kind not in _FIELDS:
            raise _bad_selector(handle, "a handle of a call takes only these selectors")
        if unknown := [key for key in selector if key != "type" and key not in _FIELDS[kind]]:
            raise _bad_selector(handle, f"{kind} has no field {shorten(str(unknown[0]), 40)!r}")
        longest_s = self._running.limits.after_s
        timeout_s = selector.get("timeout_s", longest_s)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
            raise _bad_selector(handle, "timeout_s must be a number of seconds that is not negative")
        return kind, min(float(timeout_s), longest_s)

    async def _attended(self, call: RunningCall[Execution], context: CallContext, timeout_s: float) -> None:
        """Wait for its end; what its server says meanwhile goes to the client that waits now."""
        caller, voice = context.caller, call.caller
        if voice is None or not isinstance(caller, AttendedCaller):
            await call.settled(timeout_s)
            return
        voice.attend(caller)
        try:
            await _ends_within(call, timeout_s)
        finally:
            voice.leave(caller)

    @asynccontextmanager
    async def _of_this_request(self, call: RunningCall[Any], caller: AttendedCaller) -> AsyncIterator[None]:
        """The call ends with the block, unless it is held by then: its client has left, or the gate ends it."""
        try:
            yield
        finally:
            if self._running.is_held(call):
                caller.leave()
            elif not call.ended:
                call.cancel("its client has left")
                with anyio.CancelScope(shield=True):
                    await call.settled(None)

    async def _cancelled(self, call: RunningCall[Any]) -> SurfaceResult:
        call.cancel()
        await call.settled(self._running.limits.after_s)
        summary = "The call was cancelled. Whether it took effect before that is not known."
        return json_result(ResultEnvelope("ok", summary, provenance={"tool_id": call.label}).as_dict())

    def _still_running(self, call: RunningCall[Any]) -> SurfaceResult:
        wait = {"type": "wait", "timeout_s": _plain(self._running.limits.after_s)}
        seconds = int(self._running.seconds(call))
        body = {
            "status": "running",
            "summary": f"The tool has run for {seconds} s and goes on. Get its result with tool_view: handle and the "
            "selector in next.",
            "facts": [] if call.progress is None else [_progress_line(call.progress)],
            "artifacts": [],
            "provenance": {"tool_id": call.label},
            "handle": f"{CALL_HANDLE}:{call.label}:{call.id}",
            "next": wait,
        }
        return json_result(body)


def _packed(result: SurfaceResult) -> dict[str, Any]:
    cost = [result.cost.shown, result.cost.naive]
    return {"result": dict(result.structured), "is_error": result.is_error, "cost": cost, "meta": dict(result.meta)}


def _ended(call: RunningCall[Execution]) -> dict[str, Any] | None:
    """Pack a call that has ended. A question is for the process that knows the arguments."""
    if call.question is not None:
        return None
    try:
        return {"outcome": _packed(execution_result(call.outcome()))}
    except Exception as error:
        return {"outcome": {"error": pack_error(error)}}


async def _ends_within(call: RunningCall[Any], timeout_s: float) -> bool:
    """True if it has ended; false after *timeout_s*, but not while a person is being asked."""
    await call.settled(timeout_s)
    # A tool may ask again: the answer would be lost to a handle that is given meanwhile (FACE-93).
    while call.caller is not None and call.caller.asks:
        await call.unasked()
        await call.settled(_AFTER_AN_ANSWER_S)
    return call.ended


def _progress_line(said: Progress) -> str:
    of = "" if said.total is None else f" of {_plain(said.total)}"
    message = f": {shorten(said.message, _MESSAGE_CHARS)}" if said.message else ""
    return f"progress: {_plain(said.progress)}{of}{message}"


def _plain(number: float) -> float:
    """Without a fraction where there is none."""
    return int(number) if float(number).is_integer() else number


def _bad_selector(handle: str, problem: str) -> ViewFailed:
    return ViewFailed(f"{problem}: {', '.join(FORMS)}", path=handle, details={"selectors": list(FORMS)})
