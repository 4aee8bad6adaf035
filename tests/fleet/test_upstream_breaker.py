"""The breaker of an upstream as a machine with a clock and chance given (UP-48, UP-49, UP-51, UP-52)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.fleet.breaker import BreakerPolicy, Ticket, UpstreamBreaker


def make(clock: Clock, *, pings: bool = True, failures: int = 3) -> UpstreamBreaker:
    return UpstreamBreaker(BreakerPolicy(failures, 1.0, 8.0), clock, lambda: 0.0, pings=pings)


def begun(breaker: UpstreamBreaker, actor: str) -> Ticket:
    ticket = breaker.begin(actor)
    assert ticket is not None
    return ticket


def fail(breaker: UpstreamBreaker, actor: str, times: int = 1) -> None:
    for _ in range(times):
        breaker.failed(begun(breaker, actor))


def succeed(breaker: UpstreamBreaker, actor: str) -> None:
    breaker.succeeded(begun(breaker, actor))


@requirement("UP-48")
@pytest.mark.parametrize("pings", [True, False])
def test_failures_of_one_actor_keep_that_actor_away_and_nobody_else(pings: bool) -> None:
    breaker = make(Clock(0.0), pings=pings)
    fail(breaker, "bob", 3)
    assert breaker.begin("bob") is None
    assert (breaker.retry_after_s("bob"), breaker.retry_after_s("alice")) == (1.0, 0.0)
    assert (breaker.state, breaker.opened, breaker.held_off()) == ("closed", 0, 1)
    assert breaker.next_ping_s() == (0.0 if pings else None)
    succeed(breaker, "alice")
    assert breaker.begin("bob") is None, "her answers say nothing of his calls"


@requirement("UP-48")
def test_an_answer_to_anyone_ends_the_row_and_a_call_that_ran_meanwhile_is_no_part_of_the_next() -> None:
    breaker = make(Clock(0.0), failures=4)
    old = begun(breaker, "dave")
    fail(breaker, "bob", 2)
    fail(breaker, "alice")
    succeed(breaker, "carol")
    breaker.failed(old)
    fail(breaker, "alice", 2)
    fail(breaker, "bob")
    assert breaker.next_ping_s() is None
    fail(breaker, "bob")
    assert breaker.next_ping_s() == 0


@requirement("UP-49")
def test_a_ping_without_an_answer_opens_it_and_one_with_an_answer_closes_it() -> None:
    clock = Clock(0.0)
    breaker = make(clock)
    fail(breaker, "bob", 3)
    breaker.pinged(answered=False)
    assert (breaker.state, breaker.begin("alice"), breaker.next_ping_s()) == ("open", None, 1.0)
    assert (breaker.retry_after_s("alice"), breaker.opened) == (1.0, 1)
    clock.now = 1.0
    assert breaker.begin("alice") is None, "our ping tries it, not the next call"
    breaker.pinged(answered=False)
    assert breaker.next_ping_s() == 2.0
    clock.now = 3.0
    breaker.pinged(answered=True)
    assert breaker.state == "closed"
    begun(breaker, "alice")


@requirement("UP-48", "UP-49")
def test_a_server_that_answers_its_ping_is_open_to_others_however_many_fail() -> None:
    breaker = make(Clock(0.0))
    for actor in ("a", "b", "c", "d"):
        fail(breaker, actor, 3)
        assert breaker.next_ping_s() == 0
        breaker.pinged(answered=True)
        assert (breaker.state, breaker.next_ping_s()) == ("closed", None)
    begun(breaker, "alice")
    assert breaker.held_off() == 4


@requirement("UP-49")
def test_an_answer_to_a_call_counts_for_more_than_a_ping_without_one() -> None:
    breaker = make(Clock(0.0))
    slow = begun(breaker, "carol")
    fail(breaker, "bob", 3)
    succeed(breaker, "alice")
    breaker.pinged(answered=False)
    assert breaker.state == "closed"
    fail(breaker, "alice", 3)
    breaker.pinged(answered=False)
    breaker.succeeded(slow)
    assert (breaker.state, breaker.opened) == ("closed", 1)


@requirement("UP-51")
def test_a_new_session_is_tried_at_once_by_all() -> None:
    breaker = make(Clock(0.0))
    fail(breaker, "bob", 3)
    breaker.pinged(answered=False)
    breaker.reconnected()
    assert (breaker.state, breaker.retry_after_s("bob")) == ("closed", 0.0)
    begun(breaker, "alice")
    begun(breaker, "bob")


@requirement("UP-52")
def test_the_actors_that_are_kept_are_bounded() -> None:
    breaker = make(Clock(0.0), failures=1_000)
    for number in range(3_000):
        fail(breaker, f"actor {number}")
        succeed(breaker, "one that lives")
    assert len(breaker._own) == 1_000


def test_with_no_number_of_failures_it_never_opens() -> None:
    breaker = make(Clock(0.0), failures=0)
    for actor in ("a", "b"):
        fail(breaker, actor, 500)
    assert (breaker.state, breaker.held_off(), breaker.next_ping_s()) == ("closed", 0, None)


STEPS = st.tuples(
    st.sampled_from(["begin", "ok", "bad", "left", "wait", "session", "answered", "silent"]),
    st.sampled_from("abc"),
    st.integers(0, 9),
)


@requirement("UP-49")
@given(st.booleans(), st.lists(STEPS))
def test_whatever_happens_it_never_stays_shut(pings: bool, steps: list[tuple[str, str, int]]) -> None:
    clock = Clock(0.0)
    breaker = make(clock, pings=pings)
    running: list[Ticket] = []
    for step, actor, number in steps:
        if step == "begin":
            ticket = breaker.begin(actor)
            if ticket is not None:
                running.append(ticket)
        elif step == "wait":
            clock.now += number
        elif step == "session":
            breaker.reconnected()
        elif step in ("answered", "silent"):
            if breaker.next_ping_s() == 0:
                breaker.pinged(answered=step == "answered")
        elif running:
            end = {"ok": breaker.succeeded, "bad": breaker.failed, "left": breaker.undecided}[step]
            end(running.pop(number % len(running)))
        assert 0 <= breaker.retry_after_s(actor) <= 8
        assert pings or (breaker.state, breaker.next_ping_s()) == ("closed", None)
    for ticket in running:
        breaker.undecided(ticket)
    clock.now += 8
    if breaker.state == "open":
        assert breaker.next_ping_s() == 0
        breaker.pinged(answered=True)
    for actor in "abc":
        breaker.undecided(begun(breaker, actor))
