"""What a ``Store`` means, in SQL: plain calls on one connection, each within a transaction of the caller.

``memory`` calls them directly; ``sqlite`` calls them in its threads. ``redis.store_scripts`` does the same in Lua, and
a property test compares them operation by operation. A refused step needs no rollback: conditions are checked first,
room is made second, and what is written last cannot be refused. A row with a value of a wrong type, or with a part
missing, is refused and logged with its kind and key; nothing repairs it (EXEC-119).
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from wicketgate.storage.store import (
    LAPSED,
    MARK_S,
    NO_HOLDER,
    STRIPPED_BYTES,
    Append,
    Beat,
    Conflict,
    Drop,
    Fence,
    Full,
    Grant,
    Kind,
    Op,
    Put,
    Refused,
    Row,
    Signal,
    StoreUnavailable,
    Take,
    Window,
    Wish,
)

log = logging.getLogger("wicketgate.storage")

T = TypeVar("T")

PIECE_BYTES = 256 * 1024
"""Data above this length is written and read in pieces: SQLite's module copies a value while it holds the GIL."""
_LAPSED_AT_ONCE = 500
_MARK_KEPT_S = 3_600.0

SCHEMA = """
CREATE TABLE IF NOT EXISTS row (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL,
  size INTEGER NOT NULL, version INTEGER NOT NULL, expires REAL, holder TEXT, term INTEGER NOT NULL,
  written REAL NOT NULL, end0 INTEGER NOT NULL DEFAULT 0, end1 INTEGER NOT NULL DEFAULT 0, data BLOB NOT NULL,
  in_pieces INTEGER NOT NULL, UNIQUE (kind, key));
CREATE INDEX IF NOT EXISTS row_written ON row (kind, owner, written);
CREATE INDEX IF NOT EXISTS row_expires ON row (expires) WHERE expires IS NOT NULL;
CREATE INDEX IF NOT EXISTS row_holder ON row (holder) WHERE holder IS NOT NULL;
CREATE TABLE IF NOT EXISTS row_piece (row INTEGER NOT NULL, place INTEGER NOT NULL, data BLOB NOT NULL,
  UNIQUE (row, place));
CREATE TABLE IF NOT EXISTS log (row INTEGER NOT NULL, log INTEGER NOT NULL, position INTEGER NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (row, log, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (kind TEXT NOT NULL, owner TEXT NOT NULL, bytes INTEGER NOT NULL, rows INTEGER NOT NULL,
  PRIMARY KEY (kind, owner)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS held_bytes ON held (kind, bytes, owner);
CREATE TRIGGER IF NOT EXISTS row_in AFTER INSERT ON row BEGIN
  INSERT INTO held VALUES (new.kind, new.owner, new.size, 1), (new.kind, ' ', new.size, 1)
    ON CONFLICT DO UPDATE SET bytes = bytes + new.size, rows = rows + 1; END;
CREATE TRIGGER IF NOT EXISTS row_size AFTER UPDATE OF size ON row WHEN new.size <> old.size BEGIN
  UPDATE held SET bytes = bytes + new.size - old.size WHERE kind = new.kind AND owner IN (new.owner, ' '); END;
CREATE TRIGGER IF NOT EXISTS row_out AFTER DELETE ON row BEGIN
  UPDATE held SET bytes = bytes - old.size, rows = rows - 1 WHERE kind = old.kind AND owner IN (old.owner, ' ');
  DELETE FROM held WHERE kind = old.kind AND owner IN (old.owner, ' ') AND rows = 0;
  DELETE FROM row_piece WHERE row = old.id;
  DELETE FROM log WHERE row = old.id; END;
CREATE TABLE IF NOT EXISTS process_mark (process TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS process_place (kind TEXT NOT NULL, actor TEXT NOT NULL, process TEXT NOT NULL,
  held INTEGER NOT NULL, PRIMARY KEY (kind, actor, process)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS count_bucket (key TEXT PRIMARY KEY, start REAL NOT NULL, before INTEGER NOT NULL,
  span REAL NOT NULL, now INTEGER NOT NULL, last REAL NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS count_until ON count_bucket (until);
CREATE TABLE IF NOT EXISTS signal (number INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, sender TEXT NOT NULL,
  at REAL NOT NULL);
"""
_ALL = " "
"""The owner under which ``held`` has the sums of a kind; names of owners have no spaces."""
_COLUMNS = "owner, size, version, expires, holder, term, end0, end1, id, in_pieces"


