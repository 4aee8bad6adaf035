"""An audit sink in memory."""

import asyncio

from wicketgate.gateway.audit import AuditFailed, AuditRecord


class AuditMemory:
    """Keeps records, or fails as it is told to. Implements AuditSink."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self.broken = False
        self.gate: asyncio.Event | None = None
        self.closed = False

    async def write(self, record: AuditRecord) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.broken:
            raise AuditFailed("no space left on /secret/disk")
        self.records.append(record)

    async def ready(self) -> None:
        if self.broken:
            raise AuditFailed("no space left on /secret/disk")

    async def aclose(self) -> None:
        self.closed = True
