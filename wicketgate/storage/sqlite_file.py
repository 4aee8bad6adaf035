"""The SQLite file of ``storage.url``: how it is made and opened, and the check of an existing file.

A file of another program or version, or a damaged one, is reported in one line and left as it is (EXEC-32).
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from wicketgate.errors import ConfigError

T = TypeVar("T")

_BUSY_S = 10.0
_RETRY_S = 0.02
_PAGE_BYTES = 8192
_WAL_BYTES = 64 * 1024 * 1024
_APPLICATION_ID = 0x57676174
_VERSION = 3


def prepare(path: Path, at_start: Callable[[sqlite3.Connection], T]) -> T:
    """Creates or checks the file, then runs *at_start* on it in the same transaction. Raises ConfigError, also if
    another process keeps the file locked."""
    # Create the file with the right mode, if it is missing.
    try:
        # An existing file is never opened here: closing it would release the locks that SQLite holds on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.is_file():
            raise ConfigError(f"storage.url: {path} is not a file") from None
    except FileNotFoundError:
        text = f"storage.url: the directory {path.parent} does not exist; make it, or name another file"
        raise ConfigError(text) from None
    except OSError as error:
        raise ConfigError(f"storage.url: {path} cannot be made: {error.strerror}") from None
    # Other processes may be starting with the same file.
    give_up_at = time.monotonic() + _BUSY_S
    while True:
        try:
            return _begin(path, at_start)
        except sqlite3.Error as error:
            # SQLite does not wait by itself while another process changes the mode of the journal.
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise ConfigError(f"storage.url: {path} {explain(error)}") from None
        time.sleep(_RETRY_S)


def connect(path: Path, busy_s: float = _BUSY_S) -> sqlite3.Connection:
    """Opens an existing file, for one thread at a time. A statement waits *busy_s* for the lock of another process."""
    disk = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    # A kill loses nothing. A power cut may lose the last puts, each of them whole.
    disk.execute("PRAGMA synchronous = NORMAL")
    disk.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    return disk


@contextmanager
def transaction(disk: sqlite3.Connection) -> Iterator[None]:
    """Commits what is written within, or nothing of it. Waits for other writers."""
    disk.execute("BEGIN IMMEDIATE")
    try:
        yield
        disk.execute("COMMIT")
    except BaseException:
        disk.rollback()
        raise


def explain(error: sqlite3.Error) -> str:
    """Returns the trouble as the end of a sentence that begins with the name of the file."""
    return _trouble(error)[1] or f"cannot be used ({error.sqlite_errorname})"


def kind_of(error: sqlite3.Error) -> str:
    """Returns the kind under which metrics count an error."""
    return _trouble(error)[0]


def _begin(path: Path, at_start: Callable[[sqlite3.Connection], T]) -> T:
    with closing(connect(path)) as disk:
        disk.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        # Under the lock of a write, so that only one of several starting processes creates the tables.
        with transaction(disk):
            _make_or_check(disk, path)
            done = at_start(disk)
        disk.execute("PRAGMA journal_mode = WAL")
    return done


def _make_or_check(disk: sqlite3.Connection, path: Path) -> None:
    # An empty file gets our tables.
    (application,) = disk.execute("PRAGMA application_id").fetchone()
    (tables,) = disk.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == 0 and tables == 0:
        disk.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        disk.execute("CREATE TABLE store (version INTEGER NOT NULL)")
        disk.execute("INSERT INTO store VALUES (?)", (_VERSION,))
        return
    # Any other must be of this program and this version, and sound.
    if application != _APPLICATION_ID:
        raise ConfigError(f"storage.url: {path} is a database of another program; name another file")
    versions = disk.execute("SELECT version FROM store").fetchall()
    if len(versions) != 1:
        raise sqlite3.DatabaseError("there is no version")
    ((version,),) = versions
    if version != _VERSION:
        raise ConfigError(
            f"storage.url: {path} was written by another version of Wicketgate (format {version}, this one knows "
            f"{_VERSION}); name another file"
        )


def check(disk: sqlite3.Connection, table: str) -> None:
    """Raises sqlite3.DatabaseError for a damaged table."""
    (verdict,) = disk.execute(f"PRAGMA quick_check({table})").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def statements(script: str) -> Iterator[str]:
    """Yields the statements of *script*, because ``executescript`` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _trouble(error: sqlite3.Error) -> tuple[str, str]:
    return _TROUBLES.get(_code(error), ("other", ""))


def _code(error: sqlite3.Error) -> int:
    """Returns the primary result code; errors that this program raises stand for damage."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF


_DAMAGED = "is damaged; move it away to begin with an empty one"
_TROUBLES = {
    sqlite3.SQLITE_NOTADB: ("damaged", "is not a database; name another file"),
    sqlite3.SQLITE_CORRUPT: ("damaged", _DAMAGED),
    sqlite3.SQLITE_ERROR: ("damaged", _DAMAGED),
    sqlite3.SQLITE_READONLY: ("readonly", "cannot be written: no permission"),
    sqlite3.SQLITE_CANTOPEN: (
        "gone",
        "cannot be opened: no permission, or removed; put it back, or restart with an empty one",
    ),
    sqlite3.SQLITE_BUSY: ("busy", "is locked by another process"),
    sqlite3.SQLITE_LOCKED: ("busy", ""),
    sqlite3.SQLITE_FULL: ("full", "has no room: the disk is full"),
    sqlite3.SQLITE_IOERR: ("full", ""),
}
"""By primary result code: the kind for metrics, and the end of a sentence."""
