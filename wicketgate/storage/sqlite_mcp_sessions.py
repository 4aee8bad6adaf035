"""Sessions of the handshake era in the file of ``storage.url``, for the processes of a host (FACE-115)."""

import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from wicketgate.faces.mcp.kept_sessions import (
    ENDED_S,
    IDLE_S,
    MEMBER_S,
    RESERVED_S,
    KeptSession,
    Renewal,
    SessionChange,
    SessionsAway,
)
from wicketgate.storage.mcp_session_rows import packed_facts, session_of_facts
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_file import explain, prepare
from wicketgate.storage.sqlite_writer import SQLiteWriter

log = logging.getLogger("wicketgate.mcp")

T = TypeVar("T")

# An ended session has no facts any more.
_SESSION = """
CREATE TABLE IF NOT EXISTS mcp_session (
    name TEXT PRIMARY KEY, facts BLOB, key_id BLOB NOT NULL, log_level TEXT NOT NULL, until REAL NOT NULL
) WITHOUT ROWID
"""
_URI = """
CREATE TABLE IF NOT EXISTS mcp_session_uri (
    name TEXT NOT NULL, uri BLOB NOT NULL, PRIMARY KEY (name, uri)
) WITHOUT ROWID
"""
_MEMBER = """
CREATE TABLE IF NOT EXISTS mcp_session_member (
    name TEXT NOT NULL, member TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (name, member)
) WITHOUT ROWID
"""
_BY_END = "CREATE INDEX IF NOT EXISTS mcp_session_by_end ON mcp_session (until)"
_DROPPED = """
CREATE TRIGGER IF NOT EXISTS mcp_session_dropped AFTER DELETE ON mcp_session BEGIN
    DELETE FROM mcp_session_uri WHERE name = old.name;
    DELETE FROM mcp_session_member WHERE name = old.name;
END
"""
_PLACE = """
CREATE TABLE IF NOT EXISTS mcp_session_place (
    holder TEXT NOT NULL, name TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (holder, name)
) WITHOUT ROWID
"""
_PLACE_BY_END = "CREATE INDEX IF NOT EXISTS mcp_session_place_by_end ON mcp_session_place (until)"
_TABLES = (_SESSION, _URI, _MEMBER, _BY_END, _DROPPED, _PLACE, _PLACE_BY_END)
_FAR_S = IDLE_S + MEMBER_S


