"""Sessions of the handshake era in memory, for one process (FACE-115)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from wicketgate.faces.mcp.kept_sessions import (
    ENDED_S,
    IDLE_S,
    MEMBER_S,
    RESERVED_S,
    KeptSession,
    Renewal,
    SessionChange,
)

MAX_KEPT = 100_000


@dataclass(slots=True)
class _Row:
    """*members* by id, with the time of their last renewal."""

    session: KeptSession
    until: float
    members: dict[str, float]


class MemoryMcpSessionStore:
    """Implements McpSessionStore without awaiting anything. *now* is a clock in seconds. Full, it drops the sessions
    that were opened first."""

    losses = 0

    def __init__(self, now: Callable[[], float], *, max_kept: int = MAX_KEPT) -> None:
        self._now = now
        self._max_kept = max_kept
        self._rows: dict[str, _Row] = {}
        self._ended: dict[str, float] = {}  # in the order of their ends
        self._places: dict[str, dict[str, float]] = {}  # by holder and name, until when

    async def reserve(self, name: str, holder: str, most: int) -> bool:
        now = self._now()
        held = {each: until for each, until in self._places.pop(holder, {}).items() if until > now}
        free = name in held or len(held) < most
        if free:
            held.setdefault(name, now + RESERVED_S)
        self._places[holder] = held
        return free

    async def release(self, name: str, holder: str) -> None:
        held = self._places.get(holder, {})
        held.pop(name, None)
        if not held:
            self._places.pop(holder, None)

    async def open(self, name: str, session: KeptSession, member: str, holder: str) -> None:
        if name in self._ended:
            return
        now = self._now()
        self._hold(name, holder, now + IDLE_S)
        self._rows[name] = _Row(session, now + IDLE_S, {member: now})
        if len(self._rows) > self._max_kept:
            del self._rows[next(iter(self._rows))]

    async def join(self, name: str, actor: str, member: str, holder: str) -> KeptSession | None:
        row = self._row(name)
        if row is None or row.session.actor != actor:
            return None
        now = self._now()
        row.members[member] = now
        row.until = now + IDLE_S
        self._hold(name, holder, row.until)
        return row.session

    async def renew(self, renewals: Mapping[str, Renewal], member: str) -> Collection[str]:
        now = self._now()
        for name, renewal in renewals.items():
            if name in self._ended:
                continue
            row = self._rows.setdefault(name, _Row(renewal.session, 0.0, {}))
            row.members[member] = now
            row.until = max(row.until, now + IDLE_S - renewal.idle_s)
            self._hold(name, renewal.holder, row.until)
        ended = [name for name in renewals if name in self._ended]
        # What has lapsed makes room.
        for name in [name for name, row in self._rows.items() if row.until <= now]:
            del self._rows[name]
        for name in [name for name, at in self._ended.items() if at + ENDED_S <= now]:
            del self._ended[name]
        for holder, held in list(self._places.items()):
            living = {name: until for name, until in held.items() if until > now}
            if living:
                self._places[holder] = living
            else:
                del self._places[holder]
        return ended

    async def change(self, name: str, change: SessionChange) -> Sequence[str]:
        row = self._row(name)
        if row is None:
            return ()
        row.session = row.session.changed(change)
        return self._members(row)

    async def members(self, name: str) -> Sequence[str]:
        row = self._row(name)
        return () if row is None else self._members(row)

    async def leave(self, name: str, member: str) -> Sequence[str]:
        row = self._row(name)
        if row is None:
            return ()
        row.members.pop(member, None)
        return self._members(row)

    async def end(self, name: str, holder: str) -> Sequence[str]:
        await self.release(name, holder)
        row = self._rows.pop(name, None)
        self._ended[name] = self._now()
        if len(self._ended) > self._max_kept:
            del self._ended[next(iter(self._ended))]
        return () if row is None else self._members(row)

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _hold(self, name: str, holder: str, until: float) -> None:
        self._places.setdefault(holder, {})[name] = until

    def _row(self, name: str) -> _Row | None:
        row = self._rows.get(name)
        return None if row is None or row.until <= self._now() else row

    def _members(self, row: _Row) -> Sequence[str]:
        since = self._now() - MEMBER_S
        return tuple(member for member, at in row.members.items() if at > since)
