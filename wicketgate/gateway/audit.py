"""Audit records: one of every call, however it ended and whichever door it came through (ACCESS-23 to ACCESS-27).

A record says who, what, when and how it went; never a value: arguments only as a digest, results not at all. A critical
sink fails closed: no call begins while it cannot be written, and no result is shown that was not recorded.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol, Self

from wicketgate.errors import (
    ApprovalRequired,
    ArgsInvalid,
    Forbidden,
    GatewayError,
    HydrateFailed,
    InputRequired,
    PathInvalid,
    PathNotFound,
    RateLimited,
    SchemaInvalid,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    ViewFailed,
)
from wicketgate.gateway.plugin_chain import Stage
from wicketgate.ports import CallContext, CallMarks

log = logging.getLogger("wicketgate.audit")

_MAX_BACKGROUND = 10_000
"""Records that wait for sinks that are not critical."""
_MAX_ID = 300
"""A caller may ask for any text as an id."""

_INVALID = (ArgsInvalid, SchemaInvalid, PathInvalid, PathNotFound, HydrateFailed, ViewFailed)

AuditedOperation = Literal["execute", "view", "read", "prompt"]

AuditOutcome = Literal["allowed", "denied", "invalid", "failed", "cancelled", "approval_required"]

Leg = Literal["ok", "error", "timeout", "unavailable", "lost", "none"]
"""``none``: the call did not get so far."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """*at* is seconds since the epoch, when the call came in. *arguments* is the SHA-256 of their canonical JSON.

    Three legs say which part failed: *transport* (was the server reached), *protocol* (did it answer as MCP says),
    *tool* (was its result an error). *code* is the error that the caller got, empty for none.
    """

    at: float
    operation: AuditedOperation
    actor: str
    correlation_id: str
    outcome: AuditOutcome
    tool_id: str = ""
    server: str = ""
    arguments: str = ""
    transport: Leg = "none"
    protocol: Leg = "none"
    tool: Leg = "none"
    code: str = ""
    cached: bool = False
    duration_ms: float = 0.0
    upstream_ms: float = 0.0
    stages: Sequence[Stage] = field(default_factory=tuple)


class AuditSink(Protocol):
    """A destination of records. Each is written whole or not at all."""

    async def write(self, record: AuditRecord) -> None:
        """Return once it is kept. Raises AuditFailed when it is not, and keeps no part of it then."""
        ...

    async def ready(self) -> None:
        """Return if a record could be written now. Raises AuditFailed. Cheap while all is well."""
        ...

    async def aclose(self) -> None:
        """Once, when no more records come."""
        ...


class AuditFailed(Exception):
    """A record could not be kept. The text is for the log."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A sink with its name in the configuration, and whether calls may go on without it."""

    name: str
    sink: AuditSink
    critical: bool = True


class Auditor:
    """All sinks as one. No call waits for a sink that is not critical. By the name of a sink, *lost* counts the records
    that it did not keep, *refused* the calls that were refused because it could not be written."""

    def __init__(self, sinks: Sequence[Attached], *, wall_clock: Callable[[], float]) -> None:
        self._critical = tuple(attached for attached in sinks if attached.critical)
        self._others = tuple(attached for attached in sinks if not attached.critical)
        self._wall_clock = wall_clock
        self._background: set[asyncio.Task[bool]] = set()
        self.lost = {attached.name: 0 for attached in sinks}
        self.refused = {attached.name: 0 for attached in self._critical}

    def now(self) -> float:
        return self._wall_clock()

    async def admit(self) -> None:
        """Raises Forbidden while a critical sink cannot take a record: nothing may run that would leave no trace."""
        for attached in self._critical:
            try:
                await attached.sink.ready()
            except AuditFailed as error:
                self.refused[attached.name] += 1
                log.error("audit sink %s cannot be written: %s", attached.name, error)
                raise Forbidden("Calls are refused while the audit log cannot be written. Nothing was run.") from None

    async def record(self, record: AuditRecord) -> None:
        """Give it to every sink. Raises UpstreamError when a critical one did not keep it: what came of the call is
        not to be shown then."""
        self.record_elsewhere(record)
        if len(self._critical) == 1:
            kept = [await self._written(self._critical[0], record)]
        else:
            # Each in a task of its own: a caller that leaves while one writes does not keep the others from it.
            writing = [self._start(self._written(attached, record)) for attached in self._critical]
            kept = await asyncio.gather(*map(asyncio.shield, writing))
        if not all(kept):
            if record.transport == "none":
                raise UpstreamError("This could not be recorded, so its answer is withheld. No server was called.")
            raise UpstreamError("The call was made, but it could not be recorded, so its result is withheld.")

    def record_elsewhere(self, record: AuditRecord) -> None:
        """Give it to the sinks that are not critical."""
        for attached in self._others:
            if len(self._background) < _MAX_BACKGROUND:
                self._start(self._written(attached, record))
            else:
                self.lost[attached.name] += 1

    def record_soon(self, record: AuditRecord) -> None:
        """For a call that was cancelled: its task must end now, and the record is written all the same."""
        self.record_elsewhere(record)
        for attached in self._critical:
            self._start(self._written(attached, record))

    async def aclose(self) -> None:
        await asyncio.gather(*self._background, return_exceptions=True)
        for attached in (*self._critical, *self._others):
            await attached.sink.aclose()

    async def _written(self, attached: Attached, record: AuditRecord) -> bool:
        try:
            await attached.sink.write(record)
        except AuditFailed as error:
            self.lost[attached.name] += 1
            log.error("audit sink %s lost a record: %s", attached.name, error)
            return False
        return True

    def _start(self, work: Coroutine[None, None, bool]) -> asyncio.Task[bool]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