class DamagedRow(StoreUnavailable):
    """Raised for a row that another program, or a defect of the disk, has changed. Logs the row."""

    def __init__(self, kind: str, key: object) -> None:
        super().__init__(f"the store has a damaged row ({kind} {key!r})")
        log.error("%s; it is not used", self)


def sound(kind: str, key: object, read: Callable[[], T]) -> T | None:
    """Returns what *read* makes of a row; None if its errors show that the row is damaged, which is logged."""
    try:
        return read()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        DamagedRow(kind, key)
        return None


@dataclass(slots=True)
class _Head:
    """A row without its data; *id* is None for one that does not exist. *in_pieces* is the length of data in pieces."""

    owner: str = ""
    size: int = 0
    version: int = 0
    expires: float | None = None
    holder: str | None = None
    term: int = 0
    end0: int = 0
    end1: int = 0
    id: int | None = None
    in_pieces: int = 0

    def end(self, log: int) -> int:
        return self.end1 if log else self.end0


def _head(kind: str, key: object, columns: Sequence[Any]) -> _Head:
    """Returns *columns* of a row as they are in ``_COLUMNS``. Raises DamagedRow for a value of a wrong type."""
    owner, size, version, expires, holder, term, end0, end1, id, in_pieces = columns
    if not (
        type(key) is type(owner) is str
        and type(size) is type(version) is type(term) is type(end0) is type(end1) is type(in_pieces) is int
        and (expires is None or type(expires) is float)
        and (holder is None or type(holder) is str)
    ):
        raise DamagedRow(kind, key)
    return _Head(owner, size, version, expires, holder, term, end0, end1, id, in_pieces)


class Pieces:
    """The data of rows with more than ``PIECE_BYTES``."""

    def __init__(self, disk: sqlite3.Connection) -> None:
        self._disk = disk

    def get(self, row: int) -> bytes:
        """Returns the sound pieces, joined."""
        found = self._disk.execute("SELECT data FROM row_piece WHERE row = ? ORDER BY place", (row,)).fetchall()
        return b"".join(piece for (piece,) in found if type(piece) is bytes)

    def put(self, row: int, data: bytes) -> None:
        whole = memoryview(data)
        pieces = ((row, at, whole[at : at + PIECE_BYTES]) for at in range(0, len(whole), PIECE_BYTES))
        self._disk.executemany("INSERT INTO row_piece VALUES (?, ?, ?)", pieces)

    def drop(self, row: int) -> None:
        self._disk.execute("DELETE FROM row_piece WHERE row = ?", (row,))


