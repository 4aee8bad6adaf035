"""The store of runs that outlive their process, as the journal needs it (CHAT-110 to CHAT-115, CHAT-123 to CHAT-129).

A process holds a lease on each of its runs. A run whose lease has lapsed is taken by another process, which goes on
with it or ends it. The lease decides who may add to a run; the claim of a call, never given back, decides that it is
made once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wicketgate.engine.journal import Entry

LEASE_S = 6.0
"""A run whose process has not renewed its lease for so long may be taken over."""
LOST_KEEP_S = 86_400.0
"""A run that was lost is kept so long, because its client may have been away with its server."""


class StoreAway(Exception):
    """The store cannot be read or written at the moment, which it logs."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run in the store, which holds its events from *first* to *last*.

    *lost*: a process that ran it ended before it did. Such a run is kept for a day from its end, because its client may
    have been away with its server. *lapsed*: it goes on, and its lease has lapsed.
    """

    run_id: str
    digest: str
    first: int
    last: int
    ended: bool
    lost: bool
    lapsed: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of what is needed to go on with a run from the event at *position*: 0 is before the first event. Pieces
    are numbered from 0; all of them together say how to go on from the position of the last one."""

    number: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class NewEvents:
    """The next entries of a run, the ids of the calls whose results are among them, and the parts that belong to
    them. One step: a part is never kept without the entries up to its position."""

    entries: Sequence[Entry]
    completed: Sequence[str]
    parts: Sequence[Part] = ()


@dataclass(frozen=True, slots=True)
class Orphan:
    """A run that was taken from a process that is gone. *last_event* is that at *last*; None if there is none.
    *parts* in their order, all that were kept. *unfinished*: the ids of calls that were claimed and have no result, in
    the order of their claims. *lapsed_s* is the time since its lease lapsed."""

    run_id: str
    digest: str
    owner: str
    last: int
    last_event: bytes | None
    parts: Sequence[Part]
    unfinished: Sequence[str]
    lapsed_s: float


class RunStore(Protocol):
    """Runs with their events, their parts and the claims of their calls, shared by processes. Each method is one step
    for all of them. A process renews the leases on its runs by ``renew`` and ``append``; a lease that lapsed is still
    its own until another process takes the run. The former holder of a run changes nothing in it any more. Every method
    raises StoreAway.
    """

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> KeptRun | None:
        """Take *name*, and return None; or return the run that has it. *part* is the data of the part with number 0 and
        position 0; empty for none. Raises ShareRefused if no more can be kept."""
        ...

    async def find(self, name: str) -> KeptRun | None: ...

    async def append(self, events: Mapping[str, NewEvents]) -> Sequence[str]:
        """Add the next events and parts of runs of this process, and complete the claims of calls. Returns the names of
        the runs that are not its own any more, to which nothing was added. What was added before, by position or by
        number of part, is not added twice."""
        ...

    async def claim_call(self, name: str, call_id: str) -> bool:
        """Claim a call so that not even a power cut forgets it. False if it was claimed before, or the run is not ours
        any more. A claim is never given back."""
        ...

    async def end(self, name: str) -> None:
        """End a run of this process, and drop its parts; with ``lost_events`` if its last event is not an end."""
        ...

    async def read(self, name: str, after: int) -> tuple[KeptRun, Sequence[Entry]] | None:
        """A bounded number of events behind *after*, and the state of the run when they were read."""
        ...

    async def renew(self) -> Sequence[str]:
        """Renew the lease on all runs of this process. Returns the names of those that were its own and are not any
        more, as ``append`` does."""
        ...

    async def release(self, name: str) -> None:
        """Give up a run of this process, which adds nothing to it any more: its lease has lapsed from now on. Does
        nothing for a run that is not its own."""
        ...

    async def lapsed(self, most: int) -> Mapping[str, bool]:
        """The names of runs that go on and whose lease has lapsed, *most* of them, those first that lapsed first; true
        for one that its process has released. Runs of this process are not among them."""
        ...

    async def take(self, name: str) -> Orphan | None:
        """Take a run whose lease has lapsed: it is this process's own from now on, and counts as lost. None if it is
        not to be had: another process was faster, or it has ended, or its process is back."""
        ...

    async def attend(self, name: str, for_s: float) -> None:
        """Say that a reader of another process reads the run for so long."""
        ...

    async def attended_s(self, name: str) -> float:
        """Seconds for which a reader elsewhere has said that it reads; below zero, the seconds since then. Minus
        infinity if there was none."""
        ...

    async def aclose(self) -> None: ...
