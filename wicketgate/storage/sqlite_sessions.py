"""Seen cards in the file of ``storage.url``, over a restart and for all processes of a host (BROWSE-71)."""

import sqlite3
from collections.abc import Callable, Collection
from typing import TypeVar

from wicketgate.call_state import Step, StoreAway
from wicketgate.ports import owner_of
from wicketgate.storage.memory_store import SESSION_BOUNDS, SessionBounds
from wicketgate.storage.seen_rows import changed_cards, read_cards
from wicketgate.storage.sqlite_file import explain
from wicketgate.storage.sqlite_writer import SQLiteWriter

T = TypeVar("T")

_IDS_AT_ONCE = 500


class SQLiteSessionStore:
    """Implements SessionStore. *now* is the time of day in seconds. The writer is closed by its owner."""

    def __init__(self, writer: SQLiteWriter, now: Callable[[], float], bounds: SessionBounds = SESSION_BOUNDS) -> None:
        self._writer = writer
        self._now = now
        self._bounds = bounds

    async def update(self, session: str, ids: Collection[str], step: Step[T]) -> T:
        try:
            return await self._writer.run(lambda disk: self._update(disk, session, ids, step))
        except sqlite3.Error as error:
            raise StoreAway(f"the storage file {explain(error)}") from None

    async def aclose(self) -> None:
        """Does nothing: the writer is closed by its owner."""

    def _update(self, disk: sqlite3.Connection, session: str, ids: Collection[str], step: Step[T]) -> T:
        now = self._now()
        _drop(disk, "used < ?", now - self._bounds.max_age_s)
        wanted = [_text(tool_id) for tool_id in ids]
        rows: list[tuple[str, bytes]] = []
        for at in range(0, len(wanted), _IDS_AT_ONCE):
            some = wanted[at : at + _IDS_AT_ONCE]
            marks = ",".join("?" * len(some))
            query = f"SELECT id, card FROM seen_card WHERE session = ? AND id IN ({marks})"  # noqa: S608
            found = disk.execute(query, (session, *some))
            rows += [(tool_id.decode("utf-8", "surrogatepass"), card) for tool_id, card in found]
        before = read_cards(rows)
        result, after = step(before)
        changed = changed_cards(before, after)
        disk.execute(
            "INSERT INTO seen_session VALUES (?, ?, ?, 0) ON CONFLICT (name) DO UPDATE SET used = excluded.used",
            (session, owner_of(session), now),
        )
        disk.executemany(
            "INSERT OR REPLACE INTO seen_card VALUES (?, ?, ?)",
            [(session, _text(tool_id), card) for tool_id, card in changed.items()],
        )
        disk.execute(
            "UPDATE seen_session SET cards = (SELECT count(*) FROM seen_card WHERE session = ?) WHERE name = ?",
            (session, session),
        )
        self._make_room(disk, session)
        return result

    def _make_room(self, disk: sqlite3.Connection, session: str) -> None:
        # First the bound of the actor, then those of the store.
        owner, bounds = owner_of(session), self._bounds
        (own,) = disk.execute("SELECT count(*) FROM seen_session WHERE owner = ?", (owner,)).fetchone()
        if own > bounds.max_per_actor:
            oldest = "SELECT name FROM seen_session WHERE owner = ? AND name <> ? ORDER BY used, rowid LIMIT 1"
            _drop(disk, f"name = ({oldest})", owner, session)
        while True:
            sessions, cards = disk.execute("SELECT count(*), total(cards) FROM seen_session").fetchone()
            if sessions <= bounds.max_sessions and (cards <= bounds.max_cards or sessions == 1):
                return
            _drop(disk, "name = (SELECT name FROM seen_session WHERE name <> ? ORDER BY used, rowid LIMIT 1)", session)


def make_session_tables(disk: sqlite3.Connection) -> None:
    """Adds the tables beside those of the artifacts; older files do not have them."""
    disk.execute(
        "CREATE TABLE IF NOT EXISTS seen_session (name TEXT PRIMARY KEY, owner TEXT NOT NULL, used REAL NOT NULL, "
        "cards INTEGER NOT NULL)"
    )
    disk.execute("CREATE INDEX IF NOT EXISTS seen_session_by_use ON seen_session (used, cards)")
    disk.execute("CREATE INDEX IF NOT EXISTS seen_session_by_owner ON seen_session (owner, used)")
    disk.execute(
        "CREATE TABLE IF NOT EXISTS seen_card (session TEXT NOT NULL, id BLOB NOT NULL, card BLOB NOT NULL, "
        "PRIMARY KEY (session, id)) WITHOUT ROWID"
    )
    disk.execute(
        "CREATE TRIGGER IF NOT EXISTS seen_session_dropped AFTER DELETE ON seen_session BEGIN "
        "DELETE FROM seen_card WHERE session = old.name; END"
    )


def _drop(disk: sqlite3.Connection, which: str, *values: object) -> None:
    disk.execute(f"DELETE FROM seen_session WHERE {which}", values)  # noqa: S608


def _text(tool_id: str) -> bytes:
    return tool_id.encode("utf-8", "surrogatepass")
