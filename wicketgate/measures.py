"""Measurements that metrics show: how long things took, counted in buckets (OPS-45), and how calls ended (OPS-531)."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

BOUNDS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the buckets, in seconds."""

LONG_BOUNDS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""The bounds for calls of tools and models, which may take minutes."""


class Durations:
    """A histogram. *counts* has one entry for each of *bounds* and a last one for what took longer."""

    def __init__(self, bounds: Sequence[float] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """For one thread at a time."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds


class CallCounts:
    """Counts calls by outcome, with their durations. *outcomes* is the complete set, so metrics show zeros too."""

    def __init__(self, outcomes: Iterable[str]) -> None:
        self.outcomes = dict.fromkeys(outcomes, 0)
        self.took = Durations(LONG_BOUNDS_S)

    def ended(self, outcome: str, seconds: float) -> None:
        self.outcomes[outcome] += 1
        self.took.observe(seconds)