class AuditedCall:
    """Entered around one operation; everything set on it in between goes into the record that leaving it writes.

    Without an auditor it only carries notes. *hidden*: what was asked for exists, but not for this caller. *sent*: the
    call was on its way to the server. *answered*: the server gave an answer. Leaving raises UpstreamError when the
    record could not be kept where it must be.
    """

    def __init__(
        self,
        auditor: Auditor | None,
        operation: AuditedOperation,
        context: CallContext,
        now: Callable[[], float],
        tool_id: str = "",
    ) -> None:
        self._auditor = auditor
        self._operation = operation
        self._context = context
        self._now = now
        self._began = 0.0
        self.tool_id = tool_id
        self.server = ""
        self.arguments = ""
        self.hidden = False
        self.sent = False
        self.answered = False
        self.cached = False
        self.tool_error = False
        self.upstream_s = 0.0
        self.trail: list[Stage] = []
        self.marks = CallMarks()

    @property
    def recorded(self) -> bool:
        """True if the notes are read: notes that cost something are left out otherwise."""
        return self._auditor is not None

    async def __aenter__(self) -> Self:
        if self._auditor is not None:
            self._began = self._now()
            try:
                await self._auditor.admit()
            except Forbidden as refused:
                self._auditor.record_elsewhere(self._record(self._auditor, refused))
                raise
            except asyncio.CancelledError as left:
                self._auditor.record_soon(self._record(self._auditor, left))
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._auditor is None:
            return
        record = self._record(self._auditor, error)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._auditor.record_soon(record)
            return
        await self._auditor.record(record)

    def _record(self, auditor: Auditor, error: BaseException | None) -> AuditRecord:
        transport, protocol = self._legs(error)
        answered = protocol == "ok" and error is None
        duration = self._now() - self._began
        return AuditRecord(
            at=auditor.now() - duration,
            operation=self._operation,
            actor=self._context.identity.actor,
            correlation_id=self._context.correlation_id,
            outcome=self._outcome(error),
            tool_id=self.tool_id[:_MAX_ID],
            server=self.server,
            arguments=self.arguments,
            transport=transport,
            protocol=protocol,
            tool=("error" if self.tool_error else "ok") if answered else "none",
            code=error.code if isinstance(error, GatewayError) else "",
            cached=self.cached,
            duration_ms=round(duration * 1_000, 3),
            upstream_ms=round(self.upstream_s * 1_000, 3),
            stages=tuple(self.trail),
        )

    def _outcome(self, error: BaseException | None) -> AuditOutcome:
        if self.hidden:
            return "denied"
        match error:
            case None | InputRequired():
                return "allowed"
            case asyncio.CancelledError() | GeneratorExit():
                return "cancelled"
            case ApprovalRequired():
                return "approval_required"
            case Forbidden() | RateLimited():
                return "denied"
            case _ if isinstance(error, _INVALID):
                return "invalid"
            case _:
                return "failed"

    def _legs(self, error: BaseException | None) -> tuple[Leg, Leg]:
        if not self.sent:
            return "none", "none"
        # Sent is not carried: it may have waited for a slot until its end.
        match error:
            case RateLimited():
                return "none", "none"  # it got no slot at the server, so it never left
            case asyncio.CancelledError() | GeneratorExit() if not (self.marks.left or self.answered):
                return "none", "none"  # it was cancelled while it waited for a slot
            case UpstreamUnavailable():
                return "unavailable", "none"
            case UpstreamTimeout():
                return "timeout", "none"
            case UpstreamLost():
                return "lost", "none"
            case UpstreamError():
                return "ok", "error"
            case InputRequired():
                return "ok", "ok"
            case _:
                return "ok", "ok" if self.answered else "none"
