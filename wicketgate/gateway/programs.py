"""Programs of models: each of their calls is a call of the caller, with every check (EXEC-140 to EXEC-149).

A call that needs a person pauses its program: the state is sealed into a row, the worker is free, and any process goes
on when the person has decided. A program that takes long leaves its request in the same way. What has run never runs
again: a program whose process ends while it works is lost.
"""

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from pydantic_core import PydanticSerializationError, to_jsonable_python

from wicketgate.access.identity import Identity, Standing, always_good
from wicketgate.catalog.card import card_json
from wicketgate.catalog.graph import server_of
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.signature import example_of, shape_of
from wicketgate.errors import (
    ApprovalRequired,
    ArgsInvalid,
    ConnectRequired,
    Forbidden,
    GatewayError,
    InputRequired,
    OutOfOrder,
    ProgramFailed,
    ProgramInvalid,
    ProgramLimit,
    ProgramLost,
    UpstreamLost,
    ViewFailed,
)
from wicketgate.gateway.archive import PROGRAM_HANDLE, owner_of_programs
from wicketgate.gateway.audited_call import AuditedCall
from wicketgate.gateway.calls import CLAIMED, DryRun
from wicketgate.gateway.kept_calls import CallUnreadable, Changed, plain, raised
from wicketgate.ports import NO_APPROVER, CallContext, CallMarks, PerUser
from wicketgate.results.envelope import ResultEnvelope, shorten
from wicketgate.results.page import json_text
from wicketgate.sandbox import Asked, Ended, Interpreter, ProgramFault, Session
from wicketgate.task_end import cancel_all, end_tasks

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from wicketgate.gateway.runtime import ProxyRuntime

log = logging.getLogger("wicketgate.programs")

RUN = "tool_run"
_SERVED = ("mcp", "operations", "chat")
_TRACE_CHARS = 400
_SHOWN_CHARS = 300
_MOST_RAN = 20
_MOST_SHAPES = 1_000
_MOST_LISTED = 40
_MOST_STATE_BYTES = 8 * 1024 * 1024
_MOST_CODE_CHARS = 65_536
_PREVIEW_S = 10.0
_LIMITS = {
    "seconds": "It computed for too long; let tools filter, or return less.",
    "memory": "It needs too much memory; work on a part at a time.",
    "calls": "It calls too many tools; take fewer rows, or a tool that takes many at once.",
}


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """*calls* of one program, *keep_s* for which it waits for a person and its answer is kept."""

    calls: int = 200
    keep_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class ProgramAnswer:
    """The JSON of an envelope, or that of a program that goes on; *cost* as shown and naive tokens."""

    body: Mapping[str, Any]
    is_error: bool = False
    cost: tuple[int, int] | None = None


@dataclass(slots=True)
class KeptProgram:
    """A program with what it has done; everything but *version* and *writing* goes into its row. *ran* counts calls by
    tool. *need* is the call that waits for a person, *listed* the ids of approvals that were asked for together,
    *state* the sandbox's. *outcome* is None until it has ended."""

    id: str
    code: str
    caller: dict[str, Any]
    began: float
    calls: int = 0
    ran: dict[str, int] = field(default_factory=dict)
    printed: str = ""
    state: str = ""
    need: dict[str, Any] | None = None
    listed: list[str] = field(default_factory=list)
    outcome: dict[str, Any] | None = None
    version: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def status(self) -> str:
        return "ended" if self.outcome else "waiting" if self.need else "running"

    @property
    def actor(self) -> str:
        return str(self.caller["identity"][0])


class ProgramStore(Protocol):
    """The rows of programs, sealed. Raises CallUnreadable. *write* returns false if another process has written since
    this one read. A program that runs is held by its process, and is lost when that has ended (*on_lost* makes its
    outcome)."""

    async def write(self, program: KeptProgram, life_s: float) -> bool: ...

    async def get(self, actor: str, id: str) -> KeptProgram | None: ...

    async def all(self, actor: str | None = None) -> Sequence[KeptProgram]:
        """Returns the programs without their *state*."""
        ...

    def on_lost(self, outcome: Callable[[KeptProgram], dict[str, Any]]) -> None: ...

    def following(self) -> "AbstractAsyncContextManager[Changed]":
        """Waits for changes of programs and of approvals."""
        ...


