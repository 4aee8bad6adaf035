"""What the processes of a service share: rows, logs, counters and signals, in one ``Store``.

Processes never call each other. A process changes rows, and may raise a signal that asks others to look at one. The row
is the truth: a lost signal costs its waiter ``LOOK_S`` seconds. All writes are *steps*: lists of operations that are
done completely or not at all, under conditions. Each process keeps one *mark* alive; another process may take what it
holds once the mark has lapsed.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from wicketgate.errors import StoreUnavailable as StoreUnavailable

MARK_S = 6.0
"""A process whose mark is older counts as ended."""
BEAT_S = 1.5
"""The pause between two renewals of a mark."""
LOOK_S = 2.0
"""The longest wait for a signal: then the waiter looks at the row anyway."""
LAPSED = 100
"""The most rows of ended processes that one renewal of a mark returns."""
LISTED = 10_000
"""The default bound on the rows of one listing."""

Scope = Literal["owner", "all"]


class StoreRemoved(StoreUnavailable):
    """Raised if the file of the store was removed or replaced, so that it is not back before an operator acts."""


class Conflict(Exception):
    """Raised if a condition of a step did not hold; nothing was written. *at* is the index of the operation, -1 for the
    fence."""

    def __init__(self, at: int) -> None:
        super().__init__("held by another process" if at < 0 else f"operation {at}")
        self.at = at


class Full(Exception):
    """Raised if there is no room for a row, and nothing that may be evicted for it."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of rows with its bounds over all processes; 0 is no bound.

    *gives* is what a row that no process holds loses to make room: the whole row, only its logs, or nothing, in which
    case ``Full`` is raised. The owner who holds most loses first, the least recently written row first. A row that lost
    its logs keeps its key, its data, and ``STRIPPED_BYTES`` of size. *listed*: ``of_owner`` works, also without bounds.
    """

    name: str
    most_bytes: int = 0
    most_rows: int = 0
    owner_bytes: int = 0
    owner_rows: int = 0
    gives: Literal["row", "logs", "nothing"] = "nothing"
    listed: bool = False

    @property
    def bounded(self) -> bool:
        return bool(self.most_bytes or self.most_rows or self.owner_bytes or self.owner_rows)


STRIPPED_BYTES = 256


@dataclass(frozen=True, slots=True)
class Row:
    """*version* counts the writes of the row, from 1. *term* counts the changes of its holder. *holder* is None if no
    process holds the row, and empty if a process released it for the next one. *ends* are the lengths that the two logs
    ever had, -1 for logs that were evicted. *life_s* is the time left; None: the row does not expire."""

    key: str
    owner: str
    data: bytes
    version: int
    life_s: float | None = None
    holder: str | None = None
    term: int = 0
    ends: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fencing token: holds while *holder* holds the row in this *term*."""

    kind: Kind
    key: str
    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class Put:
    """Writes a row.

    *data* None keeps the data. *expect* is the version before: 0 for no row, None for any. *life_s* counts from now,
    for the row and its logs; None keeps the life that the row has, and gives a new row no end. *holder* is the process
    that holds the row from now on: empty to release it, ``NO_HOLDER`` for none, None to keep it. *size* counts for the
    bounds; None is the length of the data. *owner* is that of a new row; an existing row keeps its owner.
    """

    kind: Kind
    key: str
    data: bytes | None
    owner: str = ""
    expect: int | None = None
    life_s: float | None = None
    holder: str | None = None
    size: int | None = None


NO_HOLDER = "-"


