"""Audit records written together: all that came while one write was under way go with the next (group commit)."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from app.gateway.audit import AuditFailed, AuditRecord

log = logging.getLogger("wicketgate.audit")

_MAX_BATCH = 1_000


class BatchWriter(Protocol):
    """Called in threads, one call at a time."""

    def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep all of them, or none. Raises AuditFailed."""
        ...

    def probe(self) -> None:
        """Raises AuditFailed if a record could not be kept now."""
        ...

    def close(self) -> None: ...


class BatchedSink:
    """Implements AuditSink over a writer that blocks."""

    def __init__(self, writer: BatchWriter) -> None:
        self._writer = writer
        self._waiting: list[tuple[AuditRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._failed = False

    async def write(self, record: AuditRecord) -> None:
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((record, kept))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting())
        # Shielded: a caller that leaves does not unwrite what goes with the records of others.
        await asyncio.shield(kept)

    async def ready(self) -> None:
        if not self._failed:
            return
        async with self._turn:
            if self._failed:
                await asyncio.to_thread(self._writer.probe)
                self._failed = False
                log.info("the audit log can be written again")

    async def aclose(self) -> None:
        if self._writing is not None:
            await self._writing
        await asyncio.to_thread(self._writer.close)

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
            failure: AuditFailed | None = None
            async with self._turn:
                try:
                    await asyncio.to_thread(self._writer.write, [record for record, _ in batch])
                except AuditFailed as error:
                    failure = error
                self._failed = failure is not None
            for _, kept in batch:
                if kept.done():
                    continue
                if failure is None:
                    kept.set_result(None)
                else:
                    kept.set_exception(AuditFailed(str(failure)))
                    kept.exception()  # noted as seen, for a caller that has left does not look
