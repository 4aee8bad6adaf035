"""The calls that wait for an approval, and what was decided about them (OPS-253 to OPS-258).

The list is for people: nothing counts by being in it. An approval counts by its sealed id alone, once over all
processes.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from wicketgate.access.approvers import Needs, Vote
from wicketgate.gateway.call_memory import canonical_json
from wicketgate.ports import Door

MOST = 500
MOST_OF_ACTOR = 50
MOST_DECIDED = 50
"""The number of decisions that are shown."""
MOST_SHOWN_BYTES = 16_384
"""Larger arguments are not kept, and nobody can decide here on what nobody can read."""
_MOST_NAMES = 50

Decision = Literal["approve", "deny"]
Verdict = Literal["", "run", "denied", "denied_by_others", "changed"]
"""The use of a decision for a call: empty if there is none, *changed* if the definition differs by now."""
Change = Literal["new", "voted", "decided", "expired"]
"""*voted*: one of several approvers has agreed, or its vote has ended."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that was asked about. *id* is the list's own handle, *approval* the sealed id. Times are in seconds since
    the epoch. *args* is None if they are too large to be read. *arguments* is their digest. *from_chat*: the client of
    a chat has the sealed id, and may bring the decision itself. *key_id*, *source* and *door* say who called, from
    where. *needs*: who has to approve, if that is not the actor; *votes* are theirs so far. *stands*: the next same
    call is run, or refused, by the decision. *used*: the approval has run a call. *why* says what the person has to
    know besides the arguments; *strange* are the destinations that may be accepted for the *session*,
    *requests* those in which they were read. *program* is the id of the program that makes the call. *key* and
    *version* are those of its row."""

    approval: str
    actor: str
    tool_id: str
    definition: str
    arguments: str
    args: Mapping[str, Any] | None
    arg_names: tuple[str, ...]
    asked_at: float
    expires_at: float
    from_chat: bool = False
    key_id: str = ""
    source: str = ""
    door: Door = ""
    needs: Needs = ()
    id: str = ""
    decision: Decision | None = None
    decided_at: float = 0.0
    stands: bool = False
    used: bool = False
    votes: tuple[Vote, ...] = ()
    why: str = ""
    session: str = ""
    strange: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    program: str = ""
    key: str = field(default="", compare=False)
    version: int = field(default=0, compare=False)

    @property
    def same(self) -> tuple[str, str, str, str, Needs]:
        """Equal for the very same calls."""
        return self.actor, self.tool_id, self.definition, self.arguments, self.needs


class WaitingCalls(Protocol):
    """The list, one for all processes. A call leaves it when it is decided or expires. Bounded in all and for each
    actor; the actor with most makes room.

    Each method but ``number`` and ``changes`` raises NotAdmitted while the list cannot be read or written. A write
    returns false if the call has changed since it was read: read it again.
    """

    async def waiting(self) -> Sequence[WaitingCall]:
        """Returns the calls that wait, oldest first."""
        ...

    async def number(self) -> int | None:
        """Returns the number of waiting calls, for metrics; None while the list cannot be read."""
        ...

    async def decided(self) -> Sequence[WaitingCall]:
        """Returns the calls that were decided and have not expired, newest decision first."""
        ...

    async def find(self, id: str) -> WaitingCall | None:
        """Returns the call that waits under this handle."""
        ...

    async def of_approval(self, actor: str, approval: str) -> WaitingCall | None:
        """Returns the call of a chat that waits, or was decided, under this sealed id."""
        ...

    async def standing(self, actor: str, tool_id: str, arguments: str) -> Sequence[WaitingCall]:
        """Returns the decisions that stand for such a call, oldest first."""
        ...

    async def standing_of_chat(self, actor: str, approvals: Collection[str]) -> Mapping[str, WaitingCall]:
        """Returns the decisions that stand for calls of chats, by their sealed ids."""
        ...

    async def add(self, call: WaitingCall) -> str:
        """Returns the handle of *call*: that of the very same call if it waits without a chat already."""
        ...

    async def update(self, call: WaitingCall) -> bool:
        """Writes *call*, which still waits, or was decided before."""
        ...

    async def decide(self, call: WaitingCall) -> bool:
        """Takes *call*, which has its decision, off the list and adds it to the decided ones."""
        ...

    async def drop(self, call: WaitingCall) -> None:
        """Takes *call* off the list without a decision."""
        ...

    def changes(self) -> AsyncGenerator[tuple[WaitingCall, Change]]:
        """Yields each change of the list by any process from now on. It never ends."""
        ...


def shown_arguments(args: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the arguments that are kept; None if they are too large to be read."""
    return args if len(canonical_json(args)) <= MOST_SHOWN_BYTES else None


def argument_names(args: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(name)[:100] for name in list(args)[:_MOST_NAMES])