class _Waits(Exception):
    """The call at which a program stops needs a person."""

    def __init__(self, need: GatewayError, tool_id: str, args: Mapping[str, Any]) -> None:
        super().__init__(need.message)
        self.need, self.tool_id, self.args_shown = need, tool_id, args


class Programs:
    """Runs programs over *runtime*. *now* is the time of day in seconds. *still_waits* is true while the call with this
    id is on the list of approvals; *resumes* says whether a program of this identity may go on."""

    def __init__(
        self,
        runtime: "ProxyRuntime",
        sandbox: Interpreter,
        store: ProgramStore,
        limits: ProgramLimits,
        new_id: Callable[[], str],
        *,
        now: Callable[[], float],
        still_waits: Callable[[str], Awaitable[bool]],
        resumes: Standing = always_good,
    ) -> None:
        self._runtime = runtime
        self._sandbox = sandbox
        self._store = store
        self._limits = limits
        self._new_id = new_id
        self._now = now
        self._still_waits = still_waits
        self._resumes = resumes
        self._tasks: dict[str, asyncio.Task[ProgramAnswer]] = {}
        self._running: dict[str, KeptProgram] = {}
        self._shapes: dict[tuple[str, str], str] = {}
        self._watching: asyncio.Task[None] | None = None
        store.on_lost(lambda program: _failure(_lost(program)))
        runtime.at_end(self.aclose)

    def shape(self, item: SelectableItem, context: CallContext) -> str:
        """The shape of the last result of *item* that a program of this actor got here; empty if there is none."""
        names = (item.id, item.id.partition("#")[0], item.id.partition("@")[0].partition("#")[0])
        return next((shape for name in names if (shape := self._shapes.get((context.identity.actor, name)))), "")

    def begin(self) -> None:
        """Goes on with programs of any process whose person has decided, from now until ``aclose``."""
        self._watching = asyncio.create_task(self._watch(), name="programs that wait")

    async def aclose(self) -> None:
        await end_tasks(self._watching)
        await cancel_all(self._tasks.values())
        await self._sandbox.aclose()

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """Ends the programs of this key that run here."""
        ended = [id for id, each in self._running.items() if each.caller["identity"][2] == key_id]
        for id in ended:
            self._tasks[id].cancel()
        return {"programs": len(ended)}

    async def run(self, code: str, context: CallContext) -> ProgramAnswer:
        """Raises ArgsInvalid, the PROGRAM errors, and those that fail every call."""
        if len(code) > _MOST_CODE_CHARS:
            raise ArgsInvalid(f"code has at most {_MOST_CODE_CHARS:,} characters.", path=RUN)
        if context.claim is not None and not await context.claim():
            raise UpstreamLost(CLAIMED, path=RUN)
        program = KeptProgram(self._new_id(), code, _caller(context), self._now())

        async def work(session: Session) -> Asked | Ended:
            return await session.start(code)

        task = self._spawn(program, context, work)
        try:
            done, _ = await asyncio.wait((task,), timeout=self._runtime.running.limits.after_s or None)
        except asyncio.CancelledError:
            await cancel_all((task,))
            raise
        if not done and not program.version:
            # Its row is written before its client gets the handle.
            with suppress(CallUnreadable):
                await self._write(program)
            if not program.version and not task.done():
                return await task
        return task.result() if task.done() else self._going_on(program)

    async def view(self, id: str, timeout_s: float, *, cancel: bool, context: CallContext) -> ProgramAnswer:
        """The answer of a program of this actor, or how far it is after *timeout_s*. Raises as ``run``, and
        ViewFailed."""
        actor, loop = context.identity.actor, asyncio.get_running_loop()
        until = loop.time() + timeout_s
        async with self._store.following() as changed:
            while True:
                program = await self._store.get(actor, id)
                if program is None or not _may_view(program, context.identity):
                    raise no_such_program(id)
                if program.outcome is not None:
                    return _answer_of(program.outcome)
                if cancel:
                    return await self._cancel(program)
                await self._go_on_if_ready(program)
                if (left_s := until - loop.time()) <= 0:
                    return self._going_on(program)
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await changed.wait()

    async def of_actor(self, actor: str | None) -> Sequence[KeptProgram]:
        """The programs that run, wait, or have ended and are kept; newest first."""
        return sorted(await self._store.all(actor), key=lambda each: -each.began)

    async def _cancel(self, program: KeptProgram) -> ProgramAnswer:
        answer = ProgramAnswer(_envelope(f"The program was cancelled. {_ran(program)}"))
        if (task := self._tasks.get(program.id)) is not None:
            await cancel_all((task,))
        elif program.need is None:
            raise ViewFailed("This program works at another process now. Wait for it.", path=program.id)
        program.need, program.state, program.outcome = None, "", {"body": dict(answer.body)}
        await self._write(program)
        return answer

    def _spawn(
        self, program: KeptProgram, context: CallContext, begin: Callable[[Session], Awaitable[Asked | Ended]]
    ) -> "asyncio.Task[ProgramAnswer]":
        task = asyncio.create_task(self._concluded(program, context, begin), name=f"program {program.id}")
        self._tasks[program.id], self._running[program.id] = task, program

        def over(task: "asyncio.Task[ProgramAnswer]") -> None:
            del self._tasks[program.id], self._running[program.id]
            if not task.cancelled() and (error := task.exception()) and not isinstance(error, GatewayError):
                log.error("a program failed inside the gateway", exc_info=error)

        task.add_done_callback(over)
        return task

    async def _concluded(
        self, program: KeptProgram, context: CallContext, begin: Callable[[Session], Awaitable[Asked | Ended]]
    ) -> ProgramAnswer:
        """Runs it to its end or to a call that needs a person. A program with a row leaves its outcome there."""
        try:
            answer = await self._audited(program, context, begin)
            if program.need is not None:
                return answer
            program.outcome = {"body": dict(answer.body), "is_error": answer.is_error, "cost": answer.cost}
        except asyncio.CancelledError:
            program.outcome = _failure(_lost(program))
            raise
        except Exception as error:
            program.outcome = _failure(error)
            raise
        finally:
            if program.version and program.outcome is not None:
                with suppress(CallUnreadable):
                    await asyncio.shield(self._write(program))
        return answer

    async def _audited(
        self, program: KeptProgram, context: CallContext, begin: Callable[[Session], Awaitable[Asked | Ended]]
    ) -> ProgramAnswer:
        context = context.having(program=(program.id, 0))
        async with self._runtime.audited("run", context, RUN) as note:
            note.text = program.code
            note.arguments = hashlib.sha256(program.code.encode("utf-8", "replace")).hexdigest()
            await note.intend()
            try:
                async with self._sandbox.session(program.printed) as session:
                    try:
                        value = await self._drive(program, context, session, await begin(session))
                    finally:
                        program.printed = session.printed
                try:
                    plain_value = to_jsonable_python(value, fallback=str, bytes_mode="base64")
                except (ValueError, RecursionError, PydanticSerializationError):
                    raise ProgramFailed(f"Its answer is no JSON. {_ran(program)}") from None
                result = _result_of(program.printed if plain_value is None else plain_value)
                execution = await self._runtime.leave_program(result, context, note)
                body = execution.envelope.as_dict()
                return ProgramAnswer(body, cost=(execution.cost.shown, execution.cost.naive))
            except _Waits as waits:
                note.outcome = "approval_required"
                return await self._pause(program, waits, context)
            except ProgramFault as fault:
                raise await self._error_of(fault, program, context, note) from None

    async def _drive(self, program: KeptProgram, context: CallContext, session: Session, step: Asked | Ended) -> Any:
        # A call that waited for a person was counted when it came.
        counted = program.need is not None
        program.need = None
        while isinstance(step, Asked):
            program.calls += 0 if counted else 1
            counted = False
            if program.calls > self._limits.calls:
                raise _limit("calls", program)
            step = await self._answered(program, context, session, step)
        return step.value

    async def _answered(
        self, program: KeptProgram, context: CallContext, session: Session, asked: Asked, *, ahead: bool = False
    ) -> Asked | Ended:
        if asked.name not in ("tool", "browse"):
            return await session.refuse_unknown()
        try:
            name, args = _arguments(asked)
        except (ValueError, RecursionError, PydanticSerializationError):
            return await session.refuse(f"ARGS_INVALID: {_FORMS[asked.name]}")
        # A second attempt would run the program again, so questions come in the middle of a call, and approvals wait.
        context = context.having(
            program=(program.id, -program.calls if ahead else program.calls),
            claim=_nothing_leaves if ahead else None,
            answers=None,
            approver=NO_APPROVER if context.door in _SERVED else context.approver,
            asked_in_line=lambda: True,
            marks=CallMarks(),
        )
        try:
            if asked.name == "browse":
                await self._runtime.browsing.prepare(context)
                browse = await self._runtime.browse_query(name, None, context)
                return await session.answer([card_json(card) for card in browse.cards if card.kind == "tool"])
            # Its row says what has run, and a process that was taken for dead stops here.
            if program.version and not await self._write(program):
                raise _lost(program)
            await self._runtime.browsing.prepare_call(name, context)
            result = await self._runtime.call(name, args, context)
        except (ApprovalRequired, ConnectRequired) as need:
            if len(state := session.state()) > _MOST_STATE_BYTES:
                raise _limit("memory", program) from None
            program.state = base64.b64encode(state).decode()
            raise _Waits(need, name, args) from None
        except (OutOfOrder, ProgramLost, CallUnreadable):
            raise
        except InputRequired:
            return await session.refuse("INPUT_REQUIRED: This tool asks its user; run it with tool_execute.")
        except GatewayError as error:
            body = error.as_dict()
            details = f" {json_text(body['details'])[:1_000]}" if "details" in body else ""
            return await session.refuse(f"{body['error']}: {body['message']}{details}")
        program.ran[name] = program.ran.get(name, 0) + 1
        value, failed = _value(result)
        if not failed and not isinstance(value, str):
            self._shapes[context.identity.actor, name] = shape_of(value)
            if len(self._shapes) > _MOST_SHAPES:
                del self._shapes[next(iter(self._shapes))]
        return await (session.refuse(f"TOOL_ERROR: {value}") if failed else session.answer(value))

    async def _preview(self, program: KeptProgram, context: CallContext) -> list[str]:
        """Puts the further calls for which a copy of the program would ask on the list of approvals, and returns their
        ids there. Its reads really run; it ends before a call that may write, or is no call that a copy can make."""
        listed: list[str] = []
        assert program.need is not None
        copy = replace(program, ran={}, version=0)
        tool_id = program.need["tool_id"]
        with suppress(ProgramFault, GatewayError, ValueError, TimeoutError):
            async with asyncio.timeout(_PREVIEW_S), self._sandbox.session() as session:
                await session.load(base64.b64decode(program.state))
                step = await session.answer(self._example(tool_id, context))
                while isinstance(step, Asked) and len(listed) < _MOST_LISTED and copy.calls < self._limits.calls:
                    copy.calls += 1
                    try:
                        if step.name == "tool":
                            tool_id, args = _arguments(step)
                            dry = await self._runtime.execute(tool_id, args, context, dry_run=True)
                            asks = isinstance(dry, DryRun) and dry.approval is not None
                            if not asks and self._runtime.may_write(tool_id, context):
                                break
                        step = await self._answered(copy, context, session, step, ahead=True)
                    except _Waits as waits:
                        if id := str((waits.need.details or {}).get("id", "")):
                            listed.append(id)
                        step = await session.answer(self._example(tool_id, context))
        return listed

    def _example(self, tool_id: str, context: CallContext) -> Any:
        """Returns the value that a copy gets in place of a result, because the call is not made."""
        with suppress(GatewayError):
            return example_of(self._runtime.find(tool_id, context))
        return None

    async def _pause(self, program: KeptProgram, waits: _Waits, context: CallContext) -> ProgramAnswer:
        details = waits.need.details or {}
        kind = "login" if isinstance(waits.need, ConnectRequired) else "approval"
        program.need = {
            "kind": kind,
            "id": str(details.get("id", "")),
            "tool_id": waits.tool_id,
            "args": dict(waits.args_shown),
            "why": waits.need.message,
        }
        if kind == "approval" and program.need["id"] not in program.listed:
            program.listed = [program.need["id"], *await self._preview(program, context)]
        if not await self._write(program):
            raise _lost(program)
        return self._going_on(program)

    async def _write(self, program: KeptProgram) -> bool:
        async with program.writing:
            return await self._store.write(program, self._limits.keep_s)

    def _going_on(self, program: KeptProgram) -> ProgramAnswer:
        need = program.need
        if need is None:
            text = f"The program works. {_ran(program)} Get its answer with tool_view: handle and the selector in next."
        else:
            call = f"{need['tool_id']}({', '.join(f'{key}={json_text(each)}' for key, each in need['args'].items())})"
            more = ""
            if (further := len(program.listed) - 1) > 0 and need["id"] == program.listed[0]:
                more = f"{further} further calls are on the list too; the option --program approves all. "
            text = (
                f"This program waits at its call {program.calls}: {shorten(call, _SHOWN_CHARS)}. {need['why']} {more}"
                f"{_ran(program)} It goes on by itself when that is given; wait with tool_view: handle and the "
                "selector in next."
            )
        wait = {"type": "wait", "timeout_s": max(1, int(self._runtime.running.limits.after_s))}
        body = _envelope(text, status=program.status)
        return ProgramAnswer({**body, "handle": f"{PROGRAM_HANDLE}:{program.id}", "next": wait})

    async def _watch(self) -> None:
        while True:
            try:
                async with self._store.following() as changed:
                    while True:
                        for program in await self._store.all():
                            await self._go_on_if_ready(program, unasked=True)
                        await changed.wait()
            except CallUnreadable:
                await asyncio.sleep(2.0)
            except Exception:
                # The last boundary of this task: without it no program would go on by itself.
                log.exception("programs that wait were not looked at")
                await asyncio.sleep(2.0)

    async def _go_on_if_ready(self, program: KeptProgram, *, unasked: bool = False) -> None:
        """Goes on with a program whose person has decided, unless another process does."""
        need = program.need
        if need is None or program.outcome is not None:
            return
        try:
            if not await self._is_ready(program, need, unasked=unasked):
                return
        except GatewayError:
            return  # what it waits for cannot be read at the moment
        whole = await self._store.get(program.actor, program.id)
        if whole is None or whole.version != program.version:
            return
        program, caller = whole, whole.caller
        identity = Identity.of_row(caller["identity"])
        state = base64.b64decode(program.state)
        program.need, program.state = None, ""
        if not self._resumes(identity):
            program.outcome = _failure(Forbidden(f"The key of this program is no longer valid. {_ran(program)}"))
        # Of several processes that write this version, one can.
        with suppress(CallUnreadable):
            if not await self._write(program) or program.outcome is not None:
                return
            program.need = need
            context = CallContext(
                identity,
                caller["correlation_id"],
                caller["session"],
                door=caller["door"],
                source=caller["source"],
                named=caller["named"],
            )

            async def load(session: Session) -> Asked | Ended:
                try:
                    return await session.load(state)
                except ProgramFault:
                    raise ProgramFault(
                        "lost", f"Its state has format {state[:8].hex()}, which this version does not read."
                    ) from None

            self._spawn(program, context, load)

    async def _is_ready(self, program: KeptProgram, need: Mapping[str, Any], *, unasked: bool) -> bool:
        if need["kind"] == "login":
            member = self._runtime.fleet.members.get(server_of(need["tool_id"]))
            if member is not None and isinstance(member.upstream, PerUser):
                identity = Identity.of_row(program.caller["identity"])
                return await member.upstream.account_of(identity) is not None
            return not unasked
        return not await self._still_waits(need["id"]) if need["id"] else not unasked

    async def _error_of(
        self, fault: ProgramFault, program: KeptProgram, context: CallContext, note: AuditedCall
    ) -> GatewayError:
        """The error for the caller. Values of the program pass the plugins first."""
        where = {"line": fault.line} if fault.line else {}
        match fault.kind:
            case "seconds" | "memory":
                return _limit(fault.kind, program)
            case "lost":
                return _lost(program, fault.message or _WHY_LOST)
            case "invalid":
                return ProgramInvalid(shorten(fault.message, _TRACE_CHARS), path=RUN, details=where or None)
        trace = {"content": [{"type": "text", "text": fault.message[-_TRACE_CHARS:]}], "isError": True}
        text = (await self._runtime.leave_program(trace, context, note)).envelope.summary
        details = {**where, **_counted(program)}
        return ProgramFailed(f"{text} (line {fault.line}). {_ran(program)}", path=RUN, details=details)


