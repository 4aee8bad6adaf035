"""Audit records as rows of a table: SQLite without a server, or PostgreSQL (gatekit F).

The table ``wicketgate_audit`` is made if it is not there; its columns are those of the CSV file.
"""

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.edges.audit_lines import COLUMNS, fields
from app.errors import ConfigError
from app.gateway.audit import AuditFailed, AuditRecord

_TYPES = {"cached": "BOOLEAN", "duration_ms": "REAL", "upstream_ms": "REAL"}
_COLUMNS = ", ".join(COLUMNS)
_BUSY_S = 10.0
_CONNECT_S = 10

_CREATE = (
    "CREATE TABLE IF NOT EXISTS wicketgate_audit ("
    + ", ".join(f"{column} {_TYPES.get(column, 'TEXT')} NOT NULL" for column in COLUMNS)
    + ")"
)
_CREATE_INDEX = "CREATE INDEX IF NOT EXISTS wicketgate_audit_by_time ON wicketgate_audit (timestamp)"


class SQLiteAudit:
    """Implements BatchWriter. One transaction a batch, synced: what was said to be kept survives a power cut."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the database cannot be used."""
        self._insert = f"INSERT INTO wicketgate_audit ({_COLUMNS}) VALUES ({', '.join('?' for _ in COLUMNS)})"  # noqa: S608
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(_CREATE)
            self._db.execute(_CREATE_INDEX)
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"the audit database {path} cannot be used: {type(error).__name__}") from None

    def write(self, records: Sequence[AuditRecord]) -> None:
        self._transaction([_row(record) for record in records], keep=True)

    def probe(self) -> None:
        self._transaction([("",) * len(COLUMNS)], keep=False)

    def close(self) -> None:
        self._db.close()

    def _transaction(self, rows: Sequence[Sequence[Any]], *, keep: bool) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(self._insert, rows)
            self._db.execute("COMMIT" if keep else "ROLLBACK")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise AuditFailed(f"{type(error).__name__}: {error}") from None


class PostgresAudit:
    """Implements BatchWriter over psycopg, which is only imported here. A lost connection is made anew."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError when psycopg is not installed or the database cannot be used."""
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
        try:
            self.probe()
        except AuditFailed as failure:
            raise ConfigError(f"the audit database cannot be used: {failure}") from None

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
            fresh = self._db is None
            try:
                db = self._inserted(rows)
            except self._psycopg.OperationalError:
                if fresh:
                    raise
                self._drop()  # a connection that was lost while nothing was written
                db = self._inserted(rows)
            db.commit() if keep else db.rollback()
        except self._psycopg.Error as error:
            self._drop()
            # The driver's text may hold the address; the class says what happened.
            raise AuditFailed(type(error).__name__) from None

    def _inserted(self, rows: Sequence[Sequence[Any]]) -> Any:
        db = self._connected()
        with db.cursor() as cursor:
            cursor.executemany(self._insert, rows)
        return db

    def _drop(self) -> None:
        self.close()
        self._db = None

    def _connected(self) -> Any:
        if self._db is None:
            self._db = self._psycopg.connect(self._url, connect_timeout=_CONNECT_S)
            with self._db.cursor() as cursor:
                cursor.execute(_CREATE)
                cursor.execute(_CREATE_INDEX)
            self._db.commit()
        return self._db


def _row(record: AuditRecord) -> list[Any]:
    values = fields(record)
    values["stages"] = json.dumps(values["stages"])
    return [_storable(values[column]) for column in COLUMNS]


def _storable(value: Any) -> Any:
    """A text without NUL and half surrogate pairs, which no database takes."""
    return value.replace("\0", "").encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
