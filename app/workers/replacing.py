"""Decides when a process that has died is started again, and when to give up (OPS-178)."""

from dataclasses import dataclass

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0
LASTED_S = 30.0
MAX_IN_VAIN = 8


@dataclass(slots=True)
class Deaths:
    """The deaths of the processes at one place. *in_vain* counts those in a row that were never ready."""

    delay_s: float = FIRST_DELAY_S
    in_vain: int = 0

    def pause_s(self, *, lived_s: float, was_ready: bool) -> float:
        """Counts one more death, and returns the seconds until the next start: they double while processes do not
        last."""
        self.in_vain = 0 if was_ready else self.in_vain + 1
        if lived_s >= LASTED_S:
            self.delay_s = FIRST_DELAY_S
        pause_s, self.delay_s = self.delay_s, min(self.delay_s * 2, MAX_DELAY_S)
        return pause_s

    @property
    def hopeless(self) -> bool:
        """True after so many starts in vain that only an operator can mend it."""
        return self.in_vain >= MAX_IN_VAIN
