"""Calls through the meta-tools that take longer than clients wait (FACE-68 to FACE-71).

After ``tasks.after_s`` a client gets a handle in place of the result, and the call goes on without its request. Two
selectors of ``tool_view`` are for such handles: ``wait`` and ``cancel``.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from time import time
from typing import Any

import anyio

from wicketgate.errors import HydrateFailed, InputRequired, RateLimited, ViewFailed
from wicketgate.faces.meta_tool import json_result
from wicketgate.faces.surface import SurfaceResult
from wicketgate.gateway.archive import CALL_HANDLE, Execution, handle_parts, no_such_call
from wicketgate.gateway.kept_calls import CANCEL, GIVEN, CallUnreadable, FollowedCall, KeptCalls, Row, plain, raised
from wicketgate.gateway.options import TokenCost
from wicketgate.gateway.running_calls import AttendedCaller, Progress, RunningCall
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.gateway.viewing import VIEWED
from wicketgate.ports import CallContext, Caller, CannotAsk, SilentCaller
from wicketgate.results.envelope import ResultEnvelope, shorten
from wicketgate.task_end import end_tasks

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
        try:
            if not await _ends_within(call, self._running.limits.after_s):
                try:
                    await self._running.hold(call)
                except RateLimited:
                    # No place is left: it is this request's alone, as it would be without handles.
                    await call.settled(None)
                else:
                    seconds = self._running.seconds(call)
                    caller.absent = shown = _Shown(call, self._kept, seconds)
                    await self._kept.keep(call, lambda: shown)
                    return self._still_running(call.id, _state(call, seconds))
        finally:
            # It ends with this request, unless it is held by then: its client has left, or the gate ends it.
            if self._running.is_held(call):
                caller.leave()
            elif not call.ended:
                call.cancel("its client has left")
                with anyio.CancelScope(shield=True):
                    await call.settled(None)
        return execution_result(call.outcome())

    async def view(self, handle: str, selector: object, context: CallContext) -> SurfaceResult:
        """The result of the call of *handle*, as ``execute`` gives it, or how far it is. Raises as that one does, and
        ViewFailed."""
        kind, timeout_s = self.read(handle, selector)
        async with self._runtime.viewing.watching(handle, context) as call:
            if isinstance(call, FollowedCall):
                viewed = await self._viewed_elsewhere(call, handle, kind, timeout_s, context)
            else:
                viewed = await self._viewed(call, handle, kind, timeout_s, context)
        if not isinstance(viewed, Asked):
            return viewed()
        # The second attempt after a question of the server is a call of its own (FACE-71).
        return await self.execute(viewed.tool_id, viewed.args, context)

    async def _viewed(
        self, call: RunningCall[Execution], handle: str, kind: str, timeout_s: float, context: CallContext
    ) -> Asked | Callable[[], SurfaceResult]:
        """How to answer a view of a call of this process."""
        if call.question is not None and context.answers is not None:
            if not await self._kept.claim(call):
                raise no_such_call(handle)
            asked: Asked = call.request
            self._running.drop(call)
            return asked
        if kind == "cancel" and not call.ended:
            call.cancel()
            await call.settled(self._running.limits.after_s)
            return lambda: _cancelled(call.label)
        await self._attended(call, context, timeout_s)
        if not call.ended:
            return lambda: self._still_running(call.id, _state(call, self._running.seconds(call)))
        self._running.give(call)
        return lambda: execution_result(call.outcome())

    async def _viewed_elsewhere(
        self, call: FollowedCall, handle: str, kind: str, timeout_s: float, context: CallContext
    ) -> Asked | Callable[[], SurfaceResult]:
        """As ``_viewed``, of a call of another process. Raises UpstreamUnavailable."""
        if kind == "cancel" and not call.ended:
            await call.say(CANCEL)
            await call.until(lambda: False, self._running.limits.after_s)
            return lambda: _cancelled(handle_parts(handle)[1])
        await self._attended_elsewhere(call, context, timeout_s)
        if (row := call.row) is None:
            raise CallUnreadable  # the store has lost it, or another attempt has taken it
        if not call.ended:
            return lambda: self._still_running(handle_parts(handle)[2], row)
        outcome = row["outcome"]
        if "asked" in outcome and context.answers is not None:
            if not await call.claim():
                raise no_such_call(handle)
            return Asked(*call.opened(outcome["asked"]))
        self._kept.spawn(call.say(GIVEN))
        return lambda: _unpacked(outcome)

    async def _attended_elsewhere(self, call: FollowedCall, context: CallContext, timeout_s: float) -> None:
        """Waits for its end as ``_ends_within`` does, and puts its questions to the client that waits here."""
        caller = context.caller
        if not isinstance(caller, AttendedCaller):
            await call.until(lambda: False, timeout_s)
            return
        answered = set[str]()

        def asked() -> list[str]:
            return [] if call.row is None else [key for key in call.row["questions"] if key not in answered]

        await call.until(lambda: bool(asked()), timeout_s)
        while not call.ended and (keys := asked()):
            await self._ask(call, keys[0], caller)
            answered.add(keys[0])
            await call.until(lambda: bool(asked()), _AFTER_AN_ANSWER_S)

    async def _ask(self, call: FollowedCall, key: str, caller: Caller) -> None:
        """Puts a question to *caller*, unless its server withdraws it or another client answers it first."""
        assert call.row is not None
        question = call.row["questions"][key]
        asking = asyncio.ensure_future(caller.ask(question["method"], question["params"]))
        following = asyncio.ensure_future(self._closed(call, key))
        try:
            await asyncio.wait((asking, following), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                following.result()
                return
            try:
                answer: dict[str, Any] = {"answer": dict(asking.result())}
            except CannotAsk as cannot:
                answer = {"rejected": cannot.rejected}
        finally:
            await end_tasks(asking, following)
        await call.say(key, answer)

    async def _closed(self, call: FollowedCall, key: str) -> None:
        while call.row is not None and key in call.row["questions"]:
            await call.next()

    def read(self, handle: str, selector: object) -> tuple[str, float]:
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
        """Wait for its end; what its server says in the meantime goes to the client that waits now."""
        caller, voice = context.caller, call.caller
        if voice is None or not isinstance(caller, AttendedCaller):
            await call.settled(timeout_s)
            return
        voice.attend(caller)
        try:
            await _ends_within(call, timeout_s)
        finally:
            voice.leave(caller)

    def _still_running(self, id: str, row: Row) -> SurfaceResult:
        wait = {"type": "wait", "timeout_s": _plain(self._running.limits.after_s)}
        seconds, progress = max(0, int(time() - row["began"])), row["progress"]
        body = {
            "status": "running",
            "summary": f"The tool has run for {seconds} s and continues. Get its result with tool_view: handle and the "
            "selector in next.",
            "facts": [] if progress is None else [_progress_line(Progress(*progress))],
            "artifacts": [],
            "provenance": {"tool_id": row["label"]},
            "handle": f"{CALL_HANDLE}:{row['label']}:{id}",
            "next": wait,
        }
        return json_result(body)


class _Shown(SilentCaller):
    """Implements Door for a call of this process, and Caller for its clients at other processes, which get no log
    messages."""

    def __init__(self, call: RunningCall[Execution], kept: KeptCalls, age_s: float) -> None:
        super().__init__()
        self._call = call
        self._kept = kept
        self._began = time() - age_s
        self._keys = count(1)
        self._open: dict[str, tuple[Mapping[str, Any], asyncio.Future[Mapping[str, Any]]]] = {}

    def row(self) -> Row:
        questions = {key: question for key, (question, answer) in self._open.items() if not answer.done()}
        row = {**_state(self._call, time() - self._began), "door": VIEWED, "questions": questions}
        return {**row, "outcome": self._outcome() if self._call.ended else None}

    def said(self, name: str, value: Any) -> None:
        if name == CANCEL:
            self._call.cancel()
        elif (open_one := self._open.get(name)) is not None and not open_one[1].done():
            if "answer" in value:
                open_one[1].set_result(value["answer"])
            else:
                open_one[1].set_exception(CannotAsk(open_one[0]["method"], rejected=bool(value.get("rejected"))))

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._kept.changed(self._call, soon=True)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        key = f"question-{next(self._keys)}"
        question = {"method": method, "params": dict(params)}
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[key] = question, answer
        self._kept.changed(self._call)
        try:
            return await answer
        finally:
            del self._open[key]
            self._kept.changed(self._call)

    def _outcome(self) -> dict[str, Any]:
        try:
            result = execution_result(self._call.outcome())
        except InputRequired as question:
            # Its arguments are sealed, for the second attempt at another process.
            asked: Asked = self._call.request
            return {"error": plain(question), "asked": self._kept.sealed(self._call, [asked.tool_id, asked.args])}
        except Exception as error:
            return {"error": plain(error)}
        cost = [result.cost.shown, result.cost.naive]
        return {"result": dict(result.structured), "is_error": result.is_error, "cost": cost, "meta": result.meta}


def _state(call: RunningCall[Any], age_s: float) -> dict[str, Any]:
    """What a view of a call that runs shows of it, as in its row."""
    said = call.progress
    progress = None if said is None else [said.progress, said.total, said.message]
    return {"label": call.label, "began": time() - age_s, "progress": progress}


def _unpacked(outcome: Row) -> SurfaceResult:
    """Raises what the call has raised."""
    if "error" in outcome:
        raise raised(outcome["error"])
    cost = TokenCost(*outcome["cost"])
    return json_result(outcome["result"], is_error=outcome["is_error"], cost=cost, meta=outcome["meta"])


def _cancelled(tool_id: str) -> SurfaceResult:
    summary = "The call was cancelled. Whether it took effect before that is not known."
    return json_result(ResultEnvelope("ok", summary, provenance={"tool_id": tool_id}).as_dict())


async def _ends_within(call: RunningCall[Any], timeout_s: float) -> bool:
    """True if it has ended; false after *timeout_s*, but not while a person is being asked."""
    await call.settled(timeout_s)
    # A tool may ask again: the answer would be lost to a handle that is given in the meantime (FACE-93).
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
