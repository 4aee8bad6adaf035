"""A Redis that answers, or is away: who may still ask it (EXEC-52).

After a failure nobody waits in vain for a while: callers are refused at once, and a single one tries for all. Times are
seconds on a clock that never goes back.
"""

from dataclasses import dataclass
from typing import Literal

Trouble = Literal["away", "late", "denied", "full", "readonly", "moving", "other"]
"""``away``: no connection. ``late``: no answer in time. ``denied``: user, password or permissions are wrong. ``full``:
no memory is left. ``readonly``: it takes no writes. ``moving``: of a Cluster, keys of a step are at two nodes. After
the last four it answers all the same."""

PAUSE_S = 0.5

_EXPLANATIONS: dict[Trouble, str] = {
    "away": "cannot be reached",
    "late": "does not answer in time",
    "denied": "refuses the user, the password or a command",
    "full": "has no memory left (maxmemory)",
    "readonly": "takes no writes at the moment",
    "moving": "moves the keys to another node at the moment",
    "other": "refuses a command",
}
_GONE: frozenset[Trouble] = frozenset(("away", "late", "denied"))


def explain(trouble: Trouble) -> str:
    """Returns the trouble as the end of a sentence that begins with the name of the store."""
    return _EXPLANATIONS[trouble]


@dataclass(slots=True)
class Presence:
    """*trouble* is None while it answers; *since* is when it was first missed."""

    trouble: Trouble | None = None
    since: float = 0.0
    _refused_until: float = 0.0
    _trying: bool = False

    def admits(self, now: float) -> bool:
        """True if a caller may ask. While it is away, that caller tries for all until ``answered`` or ``failed``."""
        if self.trouble is None:
            return True
        if self._trying or now < self._refused_until:
            return False
        self._trying = True
        return True

    def answered(self) -> bool:
        """Returns true if it was away until now."""
        was_away = self.trouble is not None
        self.trouble, self._trying = None, False
        return was_away

    def failed(self, trouble: Trouble, now: float) -> bool:
        """Returns true if it was there until now."""
        if trouble not in _GONE:
            self.answered()
            return False
        was_there = self.trouble is None
        if was_there:
            self.since = now
        self.trouble, self._trying, self._refused_until = trouble, False, now + PAUSE_S
        return was_there

    def gave_up(self) -> None:
        """Called when a caller went away before there was an answer."""
        self._trying = False