class SQLiteMcpSessionStore:
    """Implements McpSessionStore. *now* is the time of day in seconds, which the processes share.

    Raises ConfigError for a file that cannot be used. For use from one event loop only, which never waits for the disk.
    """

    def __init__(self, path: Path, now: Callable[[], float], measures: StorageMeasures | None = None) -> None:
        self._now = now
        path = path.absolute()
        prepare(path, _make_tables)
        # A file that is begun anew gets the sessions back as they are renewed.
        self._writer = SQLiteWriter(path, _make_tables, measures=measures)

    @property
    def losses(self) -> int:
        return self._writer.generation

    async def reserve(self, name: str, holder: str, most: int) -> bool:
        def reserve(disk: sqlite3.Connection) -> bool:
            now = self._now()
            # An end too far ahead was written before the clock was set back.
            disk.execute("DELETE FROM mcp_session_place WHERE until <= ? OR until > ?", (now, now + _FAR_S))
            (others,) = disk.execute(
                "SELECT count(*) FROM mcp_session_place WHERE holder = ? AND name != ?", (holder, name)
            ).fetchone()
            if others >= most:
                return False
            disk.execute("INSERT OR IGNORE INTO mcp_session_place VALUES (?, ?, ?)", (holder, name, now + RESERVED_S))
            return True

        return await self._run(reserve)

    async def release(self, name: str, holder: str) -> None:
        await self._run(lambda disk: _free(disk, name, holder))

    async def open(self, name: str, session: KeptSession, member: str, holder: str) -> None:
        def open(disk: sqlite3.Connection) -> None:
            if self._has_ended(disk, name):
                return
            self._open(disk, name, session, member, IDLE_S)
            self._hold(disk, name, holder, IDLE_S)

        await self._run(open)

    async def join(self, name: str, actor: str, member: str, holder: str) -> KeptSession | None:
        return await self._run(lambda disk: self._join(disk, name, actor, member, holder))

    async def renew(self, renewals: Mapping[str, Renewal], member: str) -> Collection[str]:
        return await self._run(lambda disk: self._renew(disk, renewals, member))

    async def change(self, name: str, change: SessionChange) -> Sequence[str]:
        return await self._run(lambda disk: self._change(disk, name, change))

    async def members(self, name: str) -> Sequence[str]:
        return await self._run(lambda disk: self._members(disk, name))

    async def leave(self, name: str, member: str) -> Sequence[str]:
        def leave(disk: sqlite3.Connection) -> Sequence[str]:
            disk.execute("DELETE FROM mcp_session_member WHERE name = ? AND member = ?", (name, member))
            return self._members(disk, name)

        return await self._run(leave)

    async def end(self, name: str, holder: str) -> Sequence[str]:
        def end(disk: sqlite3.Connection) -> Sequence[str]:
            _free(disk, name, holder)
            members = self._members(disk, name)
            disk.execute("DELETE FROM mcp_session WHERE name = ?", (name,))
            disk.execute("INSERT INTO mcp_session VALUES (?, NULL, x'', '', ?)", (name, self._now() + ENDED_S))
            return members

        return await self._run(end)

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await self._writer.aclose()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.run(work)
        except sqlite3.Error as error:
            log.error("sessions of clients are not kept at the moment: the storage file %s", explain(error))
            raise SessionsAway from None

    def _open(self, disk: sqlite3.Connection, name: str, session: KeptSession, member: str, life_s: float) -> None:
        row = (name, packed_facts(session), _text(session.key_id), session.log_level, self._now() + life_s)
        disk.execute("INSERT OR REPLACE INTO mcp_session VALUES (?, ?, ?, ?, ?)", row)
        disk.executemany(
            "INSERT OR IGNORE INTO mcp_session_uri VALUES (?, ?)", [(name, _text(uri)) for uri in session.uris]
        )
        self._put_member(disk, name, member)

    def _join(self, disk: sqlite3.Connection, name: str, actor: str, member: str, holder: str) -> KeptSession | None:
        now = self._now()
        row = disk.execute(
            "SELECT facts, key_id, log_level FROM mcp_session WHERE name = ? AND until > ? AND facts IS NOT NULL",
            (name, now),
        ).fetchone()
        if row is None:
            return None
        facts, key_id, log_level = row
        uris = [_string(uri) for (uri,) in disk.execute("SELECT uri FROM mcp_session_uri WHERE name = ?", (name,))]
        session = session_of_facts(facts, _string(key_id), log_level, uris)
        if session is None or session.actor != actor:
            return None
        disk.execute("UPDATE mcp_session SET until = max(until, ?) WHERE name = ?", (now + IDLE_S, name))
        self._put_member(disk, name, member)
        self._hold(disk, name, holder, IDLE_S)
        return session

    def _renew(self, disk: sqlite3.Connection, renewals: Mapping[str, Renewal], member: str) -> Collection[str]:
        now = self._now()
        disk.execute("DELETE FROM mcp_session WHERE until <= ?", (now,))
        ended = list[str]()
        for name, renewal in renewals.items():
            row = disk.execute("SELECT facts IS NULL FROM mcp_session WHERE name = ?", (name,)).fetchone()
            life_s = IDLE_S - renewal.idle_s
            if life_s > 0 and not (row is not None and row[0]):
                self._hold(disk, name, renewal.holder, life_s)
            if row is None and life_s > 0:
                self._open(disk, name, renewal.session, member, life_s)
            elif row is not None and row[0]:
                ended.append(name)
            elif row is not None:
                disk.execute("UPDATE mcp_session SET until = max(until, ?) WHERE name = ?", (now + life_s, name))
                self._put_member(disk, name, member)
        return ended

    def _change(self, disk: sqlite3.Connection, name: str, change: SessionChange) -> Sequence[str]:
        if disk.execute("SELECT 1 FROM mcp_session WHERE name = ? AND facts IS NOT NULL", (name,)).fetchone() is None:
            return ()
        if change.key_id is not None:
            disk.execute("UPDATE mcp_session SET key_id = ? WHERE name = ?", (_text(change.key_id), name))
        if change.log_level:
            disk.execute("UPDATE mcp_session SET log_level = ? WHERE name = ?", (change.log_level, name))
        if change.follow:
            disk.execute("INSERT OR IGNORE INTO mcp_session_uri VALUES (?, ?)", (name, _text(change.follow)))
        if change.unfollow:
            disk.execute("DELETE FROM mcp_session_uri WHERE name = ? AND uri = ?", (name, _text(change.unfollow)))
        return self._members(disk, name)

    def _has_ended(self, disk: sqlite3.Connection, name: str) -> bool:
        ended = "SELECT 1 FROM mcp_session WHERE name = ? AND facts IS NULL AND until > ?"
        return disk.execute(ended, (name, self._now())).fetchone() is not None

    def _hold(self, disk: sqlite3.Connection, name: str, holder: str, life_s: float) -> None:
        disk.execute(
            "INSERT INTO mcp_session_place VALUES (?, ?, ?)"
            " ON CONFLICT (holder, name) DO UPDATE SET until = max(until, excluded.until)",
            (holder, name, self._now() + life_s),
        )

    def _put_member(self, disk: sqlite3.Connection, name: str, member: str) -> None:
        disk.execute("INSERT OR REPLACE INTO mcp_session_member VALUES (?, ?, ?)", (name, member, self._now()))

    def _members(self, disk: sqlite3.Connection, name: str) -> Sequence[str]:
        since = self._now() - MEMBER_S
        found = disk.execute("SELECT member FROM mcp_session_member WHERE name = ? AND at > ?", (name, since))
        return [member for (member,) in found]


def _free(disk: sqlite3.Connection, name: str, holder: str) -> None:
    disk.execute("DELETE FROM mcp_session_place WHERE holder = ? AND name = ?", (holder, name))


def _make_tables(disk: sqlite3.Connection) -> None:
    """Adds the tables beside those of the artifacts; older files do not have them."""
    for statement in _TABLES:
        disk.execute(statement)


# Any string may be an address or a name, even invalid Unicode.
def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _string(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")
