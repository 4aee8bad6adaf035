"""Audit records: one of every call, however it ended and whichever door it came through (ACCESS-23 to ACCESS-27).

A record says who, what, when and how it went; never a value: arguments only as a digest, results not at all. A critical
sink fails closed: no call begins while it cannot be written, no call that may write leaves without a record of the
intent (ACCESS-62), and no result is shown that was not recorded.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from wicketgate.errors import NotAdmitted, NotRecorded
from wicketgate.gateway.call_memory import canonical_json
from wicketgate.gateway.plugin_chain import Stage
from wicketgate.measures import Durations

log = logging.getLogger("wicketgate.audit")

_MAX_BACKGROUND = 10_000
"""Records that wait for sinks that are not critical."""

AuditedOperation = Literal[
    "execute",
    "view",
    "read",
    "prompt",
    "complete",
    "question",
    "sampling",
    "roots",
    "login",
    "connection",
    "approval",
    "reload",
    "server",
    "accept",
    "key",
    "run",
]

Phase = Literal["intent", "end"]
"""``intent``: a call that may write is about to leave. Every other record is an ``end``."""

AuditOutcome = Literal["allowed", "denied", "invalid", "failed", "cancelled", "approval_required"]

Leg = Literal["ok", "error", "timeout", "unavailable", "lost", "none"]
"""``none``: the call did not get so far."""


class AuditRecord(msgspec.Struct, frozen=True):
    """*at* is seconds since the epoch, when the call came in. *arguments* is the digest of their canonical JSON
    (``Auditor.digest``). *source* is the client's address, empty where there is none. The records of one call have one
    *call_id*. *approval* names an approval (``approval_mark``). *detail* is a short text of this program.

    Three legs say which part failed: *transport* (was the server reached), *protocol* (did it answer as MCP says),
    *tool* (was its result an error). *code* is the error that the caller got, empty for none. *flow*: the untrusted
    tools that the session had read, and the destinations of unknown origin, each as a digest like *arguments*. *gate*
    is the virtual gate that the call came through, empty for the whole one. *program* is the id of the program that
    made the call as its call number *step*, negative if a copy ran ahead. The record of the program itself (``run``)
    has its *text*, and the SHA-256 of that as *arguments*.
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
    stages: Sequence[Stage] = ()
    key_id: str = ""
    source: str = ""
    call_id: str = ""
    phase: Phase = "end"
    approval: str = ""
    detail: str = ""
    flow: Mapping[str, Sequence[str]] = {}
    gate: str = ""
    program: str = ""
    step: int = 0
    text: str = ""


class Watch(Protocol):
    """Someone who follows all operations. Must not wait or fail."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def note(self, record: AuditRecord) -> None: ...


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


def approval_mark(approval_id: str) -> str:
    """The name of an approval in records: the first 16 hex digits of the SHA-256 of its id, which itself could still be
    used. Empty for none."""
    return hashlib.sha256(approval_id.encode("utf-8", "surrogatepass")).hexdigest()[:16] if approval_id else ""


CALL_REFUSED = "Calls are refused while the audit log cannot be written. Nothing was run."


_READY_S = 1.0


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
    that it did not keep, *refused* the calls that were refused because it could not be written, and *seconds* how long
    its writes took. With *digest_key*, arguments are recorded as an HMAC under it."""

    def __init__(
        self, sinks: Sequence[Attached], *, wall_clock: Callable[[], float], digest_key: str | None = None
    ) -> None:
        self._critical = tuple(attached for attached in sinks if attached.critical)
        self._others = tuple(attached for attached in sinks if not attached.critical)
        self._wall_clock = wall_clock
        self._background: set[asyncio.Task[bool]] = set()
        self.lost = {attached.name: 0 for attached in sinks}
        self.refused = {attached.name: 0 for attached in self._critical}
        self.seconds = {attached.name: Durations() for attached in sinks}
        self.use_key(digest_key)

    def use_key(self, digest_key: str | None) -> None:
        """Digests arguments under this key from now on."""
        self._digest_key = digest_key.encode() if digest_key else None

    def now(self) -> float:
        return self._wall_clock()

    def digest(self, arguments: Mapping[str, Any]) -> str:
        """The SHA-256 of the canonical JSON, in hex; with a key ``hmac:`` and the HMAC-SHA256 (ACCESS-61)."""
        canonical = canonical_json(arguments)
        if self._digest_key is None:
            return hashlib.sha256(canonical).hexdigest()
        return f"hmac:{hmac.new(self._digest_key, canonical, hashlib.sha256).hexdigest()}"

    async def ready(self) -> bool:
        """Returns whether every critical sink can take a record; calls are refused while one cannot. Takes at most a
        second."""
        try:
            async with asyncio.timeout(_READY_S):
                for attached in self._critical:
                    await attached.sink.ready()
        except (AuditFailed, TimeoutError):
            return False
        return True

    async def admit(self) -> None:
        """Raises NotAdmitted while a critical sink cannot take a record: nothing may run that would leave no trace."""
        for attached in self._critical:
            try:
                await attached.sink.ready()
            except AuditFailed as error:
                self.refused[attached.name] += 1
                log.error("audit sink %s cannot be written: %s", attached.name, error)
                raise NotAdmitted(CALL_REFUSED) from None

    def refused_in_time(self) -> None:
        """Count a call that was refused because the critical sinks took too long together."""
        for name in self.refused:
            self.refused[name] += 1
        log.error("critical audit sinks did not answer in time, so a call was refused")

    async def intend(self, record: AuditRecord) -> None:
        """Give every sink the record of a call that is about to leave. Raises NotAdmitted when a critical one did not
        keep it: then the call must not be made (ACCESS-62)."""
        self.record_elsewhere(record)
        kept = await self._kept(record)
        for attached, was_kept in zip(self._critical, kept, strict=True):
            self.refused[attached.name] += not was_kept
        if not all(kept):
            raise NotAdmitted(CALL_REFUSED)

    async def record(self, record: AuditRecord) -> None:
        """Give it to every sink. Raises NotRecorded when a critical one did not keep it: what came of the call is
        not to be shown then."""
        self.record_elsewhere(record)
        if not all(await self._kept(record)):
            if record.transport == "none":
                raise NotRecorded("This could not be recorded, so its answer is withheld. No server was called.")
            raise NotRecorded("The call was made, but it could not be recorded, so its result is withheld.")

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

    async def _kept(self, record: AuditRecord) -> Sequence[bool]:
        """For each critical sink, whether it kept the record."""
        if len(self._critical) == 1:
            return [await self._written(self._critical[0], record)]
        # Each in a task of its own: a caller that leaves while one writes does not keep the others from it.
        writing = [self._start(self._written(attached, record)) for attached in self._critical]
        return await asyncio.gather(*map(asyncio.shield, writing))

    async def _written(self, attached: Attached, record: AuditRecord) -> bool:
        began = asyncio.get_running_loop().time()
        try:
            await attached.sink.write(record)
        except AuditFailed as error:
            self.lost[attached.name] += 1
            log.error("audit sink %s lost a record: %s", attached.name, error)
            return False
        finally:
            self.seconds[attached.name].observe(asyncio.get_running_loop().time() - began)
        return True

    def _start(self, work: Coroutine[None, None, bool]) -> asyncio.Task[bool]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