def _may_view(program: KeptProgram, identity: Identity) -> bool:
    """True for a caller of the same rights, through the same virtual gate: what the answer is made of is not known."""
    return owner_of_programs(Identity.of_row(program.caller["identity"])) == owner_of_programs(identity)


async def _nothing_leaves() -> bool:
    """The claim of calls of a copy: whatever may write stays here."""
    return False


_FORMS = {
    "tool": "call it as tool(id, name=value, ...), with values that JSON has.",
    "browse": "call it as browse(query).",
}


def _arguments(asked: Asked) -> tuple[str, dict[str, Any]]:
    """Raises ValueError for anything else than ``_FORMS``."""
    args, kwargs = list(asked.args), dict(asked.kwargs)
    name = args.pop(0) if args else kwargs.pop("query" if asked.name == "browse" else "id", None)
    if asked.name == "tool" and len(args) == 1 and isinstance(args[0], dict) and not kwargs:
        kwargs = args.pop()
    if not isinstance(name, str) or args or (kwargs and asked.name == "browse"):
        raise ValueError
    plain_args: dict[str, Any] = to_jsonable_python(kwargs, bytes_mode="base64")
    return name, plain_args


def _value(result: Mapping[str, Any]) -> tuple[Any, bool]:
    """The value of a tool's result inside a program, whole; true if the tool reports an error."""
    structured, failed = result.get("structuredContent"), bool(result.get("isError"))
    if isinstance(structured, Mapping) and not failed:
        return (structured["result"] if structured.keys() == {"result"} else dict(structured)), False
    content = [part for part in result.get("content") or () if isinstance(part, Mapping)]
    text = "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    if not failed:
        with suppress(ValueError, RecursionError):
            return json.loads(text), False
    return text, failed