class Core:
    """*now* gives seconds on the clock of all processes that use the database."""

    def __init__(self, disk: sqlite3.Connection, now: Callable[[], float], pieces: Pieces | None = None) -> None:
        self._disk = disk
        self._now = now
        self._pieces = pieces or Pieces(disk)

    def get(self, kind: Kind, key: str) -> Row | None:
        sql = f"SELECT {_COLUMNS}, data FROM row WHERE kind = ? AND key = ?"  # noqa: S608
        found = self._disk.execute(sql, (kind.name, key)).fetchone()
        return None if found is None else self._row(kind.name, key, found, self._now())

    def of_owner(self, kind: Kind, owner: str | None, most: int) -> list[Row]:
        """Skips damaged rows."""
        now, rows = self._now(), []
        sql = (
            f"SELECT {_COLUMNS}, data, key FROM row WHERE kind = ?1 AND (?2 IS NULL OR owner = ?2) "  # noqa: S608
            "AND (expires IS NULL OR expires > ?4) ORDER BY written, key LIMIT ?3"
        )
        for *found, key in self._disk.execute(sql, (kind.name, owner, most, now)).fetchall():
            try:
                row = self._row(kind.name, key, found, now)
            except DamagedRow:  # which has logged it
                continue
            if row is not None:
                rows.append(row)
        return rows

    def read_log(self, kind: Kind, key: str, log: int, after: int, most: int) -> list[tuple[int, bytes]]:
        found = self._disk.execute(
            "SELECT position, log.data FROM log JOIN row ON row.id = log.row WHERE kind = ? AND key = ? AND log = ? "
            "AND position > ? AND (expires IS NULL OR expires > ?) ORDER BY position LIMIT ?",
            (kind.name, key, log, after, self._now(), most),
        ).fetchall()
        for number, (position, data) in enumerate(found):
            if type(position) is not int or type(data) is not bytes or position != found[0][0] + number:
                raise DamagedRow(kind.name, key)
        return found

    def step(self, ops: Sequence[Op], fence: Fence | None) -> list[int]:
        """Raises Conflict with nothing written, and Full after perhaps evicting rows: commit in each case. Raises
        DamagedRow with nothing written."""
        return _Step(self._disk, self._now(), self._pieces).run(ops, fence)

    def signal(self, topics: Sequence[str], sender: str) -> None:
        """Leaves signals for other processes, which read them with ``signals``."""
        now = self._now()
        sql = "INSERT INTO signal (topic, sender, at) VALUES (?, ?, ?)"
        self._disk.executemany(sql, [(topic, sender, now) for topic in topics])

    def signals(self, after: int, reader: str) -> tuple[int, list[str]]:
        """Returns the number of the last signal, and the topics of those behind number *after* from others than
        *reader*."""
        sql = "SELECT number, topic, sender FROM signal WHERE number > ? ORDER BY number"
        found = self._disk.execute(sql, (after,)).fetchall()
        return (found[-1][0] if found else after), [topic for _, topic, sender in found if sender != reader]

    def last_signal(self) -> int:
        number: int
        (number,) = self._disk.execute("SELECT coalesce(max(number), 0) FROM signal").fetchone()
        return number

    def beat(self, process: str, mark_s: float) -> Beat:
        now, disk = self._now(), self._disk
        was_ended = _is_ended(disk, process, now)
        if mark_s:
            disk.execute("INSERT OR REPLACE INTO process_mark VALUES (?, ?)", (process, now + mark_s))
        else:
            disk.execute("DELETE FROM process_mark WHERE process = ?", (process,))
            disk.execute("DELETE FROM process_place WHERE process = ?", (process,))
        # A mark that ends later was written before the clock was set back.
        disk.execute("UPDATE process_mark SET until = ?1 WHERE until > ?1", (now + max(mark_s, MARK_S),))
        self._clean(now)
        lapsed: dict[str, list[str]] = {}
        for kind, key in disk.execute(
            "SELECT kind, key FROM row LEFT JOIN process_mark ON process_mark.process = holder "
            # In random order, so that rows that no process takes cannot hide the others.
            "WHERE holder IS NOT NULL AND holder <> ? AND (until IS NULL OR until <= ?) ORDER BY random() LIMIT ?",
            (process, now, LAPSED),
        ):
            lapsed.setdefault(kind, []).append(key)
        return Beat(lapsed, was_ended)

    def is_ended(self, process: str) -> bool:
        return _is_ended(self._disk, process, self._now())

    def count(self, windows: Sequence[Window], *, peek: bool) -> Refused | None:
        now = self._now()
        writes: list[tuple[Any, ...]] = []
        refused: Refused | None = None
        for index, window in enumerate(windows):
            start = now // window.seconds * window.seconds
            passed = now - start
            found = self._disk.execute(
                "SELECT start, before, span, now, last FROM count_bucket WHERE key = ?", (window.key,)
            ).fetchone()
            if found is None:
                self._remove_buckets(now, 10)
            was, before, span, these, last = found or (start, 0, 0.0, 0, 0.0)
            if not all(type(each) in (int, float) for each in (was, before, span, these, last)):
                raise DamagedRow("count_bucket", window.key)
            if was != start:
                # A later bucket, if the clock was set back, counts like the one before.
                before = these if abs(was - start) == window.seconds else 0
                these, last, span = 0, 0.0, last if was < start else window.seconds
            wait_s = _wait_s(window, passed, before, span, these, last)
            if wait_s and (refused is None or wait_s > refused.retry_after_s):
                refused = Refused(index, wait_s)
            writes.append((window.key, start, before, span, these + 1, max(last, passed), start + 2 * window.seconds))
        if refused is None and not peek:
            self._disk.executemany("INSERT OR REPLACE INTO count_bucket VALUES (?, ?, ?, ?, ?, ?, ?)", writes)
        return refused

    def places(self, kind: str, process: str, limit: int, wishes: Sequence[Wish]) -> list[Grant]:
        now = self._now()
        grants = []
        for wish in wishes:
            (elsewhere,) = self._disk.execute(
                "SELECT coalesce(sum(held), 0) FROM process_place JOIN process_mark USING (process) "
                "WHERE kind = ? AND actor = ? AND process <> ? AND until > ?",
                (kind, wish.actor, process, now),
            ).fetchone()
            granted = max(0, min(wish.wanted, limit - elsewhere - wish.held))
            if held := wish.held + granted:
                self._disk.execute(
                    "INSERT OR REPLACE INTO process_place VALUES (?, ?, ?, ?)", (kind, wish.actor, process, held)
                )
            else:
                self._disk.execute(
                    "DELETE FROM process_place WHERE kind = ? AND actor = ? AND process = ?",
                    (kind, wish.actor, process),
                )
            grants.append(Grant(granted, elsewhere))
        return grants

    def _clean(self, now: float) -> None:
        """Removes some of what has lapsed."""
        _remove_expired(self._disk, now, _LAPSED_AT_ONCE)
        self._disk.execute("DELETE FROM signal WHERE at < ?", (now - 60,))
        # Kept for an hour, so that a process that stood still learns of it.
        self._disk.execute("DELETE FROM process_mark WHERE until < ?", (now - _MARK_KEPT_S,))
        self._disk.execute("DELETE FROM process_place WHERE process NOT IN (SELECT process FROM process_mark)")
        self._remove_buckets(now, _LAPSED_AT_ONCE)

    def _remove_buckets(self, now: float, most: int) -> None:
        self._disk.execute(
            "DELETE FROM count_bucket WHERE key IN (SELECT key FROM count_bucket WHERE until <= ? LIMIT ?)", (now, most)
        )

    def _row(self, kind: str, key: object, found: Sequence[Any], now: float) -> Row | None:
        """Returns a row without its end, None if it has expired. Raises DamagedRow."""
        head, data = _head(kind, key, found[:-1]), found[-1]
        if head.expires is not None and head.expires <= now:
            return None
        if head.in_pieces and data == b"" and head.id is not None:
            data = self._pieces.get(head.id)
        if type(data) is not bytes or (head.in_pieces and len(data) != head.in_pieces):
            raise DamagedRow(kind, key)
        life_s = None if head.expires is None else head.expires - now
        ends = head.end0, head.end1
        return Row(str(key), head.owner, data, head.version, life_s, head.holder, head.term, ends)