@dataclass(frozen=True, slots=True)
class Append:
    """Adds *entries* to log 0 or 1 of a row, which must exist. *at* is where the log ends before, -1 for anywhere. If
    the log ends behind the entries already, the append was done and is not repeated. Drops entries up to *cut*."""

    kind: Kind
    key: str
    log: int
    at: int
    entries: Sequence[bytes]
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Take:
    """Makes *by* the holder of a row whose holder has ended or has released it."""

    kind: Kind
    key: str
    by: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Removes a row and its logs. Does nothing if there is none, unless *expect* names a version."""

    kind: Kind
    key: str
    expect: int | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """Wakes those who listen to *topic*, in all processes."""

    topic: str


Op = Put | Append | Take | Drop | Signal


@dataclass(frozen=True, slots=True)
class Window:
    """At most *limit* events in any *seconds*. *key* is unique among all windows of the store."""

    key: str
    limit: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """*index* is the window that stays full longest, *retry_after_s* when it has room again."""

    index: int
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Wish:
    """*held* places of *actor* are in use in this process; *wanted* is how many more it asks for."""

    actor: str
    held: int
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """*granted* of the wanted places; *elsewhere* is the number that the actor has in other processes."""

    granted: int
    elsewhere: int


@dataclass(frozen=True, slots=True)
class Beat:
    """*lapsed* are the keys of rows, by kind, that may be taken. *lost*: the own mark was not alive. It is the first
    one, or it had lapsed, or the store has lost it."""

    lapsed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lost: bool = False


class Changed(Protocol):
    async def wait(self, timeout_s: float = LOOK_S) -> None:
        """Returns after a signal since the last call, or after *timeout_s*. Look at the row in either case."""
        ...


class Store(Protocol):
    """Every method but ``aclose`` raises ``StoreUnavailable``. Times are durations, because the clock is the store's.

    Keys, owners and topics are ASCII without spaces: hash what a client chose. Back ends: ``memory``, ``sqlite``,
    ``redis.store``.
    """

    async def get(self, kind: Kind, key: str) -> Row | None: ...

    async def of_owner(self, kind: Kind, owner: str | None, most: int = LISTED) -> Sequence[Row]:
        """Returns the rows of one owner of a listed kind, or of all owners, least recently written first."""
        ...

    async def read_log(self, kind: Kind, key: str, log: int, after: int, most: int = 64) -> Sequence[tuple[int, bytes]]:
        """Returns the entries behind position *after* with their positions, which count from 1."""
        ...

    async def step(self, ops: Sequence[Op], *, fence: Fence | None = None, durable: bool = False) -> Sequence[int]:
        """Does all of *ops*, or nothing. Raises Conflict and Full; a step that is Full may have evicted rows.

        Returns for each operation its version (Put), the end of the log (Append), the term (Take), 1 or 0. A step has
        at most one Put, Take or Drop for a row, and at most one Put of a bounded kind. With *durable* it returns when
        the disk, or a replica of Redis, has acknowledged the step.
        """
        ...

    async def beat(self, process: str, *, mark_s: float = MARK_S) -> Beat:
        """Renews the mark of *process*. A *mark_s* of 0 removes it, and the places of the process."""
        ...

    async def alive(self, process: str) -> bool:
        """Returns true while the mark of *process* is alive."""
        ...

    async def count(self, windows: Sequence[Window], *, peek: bool = False) -> Refused | None:
        """Counts one event in all *windows*, or in none if one is full. With *peek* nothing is counted.

        A window is a sliding window of two buckets: events of the bucket before count as if they had come evenly up to
        the last of them.
        """
        ...

    async def places(self, kind: str, process: str, limit: int, wishes: Sequence[Wish]) -> Sequence[Grant]:
        """Sets the places that each actor holds in *process*, and grants further ones up to *limit* over all processes
        whose mark is alive."""
        ...

    def listen(self, topic: str) -> AbstractAsyncContextManager[Changed]:
        """Signals of *topic* since the context was entered. Look at the row after entering it."""
        ...

    async def aclose(self) -> None: ...


async def end_of_log(store: Store, kind: Kind, key: str) -> tuple[int, bytes]:
    """Returns the position and the text of the last entry in the first log of a row; ``(0, b"")`` if there is none.
    Raises StoreUnavailable."""
    row = await store.get(kind, key)
    end = row.ends[0] if row else 0
    last = await store.read_log(kind, key, 0, end - 1) if end else ()
    return last[-1] if last else (end, b"")
