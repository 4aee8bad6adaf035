"""Measurements that metrics show: how long things took, counted in buckets (OPS-45)."""

from bisect import bisect_left

BOUNDS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the buckets, in seconds."""


class Durations:
    """A histogram. *counts* has one entry for each of ``BOUNDS_S`` and a last one for what took longer."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """For one thread at a time."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds
