"""The calls that wait for an approval, as this process knows them, and what was decided about them (OPS-253 to
OPS-258).

The list is for people: nothing counts by being in it. An approval counts by its sealed id alone, once over all
processes. Arguments are kept here, in memory, and nowhere else.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wicketgate.access.approvers import Needs, Vote
from wicketgate.gateway.call_memory import canonical_json
from wicketgate.ports import Door

MOST = 500
MOST_OF_ACTOR = 50
MOST_DECIDED = 50
MOST_SHOWN_BYTES = 16_384
"""Larger arguments are not kept, and nobody can decide here on what nobody can read."""
_MOST_NAMES = 50

Decision = Literal["approve", "deny"]
Verdict = Literal["", "run", "denied", "denied_by_others", "changed"]
"""The use of a decision for a call: empty if there is none, *changed* where the definition differs by now."""
Change = Literal["new", "voted", "decided", "expired"]
"""*voted*: one of several approvers has agreed, or its word has ended."""


@dataclass(slots=True)
class WaitingCall:
    """A call that was asked about. *id* is the list's own handle, *approval* the sealed id. Times are in seconds since
    the epoch. *args* is None where they are too large to be read. *arguments* is their digest. *from_chat*: the client
    of a chat has the sealed id, and may bring the decision itself. *key_id*, *source* and *door* say who called, from
    where. *needs*: who has to approve, where that is not the actor; *votes* are their words so far."""

    id: str
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
    decision: Decision | None = None
    decided_at: float = 0.0
    used: bool = False
    needs: Needs = ()
    votes: tuple[Vote, ...] = ()

    @property
    def same(self) -> tuple[str, str, str, str, Needs]:
        """Equal for the very same calls."""
        return self.actor, self.tool_id, self.definition, self.arguments, self.needs


Listener = Callable[[WaitingCall, Change], None]


class WaitingCalls:
    """Bounded in all and for each actor, whose oldest call makes room. *now* is the time of day in seconds. For use
    from one event loop only; ``close`` it at the end."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._waiting: dict[str, WaitingCall] = {}
        self._standing: dict[str, WaitingCall] = {}
        self._decided: deque[WaitingCall] = deque(maxlen=MOST_DECIDED)
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, listener: Listener) -> None:
        """Calls *listener* with each change. It must neither wait nor fail."""
        self._listeners.append(listener)

    def waiting(self) -> list[WaitingCall]:
        """Those that wait now, oldest first."""
        self.lapse()
        return list(self._waiting.values())

    def decided(self) -> list[WaitingCall]:
        """The last that were decided, newest first."""
        return list(self._decided)

    def find(self, id: str) -> WaitingCall | None:
        self.lapse()
        return self._waiting.get(id)

    def waits(self, actor: str, tool_id: str, definition: str, arguments: str, needs: Needs) -> str:
        """Returns the id of such a call that waits, without a chat behind it; empty if there is none."""
        return next((each.id for each in self._twins((actor, tool_id, definition, arguments, needs))), "")

    def drop_twins(self, actor: str, tool_id: str, definition: str, arguments: str, needs: Needs) -> None:
        """Takes a call off the list that was decided elsewhere, where it was made at the same moment."""
        for each in self._twins((actor, tool_id, definition, arguments, needs)):
            self.drop(each)

    def _twins(self, wanted: tuple[str, str, str, str, Needs]) -> list[WaitingCall]:
        return [each for each in self._waiting.values() if each.same == wanted and not each.from_chat]

    def add(self, call: WaitingCall) -> str:
        """Returns the id under which *call* waits: that of the very same call if it waits without a chat already."""
        self.lapse()
        if not call.from_chat and (id := self.waits(*call.same)):
            return id
        counts = Counter(each.actor for each in self._waiting.values())
        most = call.actor if counts[call.actor] >= MOST_OF_ACTOR else None
        if most is None and len(self._waiting) >= MOST:
            most = counts.most_common(1)[0][0]
        if most is not None:
            # What is pushed out can still be decided where its client has the sealed id.
            self.drop(next(each for each in self._waiting.values() if each.actor == most))
        self._waiting[call.id] = call
        self._tell(call, "new")
        self._look_later()
        return call.id

    def vote(self, call: WaitingCall, vote: Vote) -> None:
        """Notes the word of one of several approvers; *call* stays on the list."""
        call.votes = (*call.votes, vote)
        self._tell(call, "voted")

    def drop_votes(self, lost: Callable[[Vote], bool]) -> None:
        """Takes back the words of approvers that are *lost*, of the calls that wait."""
        for call in self._waiting.values():
            kept = tuple(vote for vote in call.votes if not lost(vote))
            if len(kept) < len(call.votes):
                call.votes = kept
                self._tell(call, "voted")

    def decide(self, call: WaitingCall, decision: Decision, *, stands: bool) -> None:
        """Takes *call* off the list. *stands*: its next same call is run, or refused, by this decision."""
        self._waiting.pop(call.id, None)
        call.decision, call.decided_at = decision, self.now()
        self._decided.appendleft(call)
        if stands:
            self._standing[call.id] = call
            if len(self._standing) > MOST:
                self._standing.pop(next(iter(self._standing)))
        self._tell(call, "decided")
        self._look_later()

    def of_approval(self, actor: str, approval: str) -> WaitingCall | None:
        """The call that waits, or whose decision stands, under a sealed id."""
        for each in (*self._waiting.values(), *self._standing.values()):
            if each.approval == approval and each.actor == actor:
                return each
        return None

    def standing(self, actor: str, tool_id: str, arguments: str) -> Iterator[WaitingCall]:
        """Yields the decisions on calls like this one, oldest first. Each is taken: it stands no more."""
        for each in self._standing_like(actor, tool_id, arguments):
            if self._standing.pop(each.id, None) is not None:
                yield each

    def stands(self, actor: str, tool_id: str, arguments: str) -> bool:
        """True if there is a decision on a call like this one."""
        return bool(self._standing_like(actor, tool_id, arguments))

    def _standing_like(self, *wanted: str) -> list[WaitingCall]:
        self.lapse()
        return [each for each in self._standing.values() if (each.actor, each.tool_id, each.arguments) == wanted]

    def brought(self, actor: str, approval: str, decision: Decision, *, runs: bool) -> bool:
        """Takes a call off the list whose decision has come by itself; false if there is none."""
        call = self.of_approval(actor, approval)
        if call is None:
            return False
        call.used = runs
        if call.decision is None:
            self.decide(call, decision, stands=False)
        else:
            self._standing.pop(call.id, None)
        return True

    def put_back(self, call: WaitingCall) -> None:
        """Undoes a take: the decision could not be used."""
        self._standing[call.id] = call

    def lapse(self) -> None:
        """Forgets what has expired."""
        now = self.now()
        for each in [each for each in self._waiting.values() if each.expires_at <= now]:
            self.drop(each)
        for each in [each for each in self._standing.values() if each.expires_at <= now]:
            self._standing.pop(each.id)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop(self, call: WaitingCall) -> None:
        """Takes *call* off the list without a decision."""
        self._waiting.pop(call.id, None)
        self._tell(call, "expired")

    def _tell(self, call: WaitingCall, change: Change) -> None:
        for listener in self._listeners:
            listener(call, change)

    def _look_later(self) -> None:
        """Looks again when the next one expires, so that pages hear of it."""
        self.close()
        first = min((each.expires_at for each in self._waiting.values()), default=None)
        if first is not None:
            after_s = max(first - self.now(), 0.0) + 0.05
            self._timer = asyncio.get_running_loop().call_later(after_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self.lapse()
        self._look_later()


def shown_arguments(args: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The arguments as they are kept; None if they are too large to be read."""
    return args if len(canonical_json(args)) <= MOST_SHOWN_BYTES else None


def argument_names(args: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(name)[:100] for name in list(args)[:_MOST_NAMES])
