"""Audit records as rows of a table, in a SQLite file or in PostgreSQL (ACCESS-23 to ACCESS-27).

The table ``wicketgate_audit`` is created if it is missing. Its columns are those of the CSV file.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wicketgate.errors import ConfigError
from wicketgate.gateway.audit import AuditFailed, AuditRecord
from wicketgate.storage.audit_file import COLUMNS, fields

_TYPES = {"cached": "BOOLEAN", "duration_ms": "REAL", "upstream_ms": "REAL"}
_COLUMNS = ", ".join(COLUMNS)
_BUSY_S = 10.0
_PATIENCE_S = 10
_MODE = 0o600

_CREATE = (
    "CREATE TABLE IF NOT EXISTS wicketgate_audit ("
    + ", ".join(f"{column} {_TYPES.get(column, 'TEXT')} NOT NULL" for column in COLUMNS)
    + ")"
)
_CREATE_INDEX = "CREATE INDEX IF NOT EXISTS wicketgate_audit_by_time ON wicketgate_audit (timestamp)"


class SQLiteAudit:
    """Implements BatchWriter. Each batch is one synced transaction, so that kept records survive a power cut.

    A file that was moved or removed is created again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._insert = f"INSERT INTO wicketgate_audit ({_COLUMNS}) VALUES ({', '.join('?' for _ in COLUMNS)})"  # noqa: S608
        self._db: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None

    def write(self, records: Sequence[AuditRecord]) -> None:
        self._transaction([_row(record) for record in records], keep=True)

    def probe(self) -> None:
        self._transaction([("",) * len(COLUMNS)], keep=False)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _transaction(self, rows: Sequence[Sequence[Any]], *, keep: bool) -> None:
        try:
            db = self._open_current()
            try:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(self._insert, rows)
                db.execute("COMMIT" if keep else "ROLLBACK")
            except sqlite3.Error:
                # After a failure the connection cannot be trusted.
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                self.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise AuditFailed(f"{type(error).__name__}: {error}") from None

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
        db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute(_CREATE)
            db.execute(_CREATE_INDEX)
        except sqlite3.Error:
            db.close()
            raise
        self._db = db
        return db


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

    def write(self, records: Sequence[AuditRecord]) -> None:
        self._transaction([_row(record) for record in records], keep=True)

    def probe(self) -> None:
        probe = [False if column == "cached" else 0 if column in _TYPES else "" for column in COLUMNS]
        self._transaction([probe], keep=False)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _transaction(self, rows: Sequence[Sequence[Any]], *, keep: bool) -> None:
        try:
            # One more try over a new connection, unless this one was new.
            fresh = self._db is None
            try:
                db = self._insert_rows(rows)
            except self._psycopg.OperationalError:
                if fresh:
                    raise
                self._disconnect()  # the connection was lost since the last write
                db = self._insert_rows(rows)
            db.commit() if keep else db.rollback()
        except self._psycopg.Error as error:
            self._disconnect()
            # The text of the driver may hold the address, so only the class is reported.
            raise AuditFailed(type(error).__name__) from None

    def _insert_rows(self, rows: Sequence[Sequence[Any]]) -> Any:
        db = self._connect()
        with db.cursor() as cursor:
            cursor.executemany(self._insert, rows)
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
                cursor.execute(_CREATE)
                cursor.execute(_CREATE_INDEX)
            self._db.commit()
        return self._db


def _row(record: AuditRecord) -> list[Any]:
    values = fields(record)
    values["stages"] = json.dumps(values["stages"])
    return [_storable(values[column]) for column in COLUMNS]


def _storable(value: Any) -> Any:
    """Removes NUL and escapes lone surrogates, which no database takes."""
    return value.replace("\0", "").encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
