"""Audit records as rows of a table, in a SQLite file or in PostgreSQL (ACCESS-23 to ACCESS-27).

The table ``wicketgate_audit`` is created if it is missing (ACCESS-67). Its columns are those of the CSV file.
"""

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wicketgate.errors import ConfigError
from wicketgate.gateway.audit import AuditFailed, AuditRecord
from wicketgate.storage.audit_file import COLUMNS, fields

_TYPES = {"cached": "BOOLEAN", "step": "INTEGER", "duration_ms": "REAL", "upstream_ms": "REAL"}
_COLUMNS = ", ".join(COLUMNS)
_BUSY_S = 4.0
_PATIENCE_S = 10
_MODE = 0o600
_RESERVE_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
_PROBE = "probe"
_PROBE_CHARS = 2_000

_DEFINITIONS = ", ".join(f"{column} {_TYPES.get(column, 'TEXT')} NOT NULL" for column in COLUMNS)
_CREATE = f"CREATE TABLE IF NOT EXISTS wicketgate_audit ({_DEFINITIONS})"
_CREATE_ROOM = "CREATE TABLE IF NOT EXISTS wicketgate_audit_room (filler BLOB)"
_CREATE_INDEX = "CREATE INDEX IF NOT EXISTS wicketgate_audit_by_time ON wicketgate_audit (timestamp)"


