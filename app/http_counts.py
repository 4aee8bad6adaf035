"""HTTP answers, counted by path and status: plain numbers, since every request is counted, and read at a scrape."""

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class HttpAnswers(Collector):
    """*bounds* are the upper ends of the buckets of seconds, in ascending order. Use from one event loop only."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._ends = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._answers: dict[tuple[str, int], int] = {}
        self._took: dict[str, _Took] = {}
        self._since: dict[tuple[str, int], float] = {}

    def count(self, path: str, status: int, seconds: float) -> None:
        """Counts an answer that took *seconds*. *path* is one of a closed set."""
        answered = path, status
        try:
            self._answers[answered] += 1
        except KeyError:
            self._answers[answered] = 1
            self._since[answered] = time.time()
            self._took.setdefault(path, _Took(len(self._ends)))
        took = self._took[path]
        took.buckets[bisect_left(self._bounds, seconds)] += 1
        took.seconds += seconds

    def collect(self) -> Iterable[Metric]:
        answers = CounterMetricFamily(
            "wicketgate_http_requests",
            "HTTP requests by path and status; status 0: the client left before an answer began.",
            labels=["path", "status"],
        )
        for (path, status), number in self._answers.items():
            answers.add_metric([path, str(status)], number, created=self._since[path, status])
        yield answers
        took = HistogramMetricFamily("wicketgate_http_seconds", "How long until the answer began.", labels=["path"])
        for path, each in self._took.items():
            took.add_metric([path], list(zip(self._ends, accumulate(each.buckets), strict=True)), each.seconds)
            took.add_sample("wicketgate_http_seconds_created", {"path": path}, each.since)
        yield took


class _Took:
    """The seconds of the answers at one path, by bucket."""

    __slots__ = ("buckets", "seconds", "since")

    def __init__(self, buckets: int) -> None:
        self.buckets = [0] * buckets
        self.seconds = 0.0
        self.since = time.time()
