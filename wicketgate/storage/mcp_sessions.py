"""The shared state of a handshake session next to its token: a row for what the client set later or for the end of
the session, and a row for each message about a call of another process (FACE-116, FACE-118, FACE-120).

Most sessions have no row until their client ends them.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import count
from typing import Literal

from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.store import Changed, Conflict, Drop, Full, Kind, Put, Row, Signal, Store, StoreUnavailable

Subject = tuple[Literal["answer", "cancel"], int | str]
"""The question or the request that a message is about, with its id."""

MESSAGE_S = 600.0
_TRIES = 20

_SESSIONS = Kind("mcp_session", most_bytes=64 * 2**20, most_rows=100_000, owner_rows=10_000, gives="row")
_MESSAGES = Kind("mcp_message", most_bytes=128 * 2**20, most_rows=100_000, owner_rows=1_000, gives="row")


@dataclass(frozen=True, slots=True)
class SessionState:
    """*version* counts the changes; 0 is a session without a row."""

    version: int = 0
    ended: bool = False
    log_level: str = ""
    uris: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KeptMessage:
    text: bytes
    age_s: float


class StoredMcpSessions:
    """Rows are kept for *life_s*, the life of a token. All methods raise StoreUnavailable."""

    def __init__(self, store: Store, life_s: float) -> None:
        self._store = store
        self._life_s = life_s

    async def look(self, id: str) -> SessionState:
        """A session whose row is damaged has ended: its client opens another one."""
        row = await self._store.get(_SESSIONS, id)
        if row is None:
            return SessionState()
        return sound(_SESSIONS.name, id, lambda: _read(row)) or SessionState(row.version, ended=True)

    async def change(self, id: str, actor: str, log_level: str, follow: str, unfollow: str) -> SessionState:
        """Sets the log level unless it is empty, and adds and removes a URI. Returns the state after it."""
        for attempt in count(1):
            before = await self.look(id)
            uris = (before.uris | ({follow} if follow else set())) - {unfollow}
            after = SessionState(before.version + 1, before.ended, log_level or before.log_level, uris)
            if before.ended or (after.log_level, after.uris) == (before.log_level, before.uris):
                return before
            try:
                await self._put(id, actor, after, before.version)
                return after
            except Conflict:
                if attempt == _TRIES:
                    raise StoreUnavailable("other processes change the session at the same time") from None
        raise AssertionError

    async def end(self, id: str, actor: str) -> None:
        await self._put(id, actor, SessionState(ended=True), None)

    async def _put(self, id: str, actor: str, state: SessionState, expect: int | None) -> None:
        data = packed([state.ended, state.log_level, sorted(state.uris)])
        put = Put(_SESSIONS, id, data, owner=hashed(actor), expect=expect, life_s=self._life_s)
        await self._step([put, Signal(_topic(id))])

    async def post(self, id: str, actor: str, subject: Subject, text: bytes) -> None:
        """Keeps a message for the process that waits for it, for ten minutes."""
        put = Put(_MESSAGES, _key(id, subject), text, owner=hashed(actor), life_s=MESSAGE_S)
        await self._step([put, Signal(_topic(id))])

    async def message(self, id: str, subject: Subject) -> KeptMessage | None:
        row = await self._store.get(_MESSAGES, _key(id, subject))
        return None if row is None else KeptMessage(row.data, MESSAGE_S - (row.life_s or 0.0))

    async def drop(self, id: str, subject: Subject) -> None:
        await self._store.step([Drop(_MESSAGES, _key(id, subject))])

    def listen(self, id: str) -> AbstractAsyncContextManager[Changed]:
        """Wakes after each change of a session, and after each message in it."""
        return self._store.listen(_topic(id))

    async def _step(self, ops: Sequence[Put | Signal]) -> None:
        try:
            await self._store.step(ops)
        except Full:
            raise StoreUnavailable("the store has no room for session data") from None


def _topic(id: str) -> str:
    return f"session.{id}"


def _key(id: str, subject: Subject) -> str:
    return f"{id}.{hashed(repr(subject))}"


def _read(row: Row) -> SessionState:
    """Raises ValueError and TypeError for a damaged row."""
    ended, log_level, uris = unpacked(row.data)
    if not (isinstance(ended, bool) and isinstance(log_level, str) and isinstance(uris, list)):
        raise TypeError
    if not all(isinstance(each, str) for each in uris):
        raise TypeError
    return SessionState(row.version, ended, log_level, frozenset(uris))
