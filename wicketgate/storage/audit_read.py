"""Reads audit records back from the table that ``audit_sql`` writes, for people who look (OPS-248).

It has connections and threads of its own, so that no record of a call waits for a reader, and it gives up soon. An
actor has one reading at once, so no actor keeps the others out. What it reads may have been written by other processes,
and by other versions.
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

from wicketgate.daemon_threads import DaemonThreads, NoThreadLeft
from wicketgate.storage.audit_file import COLUMNS

log = logging.getLogger("wicketgate.audit")

_LONGEST_S = 2.0
_STEPS = 20_000
THREADS = 4
"""Readings at once, of as many actors."""
_SEARCHED = ("tool_id", "server", "actor", "code", "correlation_id", "call_id", "detail")
_EXACT = ("server", "actor", "outcome", "code", "operation", "call_id", "tool", "phase")


class NotRead(Exception):
    """The table could not be read now. The text is for the log."""


class ReadingsFull(Exception):
    """No reading can begin now. *scope*: ``actor``, by others of the same actor; ``all``, by those of other actors."""

    def __init__(self, scope: Literal["actor", "all"]) -> None:
        super().__init__(scope)
        self.scope = scope


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


class AuditReader:
    """Newest records first. *longest_s* is the bound of one reading."""

    def __init__(self, rows: Rows, *, longest_s: float = _LONGEST_S) -> None:
        self._rows = rows
        self._longest_s = longest_s
        self._threads = DaemonThreads(THREADS, "audit reading")
        self._reading = set[str]()
        self._left = asyncio.Event()

    async def read(self, wanted: Wanted, most: int, actor: str) -> list[Row]:
        """Returns at most *most* records, for *actor*. Waits for its turn as long as a reading may take. Raises
        NotRead and ReadingsFull."""
        statement, values = _statement(wanted, most, self._rows.mark)
        await self._take_turn(actor)
        loop = asyncio.get_running_loop()

        def read() -> list[Sequence[Any]]:
            # The turn ends with the work, which may go on when nobody waits for it any more.
            try:
                return self._rows.read(statement, values)
            finally:
                with suppress(RuntimeError):  # the loop is closed: the process ends
                    loop.call_soon_threadsafe(self._leave, actor)

        try:
            async with asyncio.timeout(self._longest_s):
                found = await self._threads.run(read)
        except (TimeoutError, NoThreadLeft):
            log.warning("older audit records could not be read within %g s", self._longest_s)
            raise NotRead("it does not answer") from None
        except NotRead as error:
            log.warning("older audit records could not be read: %s", error)
            raise
        return [_row(each) for each in found]

    async def aclose(self) -> None:
        self._threads.close()

    async def _take_turn(self, actor: str) -> None:
        """Raises ReadingsFull."""
        try:
            async with asyncio.timeout(self._longest_s):
                while actor in self._reading or len(self._reading) >= THREADS:
                    await self._left.wait()
        except TimeoutError:
            raise ReadingsFull("actor" if actor in self._reading else "all") from None
        self._reading.add(actor)

    def _leave(self, actor: str) -> None:
        self._reading.discard(actor)
        self._left.set()
        self._left = asyncio.Event()


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
    stages, flow = _json(row["stages"]), _json(row["flow"])
    row["stages"] = [each for each in stages if isinstance(each, dict)] if isinstance(stages, list) else []
    row["flow"] = flow if isinstance(flow, dict) else {}
    return row


def _json(text: Any) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, TypeError, RecursionError):
        return None


class SQLiteRows:
    """Implements Rows over a file, which is opened for each reading and never written. SQLite is imported only here."""

    mark = "?"

    def __init__(self, path: Path, *, longest_s: float = _LONGEST_S) -> None:
        self._path = path
        self._longest_s = longest_s

    def read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        import sqlite3

        until = time.monotonic() + self._longest_s
        try:
            address = f"file:{quote(str(self._path.absolute()))}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=self._longest_s)) as db:
                # A table without an index for what is asked may be long.
                db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
                return list(db.execute(statement, values))
        except sqlite3.Error as error:
            raise NotRead(type(error).__name__) from None


class PostgresRows:
    """Implements Rows over psycopg, which is imported only here. Connects for each reading: people read seldom."""

    mark = "%s"

    def __init__(self, url: str, *, longest_s: float = _LONGEST_S) -> None:
        self._url = url
        self._longest_s = longest_s

    def read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        import psycopg

        bound_ms = int(self._longest_s * 1_000)
        connect_s = max(2, int(self._longest_s))  # the driver takes no shorter one
        # Without the last bound a network that swallows everything would keep the thread.
        bounds: dict[str, Any] = {"connect_timeout": connect_s, "tcp_user_timeout": 2 * bound_ms}
        try:
            with psycopg.connect(self._url, autocommit=True, **bounds) as db:
                db.execute(f"SET statement_timeout = {bound_ms}")
                db.execute("SET default_transaction_read_only = on")
                return list(db.execute(statement.encode(), values))
        except (psycopg.Error, UnicodeError) as error:
            # The text of the driver may hold the address.
            raise NotRead(type(error).__name__) from None
