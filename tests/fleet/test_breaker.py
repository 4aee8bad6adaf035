"""The circuit breaker as a machine with a clock and chance given (UP-19)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.fleet.breaker import BreakerPolicy, CircuitBreaker


def make(clock: Clock, chance: float = 0.0, **policy: float) -> CircuitBreaker:
    fixed = BreakerPolicy(int(policy.get("failures", 3)), policy.get("first_pause_s", 1.0), 8.0)
    return CircuitBreaker(lambda: fixed, clock, lambda: chance)


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        era = breaker.begin()
        assert era is not None
        breaker.failed(era)


def probed() -> tuple[CircuitBreaker, int, int]:
    """A breaker that is half open, with a call that began before it opened, and its probe."""
    clock = Clock(0.0)
    breaker = make(clock)
    old = breaker.begin()
    fail(breaker, 3)
    clock.now = 1.0
    probe = breaker.begin()
    assert old is not None and probe is not None
    return breaker, old, probe


@requirement("UP-19")
def test_failures_in_a_row_open_it_and_one_answer_between_them_does_not() -> None:
    breaker = make(Clock(0.0))
    fail(breaker, 2)
    era = breaker.begin()
    assert era is not None
    breaker.succeeded(era)
    fail(breaker, 2)
    assert breaker.state == "closed"
    fail(breaker)
    assert (breaker.state, breaker.opened, breaker.begin()) == ("open", 1, None)


@requirement("UP-19")
def test_pauses_double_up_to_a_limit_and_a_good_probe_closes_it() -> None:
    clock = Clock(0.0)
    breaker = make(clock)
    fail(breaker, 3)
    for pause_s in (1, 2, 4, 8, 8):
        assert breaker.retry_after_s() == pause_s
        clock.now += pause_s - 0.25
        assert breaker.begin() is None
        clock.now += 0.25
        fail(breaker)
    clock.now += 8
    era = breaker.begin()
    assert era is not None
    assert breaker.begin() is None, "half open: the probe is alone"
    breaker.succeeded(era)
    assert breaker.retry_after_s() == 0
    fail(breaker, 3)
    assert breaker.retry_after_s() == 1, "the pauses begin anew"


def test_chance_takes_up_to_half_of_a_pause() -> None:
    breaker = make(Clock(0.0), chance=1.0, first_pause_s=4.0)
    fail(breaker, 3)
    assert breaker.retry_after_s() == 2.0


def test_one_probe_at_a_time_and_a_probe_that_is_given_up_is_followed_by_another() -> None:
    clock = Clock(0.0)
    breaker = make(clock)
    fail(breaker, 3)
    clock.now = 1.0
    probe = breaker.begin()
    assert probe is not None
    assert breaker.begin() is None
    breaker.undecided(probe)
    assert breaker.begin() is not None


def test_calls_from_before_decide_nothing() -> None:
    clock = Clock(0.0)
    breaker = make(clock)
    old = breaker.begin()
    assert old is not None
    fail(breaker, 3)
    breaker.failed(old)
    breaker.succeeded(old)
    breaker.undecided(old)
    assert (breaker.state, breaker.opened, breaker.retry_after_s()) == ("open", 1, 1.0)


@pytest.mark.parametrize("end", [CircuitBreaker.succeeded, CircuitBreaker.failed, CircuitBreaker.undecided])
def test_only_the_probe_decides_while_it_runs(end: Callable[[CircuitBreaker, int], None]) -> None:
    breaker, old, probe = probed()
    end(breaker, old)
    assert (breaker.state, breaker.opened, breaker.begin()) == ("half_open", 1, None)
    breaker.succeeded(probe)
    assert breaker.state == "closed"


def test_a_success_from_before_a_pause_does_not_end_a_new_row_of_failures() -> None:
    breaker, old, probe = probed()
    breaker.succeeded(probe)
    fail(breaker, 2)
    breaker.succeeded(old)
    fail(breaker)
    assert breaker.state == "open"


def test_a_new_session_is_tried_at_once_but_must_prove_itself() -> None:
    breaker = make(Clock(0.0))
    fail(breaker, 3)
    breaker.reconnected()
    fail(breaker)
    assert (breaker.state, breaker.retry_after_s()) == ("open", 2.0)


def test_with_no_number_of_failures_it_never_opens() -> None:
    breaker = make(Clock(0.0), failures=0)
    fail(breaker, 1_000)
    assert breaker.state == "closed"


@given(st.lists(st.tuples(st.sampled_from(["begin", "ok", "bad", "left", "wait", "session"]), st.integers(0, 9))))
def test_whatever_happens_it_never_stays_shut_and_never_lets_two_probes_in(steps: list[tuple[str, int]]) -> None:
    clock = Clock(0.0)
    breaker = make(clock)
    running: list[int] = []
    for step, number in steps:
        if step == "begin":
            era = breaker.begin()
            if era is not None:
                running.append(era)
        elif step == "wait":
            clock.now += number
        elif step == "session":
            breaker.reconnected()
        elif running:
            end = {"ok": breaker.succeeded, "bad": breaker.failed, "left": breaker.undecided}[step]
            end(running.pop(number % len(running)))
        assert 0 <= breaker.retry_after_s() <= 8
        if breaker.state == "half_open":
            assert breaker.begin() is None
    for era in running:
        breaker.undecided(era)
    clock.now += 8
    assert breaker.begin() is not None
