"""The soak in small: some callers, some upstreams that are killed, and nothing wrong, hung or left behind."""

import asyncio
import random

import httpx
import pytest

from bench.soak import Held, Limits, judge, main
from bench.soak_callers import Caller, Tally
from bench.soak_server import mark
from tests.support.requirement import requirement


@requirement("OPS-18")
def test_no_answer_is_wrong_and_nothing_hangs_or_leaks_while_upstreams_are_killed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ["--minutes", "0.08", "--callers", "9", "--upstreams", "5", "--kill-every", "0.8", "--pause", "0.2"]
    outcome = main([*few, "--warm-up", "0.3", "--memory-mb", "40"])
    told = capsys.readouterr().out
    assert outcome == 0, told
    assert "soak: passed" in told


def caller(answer: httpx.Response, tally: Tally) -> Caller:
    http = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: answer), base_url="http://service")
    return Caller("c1", "2026", http, {"alpha": "alpha:mark#0"}, tally, 1.0, 0.0, random.Random(0), 0)


def envelope(summary: str, **more: object) -> httpx.Response:
    structured = {"status": "ok", "summary": summary, "provenance": {"tool_id": "alpha:mark#0"}, **more}
    return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {"structuredContent": structured}})


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (envelope(mark("alpha", "c1", 1)), "ok"),
        (envelope(mark("alpha", "c1", 2)), "wrong"),
        (envelope(mark("bravo", "c1", 1)), "wrong"),
        (envelope(mark("alpha", "c2", 1)), "wrong"),
        (envelope(mark("alpha", "c1", 1), status="error"), "wrong"),
        (envelope("", error="UPSTREAM_TIMEOUT", message="late"), "UPSTREAM_TIMEOUT"),
        (envelope("", error="HYDRATE_FAILED", message="none"), "wrong"),
        (envelope("", error="UPSTREAM_ERROR", message="The call failed inside the gateway."), "wrong"),
        (httpx.Response(200, json={"jsonrpc": "2.0", "id": 2, "result": {}}), "wrong"),
        (httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "error": {"code": -32603}}), "wrong"),
        (httpx.Response(503, text="no"), "wrong"),
    ],
)
async def test_an_answer_that_is_not_the_callers_own_is_found(answer: httpx.Response, outcome: str) -> None:
    tally = Tally()
    one = caller(answer, tally)
    async with one.http:
        await one.one_call()
    assert tally.outcomes == {("2026", outcome): 1}


async def test_a_call_that_does_not_end_is_found() -> None:
    tally = Tally()

    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with httpx.AsyncClient(transport=httpx.MockTransport(never), base_url="http://service") as http:
        await Caller("c1", "2026", http, {"alpha": "x"}, tally, 0.01, 0.0, random.Random(0)).one_call()
    assert tally.outcomes == {("2026", "hang"): 1}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, 0),
        ({"memory_mb": 120.0}, 1),
        ({"tasks": 30}, 1),
        ({"threads": 30}, 1),
        ({"files": 80}, 1),
        ({"streams": 2}, 1),
        ({"processes": 4}, 1),
        ({"memory_mb": 50.0, "tasks": 1, "files": 1}, 0),
    ],
)
def test_what_has_grown_is_found(change: dict[str, float], found: int) -> None:
    begin = {"memory_mb": 100.0, "tasks": 10, "threads": 5, "files": 40, "streams": 1, "processes": 3}
    faults = judge(Held(**begin), Held(**{**begin, **change}), Limits(1.1, 8.0))  # type: ignore[arg-type]
    assert len(faults) == found