class _Step:
    """One step at the time *now*. Reads each row that it names once."""

    __slots__ = ("_disk", "_heads", "_now", "_pieces")

    def __init__(self, disk: sqlite3.Connection, now: float, pieces: Pieces) -> None:
        self._disk = disk
        self._now = now
        self._pieces = pieces
        self._heads: dict[tuple[str, str], _Head] = {}

    def run(self, ops: Sequence[Op], fence: Fence | None) -> list[int]:
        if fence is not None:
            row = self._head(fence.kind, fence.key)
            if (row.holder, row.term) != (fence.holder, fence.term):
                raise Conflict(-1)
        there: dict[tuple[str, str], bool] = {}
        for at, op in enumerate(ops):
            if not isinstance(op, Signal) and not self._allows(op, there):
                raise Conflict(at)
        for op in ops:
            if isinstance(op, Put) and op.kind.bounded:
                self._make_room(op)
        return [self._do(op) for op in ops]

    def _allows(self, op: Put | Append | Take | Drop, there: dict[tuple[str, str], bool]) -> bool:
        """*there*: which rows are there by what the step did to them before."""
        row = self._head(op.kind, op.key)
        match op:
            case Put() | Drop():
                there[op.kind.name, op.key] = isinstance(op, Put)
                return op.expect is None or op.expect == row.version
            case Append():
                if not there.get((op.kind.name, op.key), row.id is not None):
                    return False
                end = row.end(op.log)
                return end >= 0 if op.at == -1 else end in (op.at, op.at + len(op.entries))
            case Take():
                return row.holder is not None and row.holder != op.by and _is_ended(self._disk, row.holder, self._now)

    def _do(self, op: Op) -> int:
        match op:
            case Put():
                return self._put(op)
            case Append():
                return self._append(op)
            case Take():
                row = self._head(op.kind, op.key)
                row.term += 1
                sql = "UPDATE row SET holder = ?, term = ?, version = version + 1 WHERE id = ?"
                self._disk.execute(sql, (op.by, row.term, row.id))
                return row.term
            case Drop():
                row = self._head(op.kind, op.key)
                return 0 if row.id is None else self._disk.execute("DELETE FROM row WHERE id = ?", (row.id,)).rowcount
            case Signal():
                return 1

    def _put(self, op: Put) -> int:
        row, now, data = self._head(op.kind, op.key), self._now, op.data
        row.size = _size(op, row)
        row.version += 1
        if op.life_s is not None:
            row.expires = now + op.life_s
        if op.holder is not None:
            row.holder, row.term = (None if op.holder == NO_HOLDER else op.holder), row.term + 1
        was_in_pieces, short = row.in_pieces, data
        if data is not None:
            row.in_pieces = len(data) if len(data) > PIECE_BYTES else 0
            short = b"" if row.in_pieces else data
        if row.id is None:
            row.owner = op.owner
            row.id = self._disk.execute(
                "INSERT INTO row (kind, key, owner, size, version, expires, holder, term, written, data, in_pieces) "
                "VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)",
                (
                    *(op.kind.name, op.key, op.owner, row.size, row.expires, row.holder, row.term, now),
                    *(short or b"", row.in_pieces),
                ),
            ).lastrowid
        else:
            self._disk.execute(
                "UPDATE row SET size = ?, version = ?, expires = ?, holder = ?, term = ?, written = ?, in_pieces = ?, "
                "data = coalesce(?, data) WHERE id = ?",
                (row.size, row.version, row.expires, row.holder, row.term, now, row.in_pieces, short, row.id),
            )
            if data is not None and was_in_pieces:
                self._pieces.drop(row.id)
        if data is not None and row.in_pieces and row.id is not None:
            self._pieces.put(row.id, data)
        return row.version

    def _append(self, op: Append) -> int:
        row = self._head(op.kind, op.key)
        end = row.end(op.log)
        at = end if op.at == -1 else op.at
        after = at + len(op.entries)
        if end != after:
            entries = [(row.id, op.log, position, entry) for position, entry in enumerate(op.entries, at + 1)]
            try:
                self._disk.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", entries)
            except sqlite3.IntegrityError:
                raise DamagedRow(op.kind.name, op.key) from None
            if op.log:
                row.end1 = after
            else:
                row.end0 = after
            self._disk.execute("UPDATE row SET end0 = ?, end1 = ? WHERE id = ?", (row.end0, row.end1, row.id))
        if op.cut:
            self._disk.execute("DELETE FROM log WHERE row = ? AND log = ? AND position <= ?", (row.id, op.log, op.cut))
        return after

    def _make_room(self, op: Put) -> None:
        """Evicts rows until *op* fits. Raises Full."""
        kind, row = op.kind, self._head(op.kind, op.key)
        owner = op.owner if row.id is None else row.owner
        more, new = _size(op, row) - row.size, int(row.id is None)
        _remove_expired(self._disk, self._now, 100)
        while True:
            total, rows = self._held(kind, _ALL)
            own, own_rows = self._held(kind, owner)
            if _is_over(own + more, kind.owner_bytes) or _is_over(own_rows + new, kind.owner_rows):
                if not self._evict(kind, [owner]):
                    raise Full("owner")
            elif _is_over(total + more, kind.most_bytes) or _is_over(rows + new, kind.most_rows):
                if not self._evict(kind, self._largest_first(kind, owner, own + more)):
                    raise Full("all")
            else:
                return

    def _held(self, kind: Kind, owner: str) -> tuple[int, int]:
        """Returns bytes and rows of *owner*."""
        sql = "SELECT bytes, rows FROM held WHERE kind = ? AND owner = ?"
        size, rows = self._disk.execute(sql, (kind.name, owner)).fetchone() or (0, 0)
        if not (type(size) is type(rows) is int):
            raise DamagedRow("held", kind.name)
        return size, rows

    def _largest_first(self, kind: Kind, owner: str, own: int) -> Iterator[str]:
        """Yields all owners by the bytes that they hold. *owner* counts with *own* bytes, first among equals."""
        sql = "SELECT owner, bytes FROM held WHERE kind = ? ORDER BY bytes DESC, owner DESC"
        waiting = True
        for name, held in self._disk.execute(sql, (kind.name,)):
            if name in (owner, _ALL):
                continue
            if waiting and own >= held:
                waiting = False
                yield owner
            yield name
        if waiting:
            yield owner

    def _evict(self, kind: Kind, owners: Iterable[str]) -> bool:
        """Evicts the least recently written row of the first of *owners* that has one which may go: it has no holder,
        and the step does not name it."""
        if kind.gives == "nothing":
            return False
        named = {head.id for head in self._heads.values()}
        for owner in owners:
            found = self._disk.execute(
                "SELECT id FROM row WHERE kind = ? AND owner = ? AND holder IS NULL AND (? OR end0 >= 0) "
                "ORDER BY written, key LIMIT ?",
                (kind.name, owner, kind.gives == "row", len(named) + 1),
            ).fetchall()
            id = next((id for (id,) in found if id not in named), None)
            if id is None:
                continue
            if kind.gives == "row":
                self._disk.execute("DELETE FROM row WHERE id = ?", (id,))
            else:
                self._disk.execute("DELETE FROM log WHERE row = ?", (id,))
                sql = "UPDATE row SET size = ?, end0 = -1, end1 = -1 WHERE id = ?"
                self._disk.execute(sql, (STRIPPED_BYTES, id))
            return True
        return False

    def _head(self, kind: Kind, key: str) -> _Head:
        """Returns the row as the step has made it so far; an expired row is removed."""
        name = kind.name, key
        if (head := self._heads.get(name)) is not None:
            return head
        sql = f"SELECT {_COLUMNS} FROM row WHERE kind = ? AND key = ?"  # noqa: S608
        found = self._disk.execute(sql, name).fetchone()
        head = _Head() if found is None else _head(kind.name, key, found)
        if head.expires is not None and head.expires <= self._now:
            self._disk.execute("DELETE FROM row WHERE id = ?", (head.id,))
            head = _Head()
        self._heads[name] = head
        return head


