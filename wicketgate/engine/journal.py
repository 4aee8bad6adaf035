"""Where the events of a run are kept while somebody may still come back for them (DESIGN §3 "The engine").

One run has one name; whoever claims it first is its owner and alone appends. Everybody else follows: from the
beginning or from a position, until the end. The Protocol asks for no more than an append-only stream per run can do, so
that it can stand on streams of a shared store as well as in memory.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Claim:
    """A run by its name. *run_id* is part of every event's id, *digest* says for which request the name was taken."""

    run_id: str
    digest: str
    mine: bool
    """True for the one caller that has to run it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event, encoded, at its *position*: 1, 2, 3 and so on."""

    position: int
    event: bytes


class JournalFull(Exception):
    """No further run can be kept now."""


class EventsGone(Exception):
    """The events that were asked for are not kept any more, or never were."""


class Follower(Protocol):
    """One reader's place in a run."""

    async def next(self) -> Sequence[Entry]:
        """What came since, at least one; nothing at the end of the run.

        Also nothing when the owner is gone and will not append any more: then the last event was not an end.
        """
        ...


class Journal(Protocol):
    """Bounded in bytes, for a run and in all, and in time: a while after its end a run is forgotten, and its name is as
    new. The names are the caller's to make unguessable between actors."""

    async def claim(self, name: str, run_id: str, digest: str) -> Claim:
        """Take *name* if nobody has; else tell whose it is. Once only, also among several processes.

        Raises JournalFull.
        """
        ...

    async def find(self, name: str) -> Claim | None:
        """As ``claim`` tells it, without taking anything."""
        ...

    async def append(self, name: str, events: Sequence[bytes]) -> None:
        """The owner's next events, encoded, without ids. Waits while those who follow have too much left to read.

        Texts that nobody has read yet may be joined into one event. What does not fit any more is dropped from the
        beginning, never what a follower has still to read.
        """
        ...

    async def end(self, name: str) -> None:
        """The owner will not append any more. The time to live begins."""
        ...

    def follow(self, name: str, after: int) -> AbstractAsyncContextManager[Follower]:
        """Read from behind *after*; 0 is the beginning. Asked to read on behind the end, the last event is given again.

        While the context is open, the run counts as attended. Raises EventsGone when entered.
        """
        ...

    async def wait_unattended(self, name: str, for_s: float) -> None:
        """Returns when nobody has followed the run for *for_s*, counted from the claim at the earliest."""
        ...

    async def aclose(self) -> None:
        """Forget everything that this process holds."""
        ...
