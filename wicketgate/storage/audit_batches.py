"""Audit records written in batches: those that come during one write go with the next (group commit)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from wicketgate.daemon_threads import DaemonThreads, NoThreadLeft
from wicketgate.gateway.audit import AuditFailed, AuditRecord

log = logging.getLogger("wicketgate.audit")

_MAX_BATCH = 1_000


class BatchWriter(Protocol):
    """Writes records where they are kept. Called in a thread, one call at a time."""

    def write(self, records: Sequence[AuditRecord]) -> None:
        """Keeps all of the records or none. Raises AuditFailed."""
        ...

    def probe(self) -> None:
        """Raises AuditFailed if a record cannot be kept now."""
        ...

    def close(self) -> None: ...


class BatchedSink:
    """Implements AuditSink over a writer that blocks.

    While the writer fails, it is tried once every *pause_s* for all callers together. A writer that takes longer than
    *patience_s* is left alone: its records count as lost, and it gets no more until it returns. While *max_waiting*
    records wait, further ones are refused.
    """

    def __init__(
        self, writer: BatchWriter, *, pause_s: float = 1.0, patience_s: float = 15.0, max_waiting: int = 10_000
    ) -> None:
        self._writer = writer
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._max_waiting = max_waiting
        self._threads = DaemonThreads(1, "audit")
        self._waiting: list[tuple[AuditRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._failed = False
        self._probing: asyncio.Task[None] | None = None
        self._probed = float("-inf")
        self._reason = ""

    async def write(self, record: AuditRecord) -> None:
        self._check_room()
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((record, kept))
        # One task writes; while it does, further records gather for its next batch.
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting())
        # Shielded, because the record goes with those of others even if its caller leaves.
        await asyncio.shield(kept)

    async def ready(self) -> None:
        self._check_room()
        if not self._failed:
            return
        # One probe at a time, and none within the pause after the last.
        if self._probing is None or self._probing.done():
            if asyncio.get_running_loop().time() < self._probed + self._pause_s:
                raise AuditFailed(self._reason)
            self._probing = asyncio.create_task(self._probe())
        await asyncio.shield(self._probing)
        if self._failed:
            raise AuditFailed(self._reason)

    async def aclose(self) -> None:
        for task in (self._writing, self._probing):
            if task is not None:
                await task
        await self._in_thread(self._writer.close)
        self._threads.close()

    def _check_room(self) -> None:
        if len(self._waiting) >= self._max_waiting:
            raise AuditFailed(f"{self._max_waiting} records wait to be written")

    async def _probe(self) -> None:
        async with self._turn:
            if self._failed:
                self._reason = await self._in_thread(self._writer.probe)
                self._failed = self._reason != ""
                if not self._failed:
                    log.info("the audit log can be written again")
            self._probed = asyncio.get_running_loop().time()

    async def _write_waiting(self) -> None:
        while self._waiting:
            async with self._turn:
                batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
                self._reason = await self._in_thread(partial(self._writer.write, [record for record, _ in batch]))
                self._failed = self._reason != ""
            # Answer the callers that are still there.
            for _, kept in batch:
                if kept.done():
                    continue
                if not self._failed:
                    kept.set_result(None)
                else:
                    kept.set_exception(AuditFailed(self._reason))
                    kept.exception()  # marks it as retrieved, because a caller that has left never looks

    async def _in_thread(self, work: Callable[[], None]) -> str:
        """Runs *work* in the thread. Returns the reason of a failure; empty without one."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._threads.run(work)
        except AuditFailed as error:
            return str(error) or "no reason given"
        except (TimeoutError, NoThreadLeft):
            return "it does not answer"
        except Exception as error:  # callers wait for these records, and must not wait for ever
            log.exception("the audit log has a fault")
            return type(error).__name__
        return ""
