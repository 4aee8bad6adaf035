"""The SQLite file of ``storage.url``: its tables, and the check of an existing file.

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
_VERSION = 1

# Names and texts are kept as bytes, because a client may send any string as a handle, even invalid Unicode.
_SCHEMA = """
CREATE TABLE store (version INTEGER NOT NULL, uses INTEGER NOT NULL);
CREATE TABLE owner (name BLOB PRIMARY KEY, held_bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE artifact (
    id INTEGER PRIMARY KEY, owner BLOB NOT NULL, handle BLOB NOT NULL, media_type BLOB NOT NULL, label BLOB NOT NULL,
    data_bytes INTEGER NOT NULL, size_bytes INTEGER NOT NULL, stored_at REAL NOT NULL, used INTEGER NOT NULL,
    UNIQUE (owner, handle)
);
CREATE INDEX artifact_by_age ON artifact (stored_at);
CREATE INDEX artifact_by_use ON artifact (owner, used);
CREATE TABLE piece (artifact INTEGER NOT NULL, place INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (artifact, place));
CREATE TRIGGER artifact_put AFTER INSERT ON artifact BEGIN
    INSERT INTO owner VALUES (new.owner, new.size_bytes)
        ON CONFLICT (name) DO UPDATE SET held_bytes = held_bytes + excluded.held_bytes;
END;
CREATE TRIGGER artifact_dropped AFTER DELETE ON artifact BEGIN
    DELETE FROM piece WHERE artifact = old.id;
    UPDATE owner SET held_bytes = held_bytes - old.size_bytes WHERE name = old.owner;
    DELETE FROM owner WHERE name = old.owner AND held_bytes = 0;
END;
"""


def prepare(path: Path, at_start: Callable[[sqlite3.Connection], T], *, patience_s: float = _BUSY_S) -> T:
    """Creates or checks the file, then runs *at_start* on it in the same transaction. Raises ConfigError, also if
    another process keeps the file locked for *patience_s*."""
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
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return _begin(path, at_start, patience_s)
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
    return _EXPLANATIONS.get(_code(error)) or f"cannot be used ({error.sqlite_errorname})"


def kind_of(error: sqlite3.Error) -> str:
    """Returns the kind under which metrics count an error."""
    return _KINDS.get(_code(error), "other")


def _begin(path: Path, at_start: Callable[[sqlite3.Connection], T], busy_s: float) -> T:
    with closing(connect(path, busy_s)) as disk:
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
        for statement in _statements(_SCHEMA):
            disk.execute(statement)
        disk.execute("INSERT INTO store VALUES (?, 0)", (_VERSION,))
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
    # Pieces are not checked, because there may be many: a damaged one is found when it is read.
    (verdict,) = disk.execute("PRAGMA quick_check(artifact)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _statements(script: str) -> Iterator[str]:
    """Yields the statements of *script*, because ``executescript`` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _code(error: sqlite3.Error) -> int:
    """Returns the primary result code; errors that this program raises stand for damage."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF


_EXPLANATIONS = {
    sqlite3.SQLITE_NOTADB: "is not a database; name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; move it away to begin with an empty one",
    sqlite3.SQLITE_ERROR: "is damaged; move it away to begin with an empty one",
    sqlite3.SQLITE_READONLY: "cannot be written: no permission",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: no permission, or it is gone",
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_FULL: "has no room: the disk is full",
}

_KINDS = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_IOERR: "full",
    sqlite3.SQLITE_CANTOPEN: "gone",
    sqlite3.SQLITE_READONLY: "readonly",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_ERROR: "damaged",
}
