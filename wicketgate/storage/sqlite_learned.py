"""Learned words in the file of ``storage.url``, for the processes of a host (BROWSE-48, BROWSE-51)."""

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wicketgate.catalog.learned_words import (
    MAX_ACTOR_TOOLS,
    MAX_SIZE,
    Held,
    Lesson,
    ToolWords,
    giving_way,
)
from wicketgate.errors import ConfigError
from wicketgate.ports import LearnedRows
from wicketgate.storage.learned_rows import packed_words, sound_words
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.sqlite_file import explain, prepare
from wicketgate.storage.sqlite_writer import SQLiteWriter

log = logging.getLogger("wicketgate.learning")


class SQLiteLearnedStore:
    """Implements LearnedStore. *now* is the time of day in seconds, because counts go on over a restart.

    Each batch is one transaction. A file that was removed is begun anew, empty. Raises ConfigError for a file that
    cannot be used. For use from one event loop only, which never waits for the disk.
    """

    shared = True

    def __init__(
        self,
        path: Path,
        now: Callable[[], float] = time.time,
        measures: StorageMeasures | None = None,
        *,
        max_size: int = MAX_SIZE,
        max_actor_tools: int = MAX_ACTOR_TOOLS,
    ) -> None:
        self.now = now
        self._path = path.absolute()
        self._max_size = max_size
        self._max_actor_tools = max_actor_tools
        self._generation = 0
        prepare(self._path, _make_tables)
        self._writer = SQLiteWriter(self._path, _make_tables, measures=measures)

    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        try:
            rows = await self._writer.run(lambda disk: self._learn(disk, lessons, since))
        except sqlite3.Error as error:
            level = without_level(self._writer.measures.fail, "learned_words")
            log.log(level, "learned words cannot be kept or read at the moment: the storage file %s", explain(error))
            return None
        self._writer.measures.fail.answered("learned_words")
        return rows

    async def reset(self, actor: str | None = None, tool_id: str | None = None) -> int:
        chosen = [
            (column, _text(value)) for column, value in (("actor", actor), ("tool", tool_id)) if value is not None
        ]
        where = " AND ".join(f"{column} = ?" for column, _ in chosen) or "1"

        def forget(disk: sqlite3.Connection) -> int:
            values = [value for _, value in chosen]
            gone = disk.execute(f"DELETE FROM learned WHERE {where}", values).rowcount  # noqa: S608
            if gone:
                _note_dropped(disk)
            return gone

        try:
            return await self._writer.run(forget)
        except sqlite3.Error as error:
            raise ConfigError(f"storage.url: {self._path} {explain(error)}") from None

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await self._writer.aclose()

    def _learn(self, disk: sqlite3.Connection, lessons: Sequence[Lesson], since: int) -> LearnedRows:
        if lessons:
            self._count(disk, lessons)
        version, dropped = disk.execute("SELECT version, dropped FROM learned_state").fetchone()
        # A version that is not there yet was that of a file which is gone.
        whole = since < dropped or since > version or self._generation != self._writer.generation
        self._generation = self._writer.generation
        rows = disk.execute(
            "SELECT actor, tool, runs, at, words FROM learned WHERE changed > ? ORDER BY changed, actor, tool",
            (0 if whole else since,),
        )
        now = self.now()
        return LearnedRows(version, [sound for row in rows if (sound := _read(now, *row)) is not None], whole)

    def _count(self, disk: sqlite3.Connection, lessons: Sequence[Lesson]) -> None:
        at = self.now()
        (version,) = disk.execute("UPDATE learned_state SET version = version + 1 RETURNING version").fetchone()
        grown = 0
        for lesson in lessons:
            key = _text(lesson.actor), _text(lesson.tool_id)
            row = disk.execute(
                "SELECT actor, tool, runs, at, words FROM learned WHERE actor = ? AND tool = ?", key
            ).fetchone()
            sound = _read(at, *row) if row else None
            former = None if sound is None else sound[2]
            words = (former or ToolWords()).taught(lesson.words, at, first=lesson.first)
            grown += words.size - (former.size if former else 0)
            disk.execute(
                "INSERT OR REPLACE INTO learned VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*key, words.runs, words.at, packed_words(words), words.size, version),
            )
        (size,) = disk.execute("UPDATE learned_state SET size = size + ? RETURNING size", (grown,)).fetchone()
        if size > self._max_size or any(self._has_too_many(disk, actor) for actor in {each.actor for each in lessons}):
            self._make_room(disk)

    def _has_too_many(self, disk: sqlite3.Connection, actor: str) -> bool:
        (tools,) = disk.execute("SELECT count(*) FROM learned WHERE actor = ?", (_text(actor),)).fetchone()
        return int(tools) > self._max_actor_tools

    def _make_room(self, disk: sqlite3.Connection) -> None:
        # What is damaged goes first: nothing could be told of it.
        disk.execute(
            "DELETE FROM learned WHERE typeof(actor) <> 'blob' OR typeof(tool) <> 'blob' "
            "OR typeof(size) <> 'integer' OR typeof(at) <> 'real' OR size < 1"
        )
        rows = disk.execute("SELECT actor, tool, size, at FROM learned")
        held = [Held(_letters(actor), _letters(tool), size, at) for actor, tool, size, at in rows]
        going = giving_way(held, self._max_size, self._max_actor_tools)
        disk.executemany(
            "DELETE FROM learned WHERE actor = ? AND tool = ?",
            [(each.actor.encode("latin-1"), each.tool_id.encode("latin-1")) for each in going],
        )
        _note_dropped(disk)


def _make_tables(disk: sqlite3.Connection) -> None:
    """Adds the tables beside those of the artifacts; older files do not have them."""
    disk.execute(
        "CREATE TABLE IF NOT EXISTS learned (actor BLOB NOT NULL, tool BLOB NOT NULL, runs REAL NOT NULL, "
        "at REAL NOT NULL, words TEXT NOT NULL, size INTEGER NOT NULL, changed INTEGER NOT NULL, "
        "PRIMARY KEY (actor, tool)) WITHOUT ROWID"
    )
    disk.execute("CREATE INDEX IF NOT EXISTS learned_by_change ON learned (changed)")
    disk.execute(
        "CREATE TABLE IF NOT EXISTS learned_state (version INTEGER NOT NULL, dropped INTEGER NOT NULL, "
        "size INTEGER NOT NULL)"
    )
    disk.execute("INSERT INTO learned_state SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM learned_state)")


def _note_dropped(disk: sqlite3.Connection) -> None:
    disk.execute(
        "UPDATE learned_state SET version = version + 1, dropped = version + 1, "
        "size = (SELECT CAST(total(size) AS INTEGER) FROM learned)"
    )


def _read(
    now: float, actor: object, tool: object, runs: object, at: object, words: object
) -> tuple[str, str, ToolWords] | None:
    """None for a row that is damaged."""
    try:
        names = _string(actor), _string(tool)
    except ValueError:
        return None
    sound = sound_words(now, runs, at, words)
    return None if sound is None else (*names, sound)


# Any string may be an actor's name, even invalid Unicode.
def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _string(value: object) -> str:
    if not isinstance(value, bytes):
        raise ValueError("not a name")
    return value.decode("utf-8", "surrogatepass")


def _letters(value: bytes) -> str:
    """A name for sorting alone, of any bytes."""
    return value.decode("latin-1")
