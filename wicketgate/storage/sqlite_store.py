"""Artifacts in one SQLite file, which outlives a restart and is shared by the processes of a host (EXEC-32).

Each put is one transaction, so an artifact is stored whole or not at all. It is kept in pieces, because the module
``sqlite3`` stops every other thread while it copies a value.
"""

import asyncio
import io
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from wicketgate.errors import ViewFailed
from wicketgate.ports import Artifact, PutOutcome
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.memory_store import MAX_AGE_S, MAX_BYTES, Bounds, Evicted, size_bytes
from wicketgate.storage.sqlite_file import connect, explain, prepare
from wicketgate.storage.sqlite_writer import WAIT_S, SQLiteWriter

log = logging.getLogger("wicketgate.artifacts")

T = TypeVar("T")

PIECE_BYTES = 256 * 1024
_READERS = 4

# The least recently used artifact of the owner who holds most.
_NEXT_TO_GO = """
SELECT id, size_bytes FROM artifact WHERE owner = (
    SELECT name FROM owner
    ORDER BY held_bytes + (CASE name WHEN :owner THEN :needed ELSE 0 END) DESC, name = :owner DESC, name DESC LIMIT 1
) ORDER BY used LIMIT 1
"""


class SQLiteArtifactStore:
    """Implements ArtifactStore. *now* is the time of day in seconds, because ages continue over a restart.

    A missing file is created, readable by its owner only. Raises ConfigError for a file that cannot be used, and leaves
    it as it is. For use from one event loop only, which never waits for the disk.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int = MAX_BYTES,
        max_age_s: float = MAX_AGE_S,
        now: Callable[[], float] = time.time,
        measures: StorageMeasures | None = None,
    ) -> None:
        self._path = path.absolute()
        self._bounds = Bounds(max_bytes, max_age_s)
        self._now = now
        self._used: dict[tuple[bytes, bytes], None] = {}
        self._readers = ThreadPoolExecutor(_READERS, "artifacts-read")
        self._of_thread = threading.local()
        self._connections: list[sqlite3.Connection] = []
        prepare(self._path, self._bring_within_bounds).log("sqlite")
        self._writer = SQLiteWriter(self._path, self._bring_within_bounds, measures=measures)

    @property
    def measures(self) -> StorageMeasures:
        return self._writer.measures

    async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
        if self._bounds.refuses(artifact):
            return "too_large"
        key = _key(owner, artifact.handle)
        # Uses are written with the next put, so that reading never waits for writers.
        used, self._used = self._used, {}
        try:
            evicted = await self._writer.run(lambda disk: _put(disk, key, artifact, used, self._bounds, self._now))
        except sqlite3.Error as error:
            level = without_level(self._writer.measures.fail, "artifacts")
            log.log(level, "artifact of %d bytes not kept: %s", len(artifact.data), explain(error))
            return "failed"
        self._writer.measures.fail.answered("artifacts")
        evicted.log("sqlite")
        return "kept"

    async def get(self, owner: str, handle: str) -> Artifact | None:
        key = _key(owner, handle)
        expired = self._now() - self._bounds.max_age_s
        try:
            found = await self._read(lambda disk: _get(disk, key, expired))
        except sqlite3.Error as error:
            log.log(without_level(self._writer.measures.fail, "artifacts"), "artifact not read: %s", explain(error))
            raise ViewFailed("The artifact cannot be read at the moment. Try again later.", path=handle) from None
        if found is None:
            return None
        # The latest use goes to the end.
        self._used.pop(key, None)
        self._used[key] = None
        media_type, label, data = found
        return Artifact(handle, media_type, label, data)

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await asyncio.to_thread(self._close_readers)
        await self._writer.aclose()

    def _bring_within_bounds(self, disk: sqlite3.Connection) -> Evicted:
        evicted = _expire(disk, self._now() - self._bounds.max_age_s)
        _make_room(disk, b"", 0, self._bounds, evicted)
        return evicted

    def _close_readers(self) -> None:
        self._readers.shutdown()
        while self._connections:
            self._connections.pop().close()

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        # Each thread keeps its own connection, as long as the file is the same.
        def run() -> T:
            disk: sqlite3.Connection | None = getattr(self._of_thread, "disk", None)
            generation = self._writer.generation
            if disk is not None and self._of_thread.generation != generation:
                self._connections.remove(disk)
                disk.close()
                disk = None
            if disk is None:
                disk = self._of_thread.disk = connect(self._path, WAIT_S)
                self._of_thread.generation = generation
                self._connections.append(disk)
            return work(disk)

        return await asyncio.get_running_loop().run_in_executor(self._readers, run)


def _put(
    disk: sqlite3.Connection,
    key: tuple[bytes, bytes],
    artifact: Artifact,
    used: dict[tuple[bytes, bytes], None],
    bounds: Bounds,
    now: Callable[[], float],
) -> Evicted:
    owner, handle = key
    row = (_text(artifact.media_type), _text(artifact.label), len(artifact.data), size_bytes(artifact))
    # Uses since the last put, then the artifacts that have expired.
    for each in used:
        _use(disk, *each)
    evicted = _expire(disk, now() - bounds.max_age_s)
    # An artifact that is stored already only gets a new age.
    refreshed = disk.execute(
        "UPDATE artifact SET stored_at = ? WHERE owner = ? AND handle = ? "
        "AND media_type = ? AND label = ? AND data_bytes = ? AND size_bytes = ?",
        (now(), owner, handle, *row),
    )
    if not refreshed.rowcount:
        # A new one first makes room; the triggers of the file keep the sums.
        disk.execute("DELETE FROM artifact WHERE owner = ? AND handle = ?", key)
        _make_room(disk, owner, row[-1], bounds, evicted)
        added = disk.execute(
            "INSERT INTO artifact (owner, handle, media_type, label, data_bytes, size_bytes, stored_at, used) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
            (owner, handle, *row, now()),
        )
        # Its bytes follow in pieces, without a copy of the whole.
        data = memoryview(artifact.data)
        disk.executemany(
            "INSERT INTO piece VALUES (?, ?, ?)",
            ((added.lastrowid, at, data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)),
        )
    _use(disk, owner, handle)
    return evicted


def _get(disk: sqlite3.Connection, key: tuple[bytes, bytes], expired: float) -> tuple[str, str, bytes] | None:
    # One statement sees one state of the file, so no piece can disappear while the others are read.
    rows = disk.execute(
        "SELECT media_type, label, data_bytes, data FROM artifact LEFT JOIN piece ON piece.artifact = artifact.id "
        "WHERE owner = ? AND handle = ? AND stored_at > ? ORDER BY place",
        (*key, expired),
    )
    # The buffer of a BytesIO becomes the result without a copy.
    data = io.BytesIO()
    last = None
    for last in rows:
        data.write(last[-1] or b"")
    if last is None:
        return None
    media_type, label, length, _ = last
    if data.tell() != length:
        raise sqlite3.DatabaseError("a piece is missing")
    return _string(media_type), _string(label), data.getvalue()


def _use(disk: sqlite3.Connection, owner: bytes, handle: bytes) -> None:
    disk.execute("UPDATE store SET uses = uses + 1")
    disk.execute(
        "UPDATE artifact SET used = (SELECT uses FROM store) WHERE owner = ? AND handle = ?",
        (owner, handle),
    )


def _expire(disk: sqlite3.Connection, expired: float) -> Evicted:
    count, size = disk.execute(
        "SELECT count(*), coalesce(sum(size_bytes), 0) FROM artifact WHERE stored_at <= ?", (expired,)
    ).fetchone()
    if count:
        disk.execute("DELETE FROM artifact WHERE stored_at <= ?", (expired,))
    return Evicted(by_age=count, size_bytes=size)


def _make_room(disk: sqlite3.Connection, owner: bytes, needed_bytes: int, bounds: Bounds, evicted: Evicted) -> None:
    (total,) = disk.execute("SELECT coalesce(sum(held_bytes), 0) FROM owner").fetchone()
    # One artifact at a time, because each changes which owner holds most.
    while total + needed_bytes > bounds.max_bytes:
        found = disk.execute(_NEXT_TO_GO, {"owner": owner, "needed": needed_bytes}).fetchone()
        if found is None:
            raise sqlite3.DatabaseError("the sums are wrong")
        number, size = found
        disk.execute("DELETE FROM artifact WHERE id = ?", (number,))
        total -= size
        evicted.for_space += 1
        evicted.size_bytes += size


def _key(owner: str, handle: str) -> tuple[bytes, bytes]:
    return _text(owner), _text(handle)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _string(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")
