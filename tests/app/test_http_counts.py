"""HTTP answers counted without the Prometheus client show as with it."""

import re

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open

from app.metrics import HttpAnswers

_BOUNDS = (0.005, 0.1, 1, 2.5)


def test_the_text_is_that_of_the_client() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    number = Counter(
        "wicketgate_http_requests",
        "HTTP requests by path and status; status 0: the client left before an answer began.",
        ["path", "status"],
        registry=theirs,
    )
    took = Histogram(
        "wicketgate_http_seconds", "How long until the answer began.", ["path"], buckets=_BOUNDS, registry=theirs
    )
    answers = HttpAnswers(_BOUNDS)
    ours.register(answers)
    for path, status, seconds in (
        ("/mcp", 200, 0.0),
        ("/mcp", 200, 0.005),
        ("/mcp", 0, 1_000.0),
        ("/mcp", 404, 0.25),
        ("other", 200, 2.5),
        ("other", 200, 0.0051),
    ):
        number.labels(path, status).inc()
        took.labels(path).observe(seconds)
        answers.count(path, status, seconds)
    for text in (generate_latest, generate_open):
        assert _but_times(text(ours)) == _but_times(text(theirs))


def test_no_answer_no_series() -> None:
    registry = CollectorRegistry()
    registry.register(HttpAnswers(_BOUNDS))
    assert not [line for line in generate_latest(registry).splitlines() if not line.startswith(b"#")]


def _but_times(text: bytes) -> str:
    return re.sub(r"(_created(?:{.*})?) .*", r"\1", text.decode())
