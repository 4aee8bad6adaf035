"""Reads audit records back from the table that ``audit_sql`` writes, for people who look (OPS-248).

It has a connection and a thread of its own, so that no record of a call waits for a reader, and it gives up soon. What
it reads may have been written by other processes, and by other versions.
"""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from wicketgate.daemon_threads import DaemonThreads, NoThreadLeft
from wicketgate.storage.audit_file import COLUMNS

log = logging.getLogger("wicketgate.audit")

_LONGEST_S = 2.0
_STEPS = 20_000
_SEARCHED = ("tool_id", "server", "actor", "code", "correlation_id", "call_id", "detail")
_EXACT = ("server", "actor", "outcome", "code", "operation", "call_id", "tool", "phase")


class NotRead(Exception):
    """The table could not be read now. The text is for the log."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records to read: *exact* values by column; *tool* and *text* are parts of a text, whatever its case; from *since*
    on and until *until*, in seconds since the epoch. *before*: the timestamp and call id of the last that was read."""

    exact: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    text: str = ""
    since: float | None = None
    until: float | None = None
    before: tuple[str, str] | None = None


Row = Mapping[str, Any]
"""By column, as ``audit_file.fields`` has them."""


class Rows(Protocol):
    """A table of records. Called in a thread."""

    mark: str
    """The sign of a value in a statement."""

    def read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Raises NotRead."""
        ...

    def close(self) -> None: ...


class AuditReader:
    """Newest records first. *longest_s* is the bound of one reading."""

    def __init__(self, rows: Rows, *, longest_s: float = _LONGEST_S) -> None:
        self._rows = rows
        self._longest_s = longest_s
        self._threads = DaemonThreads(1, "audit reading")

    async def read(self, wanted: Wanted, most: int) -> list[Row]:
        """Returns at most *most* records. Raises NotRead."""
        statement, values = _statement(wanted, most, self._rows.mark)
        try:
            async with asyncio.timeout(self._longest_s):
                found = await self._threads.run(lambda: self._rows.read(statement, values))
        except (TimeoutError, NoThreadLeft):
            log.warning("older audit records could not be read within %g s", self._longest_s)
            raise NotRead("it does not answer") from None
        except NotRead as error:
            log.warning("older audit records could not be read: %s", error)
            raise
        return [_row(each) for each in found]

    async def aclose(self) -> None:
        self._threads.close()
        self._rows.close()


def timestamp(at: float) -> str:
    """Returns seconds since the epoch as the table has them, which sort as the times do."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _statement(wanted: Wanted, most: int, mark: str) -> tuple[str, list[Any]]:
    conditions, values = list[str](), list[Any]()

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition.replace("?", mark))
        values.extend(given)

    for column in _EXACT:
        if column in wanted.exact:
            add(f"{column} = ?", wanted.exact[column])
    if wanted.tool:
        add("lower(tool_id) LIKE ? ESCAPE '!'", _part(wanted.tool))
    if wanted.text:
        any_of = " OR ".join(f"lower({column}) LIKE ? ESCAPE '!'" for column in _SEARCHED)
        add(f"({any_of})", *[_part(wanted.text)] * len(_SEARCHED))
    if wanted.since is not None:
        add("timestamp >= ?", timestamp(wanted.since))
    if wanted.until is not None:
        add("timestamp <= ?", timestamp(wanted.until))
    if wanted.before is not None:
        at, call_id = wanted.before
        add("(timestamp < ? OR (timestamp = ? AND call_id < ?))", at, at, call_id)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    # The names stand in this module; values are bound.
    columns = ", ".join(COLUMNS)
    order = f"ORDER BY timestamp DESC, call_id DESC LIMIT {int(most)}"
    return f"SELECT {columns} FROM wicketgate_audit {where}{order}", values  # noqa: S608


def _part(text: str) -> str:
    escaped = text.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def _row(values: Sequence[Any]) -> Row:
    row = dict(zip(COLUMNS, values, strict=True))
    try:
        stages = json.loads(row["stages"] or "[]")
    except (ValueError, TypeError, RecursionError):
        stages = []
    row["stages"] = [each for each in stages if isinstance(each, dict)] if isinstance(stages, list) else []
    return row


class SQLiteRows:
    """Implements Rows over a file, which is opened for each reading and never written."""

    mark = "?"

    def __init__(self, path: Path, *, longest_s: float = _LONGEST_S) -> None:
        self._path = path
        self._longest_s = longest_s

    def read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        until = time.monotonic() + self._longest_s
        try:
            address = f"file:{quote(str(self._path.absolute()))}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=self._longest_s)) as db:
                # A table without an index for what is asked may be long.
                db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
                return list(db.execute(statement, values))
        except sqlite3.Error as error:
            raise NotRead(type(error).__name__) from None

    def close(self) -> None:
        """Does nothing: no connection is kept."""


class PostgresRows:
    """Implements Rows over psycopg, which is imported only here. The connection is kept; a lost one is opened again."""

    mark = "%s"

    def __init__(self, url: str, *, longest_s: float = _LONGEST_S) -> None:
        self._url = url
        self._longest_s = longest_s
        self._db: Any = None

    def read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        import psycopg

        try:
            fresh = self._db is None
            try:
                return self._read(psycopg, statement, values)
            except psycopg.OperationalError:
                self.close()
                if fresh:
                    raise
                return self._read(psycopg, statement, values)
        except psycopg.Error as error:
            self.close()
            # The text of the driver may hold the address.
            raise NotRead(type(error).__name__) from None

    def _read(self, psycopg: Any, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        if self._db is None:
            bound_s = max(2, int(self._longest_s))  # the driver takes no shorter one
            self._db = psycopg.connect(self._url, connect_timeout=bound_s, autocommit=True)
            self._db.read_only = True
            self._db.execute(f"SET statement_timeout = {int(self._longest_s * 1_000)}")
        found: list[Sequence[Any]] = self._db.execute(statement.encode(), values).fetchall()
        return found

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