def _result_of(value: Any) -> Mapping[str, Any]:
    """The answer of a program in the form of a tool's result."""
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    structured = value if isinstance(value, dict) else {"result": value}
    return {"content": [{"type": "text", "text": json_text(value)}], "structuredContent": structured}


def _caller(context: CallContext) -> dict[str, Any]:
    return {
        "identity": context.identity.row(),
        "correlation_id": context.correlation_id,
        "session": context.session,
        "door": context.door,
        "source": context.source,
        "named": context.named,
    }


def _envelope(text: str, *, status: str = "ok") -> dict[str, Any]:
    return {**ResultEnvelope("ok", text, provenance={"tool_id": RUN}).as_dict(), "status": status}


def _counted(program: KeptProgram) -> dict[str, Any]:
    return {"ran": dict(list(program.ran.items())[:_MOST_RAN])}


def _ran(program: KeptProgram) -> str:
    if not program.ran:
        return "No call has run."
    tools = ", ".join(f"{tool} ({times})" for tool, times in list(program.ran.items())[:_MOST_RAN])
    return f"Calls that have run, and do not run again: {tools}."


def _limit(which: str, program: KeptProgram) -> ProgramLimit:
    details = {"limit": which, **_counted(program)}
    return ProgramLimit(
        f"The program was ended at its limit of {which}. {_LIMITS[which]} {_ran(program)}", path=RUN, details=details
    )


_WHY_LOST = "Its process or worker has ended."


def _lost(program: KeptProgram, why: str = _WHY_LOST) -> ProgramLost:
    text = f"The program is lost. {why} {_ran(program)} Whether the last call took effect is not known."
    return ProgramLost(text, path=RUN, details=_counted(program))


def _failure(error: BaseException) -> dict[str, Any]:
    return {"error": plain(error)}


def _answer_of(outcome: Mapping[str, Any]) -> ProgramAnswer:
    """Raises what the program has raised."""
    if "error" in outcome:
        raise raised(outcome["error"])
    cost = outcome.get("cost")
    return ProgramAnswer(outcome["body"], outcome.get("is_error", False), tuple(cost) if cost else None)


def no_such_program(id: str) -> ViewFailed:
    return ViewFailed("No such program, or it has expired.", path=f"{PROGRAM_HANDLE}:{id}")