class SQLiteAudit:
    """Implements BatchWriter. Each batch is one synced transaction, so that kept records survive a power cut.

    A file that was moved or removed is created again. Room of *reserve_bytes* is kept in the file and its journal, so
    that the records of calls under way are kept when the disk is full: no further calls are let in once half of it is
    used (ACCESS-68).
    """

    def __init__(self, path: Path, *, reserve_bytes: int = _RESERVE_BYTES, busy_s: float = _BUSY_S) -> None:
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._busy_s = busy_s
        self._insert = f"INSERT INTO wicketgate_audit ({_COLUMNS}) VALUES ({', '.join('?' for _ in COLUMNS)})"  # noqa: S608
        self._db: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None

    def write(self, records: Sequence[AuditRecord]) -> str:
        self._transaction([_row(record) for record in records], keep=True)
        try:
            self._keep_room()
        except (sqlite3.Error, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def probe(self) -> None:
        self._transaction([("",) * len(COLUMNS)], keep=False)
        try:
            self._keep_room()
        except (sqlite3.Error, OSError) as error:
            raise AuditFailed(f"{type(error).__name__}: {error}") from None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _transaction(self, rows: Sequence[Sequence[Any]], *, keep: bool) -> None:
        try:
            db = self._open_current()
            try:
                self._insert_rows(db, rows, keep=keep)
            except sqlite3.Error as error:
                # After another failure than a full disk the connection cannot be trusted.
                if not _is_full(error):
                    self.close()
                    raise
                # The journal may begin again in the room that it has.
                db.execute("PRAGMA wal_checkpoint(RESTART)")
                self._insert_rows(db, rows, keep=keep)
        except (sqlite3.Error, OSError) as error:
            raise AuditFailed(f"{type(error).__name__}: {error}") from None

    def _insert_rows(self, db: sqlite3.Connection, rows: Sequence[Sequence[Any]], *, keep: bool) -> None:
        try:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(self._insert, rows)
            db.execute("COMMIT" if keep else "ROLLBACK")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise

    def _keep_room(self) -> None:
        """Makes sure that half of the reserve is free. Raises sqlite3.Error or OSError if the file cannot grow."""
        db = self._open_current()
        (free,), (page,) = db.execute("PRAGMA freelist_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
        if free * page < self._reserve_bytes // 2:
            db.execute("PRAGMA wal_checkpoint(RESTART)")
            self._fill(db, self._reserve_bytes)

    def _fill(self, db: sqlite3.Connection, needed: int) -> None:
        """Gets the reserve from the disk: as free pages of the file, and as length of the journal, which together need
        *needed* bytes."""
        # A file that cannot grow as far as its journal says leaves no room in the journal, so try that beside it first.
        self._try_to_grow(needed)
        # Committed before it is deleted, because pages that are freed in one transaction are never written.
        db.execute("INSERT INTO wicketgate_audit_room VALUES (zeroblob(?))", (self._reserve_bytes,))
        db.execute("DELETE FROM wicketgate_audit_room")
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _try_to_grow(self, needed: int) -> None:
        """Raises OSError if the file could not grow by so much."""
        fd, scratch = tempfile.mkstemp(prefix=f"{self._path.name}-room-", dir=self._path.parent)
        try:
            # Behind the same length, because a limit may be on the size of a file.
            os.lseek(fd, self._path.stat().st_size, os.SEEK_SET)
            piece = bytes(_PIECE_BYTES)
            while needed > 0:
                needed -= os.write(fd, piece)
        finally:
            Path(scratch).unlink()
            os.close(fd)

    def _open_current(self) -> sqlite3.Connection:
        # Keep the connection while the path names the same file.
        if self._db is not None and self._opened is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self._opened, self._path.stat()):
                    return self._db
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Created here, because SQLite would make it readable for every user.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, _MODE)
        self._opened = os.fstat(fd)
        os.close(fd)
        db = sqlite3.connect(self._path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            self._make_tables(db)
            self._fill(db, 2 * self._reserve_bytes)
        except (sqlite3.Error, OSError):
            db.close()
            raise
        self._db = db
        return db

    def _make_tables(self, db: sqlite3.Connection) -> None:
        # Under the lock of a write, because other processes may do the same.
        db.execute("BEGIN IMMEDIATE")
        for statement in (_CREATE, _CREATE_INDEX, _CREATE_ROOM):
            db.execute(statement)
        db.execute("COMMIT")


_TABLE_LOCK = 0x77696361
"""Of the database: held while a process makes the table."""


class PostgresAudit:
    """Implements BatchWriter over psycopg, which is imported only here. A lost connection is opened again."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError when psycopg is not installed."""
        try:
            import psycopg
        except ImportError:
            raise ConfigError(
                "an audit database of PostgreSQL needs psycopg: pip install 'wicketgate[postgres]'"
            ) from None
        self._psycopg = psycopg
        self._url = url
        self._insert = f"INSERT INTO wicketgate_audit ({_COLUMNS}) VALUES ({', '.join('%s' for _ in COLUMNS)})"  # noqa: S608
        self._db: Any = None

    def write(self, records: Sequence[AuditRecord]) -> str:
        self._transaction([_row(record) for record in records])
        return ""

    def probe(self) -> None:
        """Writes a large row and removes it, committed, because only that shows a full disk."""
        probe = {column: False if column == "cached" else 0 if column in _TYPES else "" for column in COLUMNS}
        probe |= {"operation": _PROBE, "detail": "." * _PROBE_CHARS}
        self._transaction([list(probe.values())], also=f"DELETE FROM wicketgate_audit WHERE operation = '{_PROBE}'")  # noqa: S608

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _transaction(self, rows: Sequence[Sequence[Any]], *, also: str = "") -> None:
        try:
            # One more try over a new connection, unless this one was new.
            fresh = self._db is None
            try:
                db = self._insert_rows(rows, also)
            except self._psycopg.OperationalError:
                if fresh:
                    raise
                self._disconnect()  # the connection was lost since the last write
                db = self._insert_rows(rows, also)
            db.commit()
        except self._psycopg.Error as error:
            self._disconnect()
            # The text of the driver may hold the address, so only the class is reported.
            raise AuditFailed(type(error).__name__) from None

    def _insert_rows(self, rows: Sequence[Sequence[Any]], also: str) -> Any:
        db = self._connect()
        with db.cursor() as cursor:
            cursor.executemany(self._insert, rows)
            if also:
                cursor.execute(also)
        return db

    def _disconnect(self) -> None:
        self.close()
        self._db = None

    def _connect(self) -> Any:
        if self._db is None:
            # Bounded even if the network drops every packet, because callers wait for these records.
            self._db = self._psycopg.connect(
                self._url, connect_timeout=_PATIENCE_S, tcp_user_timeout=_PATIENCE_S * 1_000
            )
            with self._db.cursor() as cursor:
                cursor.execute(f"SET statement_timeout = '{_PATIENCE_S}s'")
                # IF NOT EXISTS fails where two make the same at once, as replicas that start together do.
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLE_LOCK,))
                cursor.execute(_CREATE)
                cursor.execute(_CREATE_INDEX)
            self._db.commit()
        return self._db


def _is_full(error: sqlite3.Error) -> bool:
    """Returns true for a full disk and for a quota or limit, which SQLite does not tell from other write errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _row(record: AuditRecord) -> list[Any]:
    values = fields(record)
    values |= {column: json.dumps(values[column]) for column in ("stages", "flow")}
    return [_storable(values[column]) for column in COLUMNS]


def _storable(value: Any) -> Any:
    """Removes NUL and escapes lone surrogates, which no database takes."""
    return value.replace("\0", "").encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
