"""The rows of logins in memory: gone with the process (ACCESS-150)."""

from collections.abc import Callable, Sequence

from wicketgate.login.rows import MOST_LISTED, Row, RowKind

_SWEEP = 256
"""Ended rows and leases are dropped once in so many writes."""


class MemoryRowStore:
    """Implements RowStore for one process, without awaiting anything. *now* is the time of day in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rows: dict[tuple[RowKind, str], Row] = {}
        self._leases: dict[tuple[RowKind, str], tuple[str, float]] = {}
        self._writes = 0

    async def read(self, kind: RowKind, key: str) -> Row | None:
        return self._live(kind, key)

    async def write(self, row: Row, *, most_of_owner: int | None = None) -> bool:
        self._writes += 1
        if self._writes % _SWEEP == 0:
            self._sweep()
        former = self._live(row.kind, row.key)
        if (former.version if former else 0) != row.version - 1:
            return False
        if former is None and most_of_owner is not None:
            of_owner = await self.of_owner(row.kind, row.owner)
            if len(of_owner) >= most_of_owner:
                return False
        self._rows[row.kind, row.key] = row
        return True

    async def delete(self, kind: RowKind, key: str) -> bool:
        there = self._live(kind, key) is not None
        self._rows.pop((kind, key), None)
        return there

    async def of_owner(self, kind: RowKind, owner: str | None) -> Sequence[Row]:
        now = self._now()
        found = [
            row
            for row in self._rows.values()
            if row.kind == kind and owner in (None, row.owner) and not _ended(row, now)
        ]
        return found[:MOST_LISTED]

    async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
        now = self._now()
        held_by, until = self._leases.get((kind, key), (holder, now))
        if held_by != holder and until > now:
            return False
        self._leases[kind, key] = holder, now + for_s
        return True

    async def release(self, kind: RowKind, key: str, holder: str) -> None:
        if self._leases.get((kind, key), ("", 0.0))[0] == holder:
            del self._leases[kind, key]

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _live(self, kind: RowKind, key: str) -> Row | None:
        row = self._rows.get((kind, key))
        return None if row is None or _ended(row, self._now()) else row

    def _sweep(self) -> None:
        now = self._now()
        self._rows = {name: row for name, row in self._rows.items() if not _ended(row, now)}
        self._leases = {name: lease for name, lease in self._leases.items() if lease[1] > now}


def _ended(row: Row, now: float) -> bool:
    return row.expires_at is not None and row.expires_at <= now
