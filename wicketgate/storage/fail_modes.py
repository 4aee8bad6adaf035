"""The ways in which each kind of state does without its store while that cannot be used (OPS-191, OPS-192).

``closed``: what needs the state is refused. ``open``: each process goes on alone, with what it counts and remembers
itself. ``partial``: results are given without what would have been kept of them.

What may run at most once is closed and has no setting: on its own a process cannot know what another has begun. A
call that may write (``claims``) could run twice, an approval be used at several processes, a run start over.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

FailMode = Literal["open", "closed", "partial"]

StateKind = Literal[
    "claims",
    "approvals",
    "runs",
    "quotas",
    "places",
    "learned_words",
    "artifacts",
    "budgets",
]

STATE_KINDS: tuple[StateKind, ...] = get_args(StateKind)

USUAL: Mapping[StateKind, FailMode] = MappingProxyType(
    {
        "claims": "closed",
        "approvals": "closed",
        "runs": "closed",
        "quotas": "open",
        "places": "open",
        "learned_words": "open",
        "artifacts": "partial",
        "budgets": "open",
    }
)


class FailModes:
    """Decides for each kind, and knows which of them do without their store at the moment. Made once for a gate.

    A store calls ``without`` for each step that failed, does what it returns, and calls ``answered`` after a step that
    did not fail. *counts* has by kind and mode how often they went without.
    """

    def __init__(self, modes: Mapping[StateKind, FailMode] = USUAL) -> None:
        self._modes = dict(modes)
        self._without: set[StateKind] = set()
        self.counts: Counter[tuple[StateKind, FailMode]] = Counter()

    def mode(self, kind: StateKind) -> FailMode:
        return self._modes[kind]

    def begins(self, kind: StateKind) -> bool:
        """True before the first step of *kind* that failed since one that did not: the one that the log tells of."""
        return kind not in self._without

    def without(self, kind: StateKind) -> FailMode:
        """Counts a step of *kind* that the store did not do, and returns what comes instead."""
        mode = self._modes[kind]
        self._without.add(kind)
        self.counts[kind, mode] += 1
        return mode

    def answered(self, kind: StateKind) -> None:
        if self._without:
            self._without.discard(kind)

    def back(self) -> None:
        """Called when a store that was away answers again: what the last steps met before says nothing of it."""
        self._without.clear()

    def degraded(self, *, away: bool) -> dict[StateKind, FailMode]:
        """Returns the kinds that do without now, in the order of ``STATE_KINDS``: all while the store is *away*,
        otherwise those whose last step failed."""
        return {kind: self._modes[kind] for kind in STATE_KINDS if away or kind in self._without}

    def summary(self) -> str:
        """Returns one line for people: the kinds by what becomes of them."""
        meanings = {
            "closed": "refused",
            "open": "counted or remembered by each process",
            "partial": "partial, not lost",
        }
        parts = []
        for mode, meaning in meanings.items():
            kinds = [kind.replace("_", " ") for kind in STATE_KINDS if self._modes[kind] == mode]
            if kinds:
                parts.append(f"{', '.join(kinds)}: {meaning}")
        return "; ".join(parts)
