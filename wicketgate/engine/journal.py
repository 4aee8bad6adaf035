"""The journal of runs that a client may come back to: the stored events, and what is left of a run that was lost."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from wicketgate.engine.events import ErrorEvent, ToolFailure, encode
from wicketgate.errors import ProviderError, ToolError

LOST = encode(ErrorEvent(ProviderError.code, ProviderError.safe_message))
"""The end of a run that was lost while its model was asked, as far as is known."""
LOST_IN_TOOL = encode(
    ErrorEvent(ToolError.code, "The process that ran a tool for this chat ended, and the chat was not gone on with.")
)
UNKEPT = encode(ErrorEvent(ToolError.code, "The store of this service is unavailable, so this chat could not go on."))
"""The end of a stream whose run waits for its store, and is not waited for any more."""
_CALLED = b"event: tool-call\n"

FATE_UNKNOWN = (
    "fate unknown: this call was sent, and the process that waited for its result ended. It may have had its effect. "
    "It was not made again; look what it has changed before you make it again."
)


def lost_events(unfinished: Sequence[str], last_event: bytes | None = None) -> Sequence[bytes]:
    """The last events of a run whose process ended, encoded. *unfinished* are the ids of calls that were claimed and
    have no result (CHAT-112). The error is that of a tool if one of these, or the call in the *last_event*, was under
    way (CHAT-160)."""
    in_tool = bool(unfinished) or (last_event is not None and last_event.startswith(_CALLED))
    failures = [encode(ToolFailure(call_id, FATE_UNKNOWN)) for call_id in unfinished]
    return [*failures, LOST_IN_TOOL if in_tool else LOST]


@dataclass(frozen=True, slots=True)
class Claim:
    """A run by its name. *run_id* is part of every event's id; *digest* is that of the request that took the name."""

    run_id: str
    digest: str
    mine: bool
    """True for the one caller that has to run it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event, encoded, at its *position*: 1, 2, 3 and so on."""

    position: int
    event: bytes


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A run that its process has left, to be gone on with. *parts* as they were kept. *alone_s* is the time for which
    nobody has read it, as far as is known."""

    name: str
    run_id: str
    parts: Sequence[bytes]
    alone_s: float


class EventsGone(Exception):
    """The requested events are not kept any more, or never were."""


class JournalAway(Exception):
    """The journal cannot be read or written at the moment, or this run may not be added to any more."""


class Follower(Protocol):
    """One reader's position in a run."""

    @property
    def lost(self) -> bytes:
        """The end that a reader gets if the run came to none: the error that says why."""
        ...

    async def next(self) -> Sequence[Entry]:
        """The entries since the last call, at least one; none at the end of the run.

        Also none if the owner is gone and will not append any more: then the last event was not an end.
        """
        ...


class Journal(Protocol):
    """Keeps the events of runs for clients that come back.

    Bounded in bytes, for a run and in all, and in time: a while after its end a run is forgotten, and its name is free
    again. Room is shared among owners: who holds most loses first. The caller makes names that other actors cannot
    guess. The first to claim a name owns the run and alone appends; all others follow, from the beginning or from a
    position. No method needs more than an append-only stream for each run, so that a shared store can stand behind it
    as well as memory. ``claim``, ``find``, ``follow`` and ``append`` raise JournalAway.
    """

    @property
    def outlives(self) -> bool:
        """True if runs outlive their process, so that parts of them are to be kept."""
        ...

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> Claim:
        """Take *name* if it is free; otherwise return the claim that holds it. Exact among several processes. *part* is
        the first of what is needed to go on with the run; empty for none.

        Raises ShareRefused if no further run of *owner* can be kept now.
        """
        ...

    async def find(self, name: str) -> Claim | None:
        """The claim that holds *name*. Takes nothing."""
        ...

    async def append(
        self, name: str, events: Sequence[bytes], completed: Sequence[str] = (), part: bytes = b""
    ) -> None:
        """Add the owner's next events, encoded, without ids. Waits while followers have too much left to read.
        *completed* are the ids of the calls whose results are among them, *part* is what they add to what is needed to
        go on with the run from behind them.

        Neighboring texts among them may be joined into one event. If space runs out, the beginning is dropped, never
        events that a follower has still to read.
        """
        ...

    async def claim_call(self, name: str, call_id: str) -> bool:
        """True the first time that the owner claims this call of the run, and never again (CHAT-111).

        Raises NotAdmitted while claims cannot be kept.
        """
        ...

    async def end(self, name: str) -> None:
        """Close the run: the owner will not append any more. The time to live begins."""
        ...

    async def release(self, name: str) -> bool:
        """Give the run up, so that another process goes on with it at once; nothing more is done with it here. False if
        none could, or it cannot be given up now: then it is still this process's own."""
        ...

    async def next_abandoned(self) -> Abandoned:
        """Wait for a run that another process has left between two turns. This process is its owner from now on.

        Runs that cannot be continued are ended: with the results of calls whose fate is unknown, and an
        error.
        """
        ...

    def follow(self, name: str, after: int) -> AbstractAsyncContextManager[Follower]:
        """Read from behind *after*; 0 is the beginning. A position behind the end gives the last event again.

        While the context is open, the run counts as attended. Raises EventsGone when entered.
        """
        ...

    async def wait_unattended(self, name: str, for_s: float) -> None:
        """Return when the run had no follower for *for_s*, counted from the claim at the earliest."""
        ...

    async def wait_attended(self, name: str, within_s: float) -> bool:
        """Return true as soon as the run has a follower, false when it had none for *within_s*."""
        ...

    async def aclose(self) -> None:
        """Forget everything that this process holds."""
        ...