def _is_ended(disk: sqlite3.Connection, process: str, now: float) -> bool:
    """A damaged mark, which is logged, is none: only its process writes it again."""
    mark = disk.execute("SELECT until FROM process_mark WHERE process = ?", (process,)).fetchone()
    if mark is not None and type(mark[0]) is not float:
        DamagedRow("process_mark", process)
        return True
    return mark is None or mark[0] <= now


def _size(op: Put, row: _Head) -> int:
    if op.size is not None:
        return op.size
    return row.size if op.data is None else len(op.data)


def _remove_expired(disk: sqlite3.Connection, now: float, most: int) -> None:
    disk.execute("DELETE FROM row WHERE id IN (SELECT id FROM row WHERE expires <= ? LIMIT ?)", (now, most))


def _is_over(number: int, bound: int) -> bool:
    return 0 < bound < number


def _wait_s(window: Window, passed: float, before: int, span: float, these: int, last: float) -> float:
    """Returns 0 if *window* has room for one more event, otherwise the seconds until it has.

    *passed* are the seconds of this bucket so far. The events of the bucket *before* came evenly in its first *span*
    seconds, *these* of this bucket in its first *last* ones. So each leaves the window *window.seconds* later.
    """
    room = window.limit - these - 1
    if before * max(0.0, 1 - passed / span if span else 0.0) <= room:
        return 0.0
    if room >= 0:
        return max(0.01, span * (1 - room / before) - passed)
    # This bucket is full by itself. It fits in the next one, once enough of these have left.
    full_s = last * (1 - (window.limit - 1) / these) if window.limit and these else window.seconds
    return max(0.01, window.seconds - passed + full_s)
