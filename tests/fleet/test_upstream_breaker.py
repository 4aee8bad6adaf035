"""The breaker of an upstream as a machine with a clock and chance given (UP-48, UP-49, UP-51, UP-52)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.test_breaker import Clock
from tests.support.requirement import requirement
from wicketgate.fleet.breaker import BreakerPolicy, Ticket, UpstreamBreaker


def make(clock: Clock, *, pings: bool = False, failures: int = 3) -> UpstreamBreaker:
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
def test_failures_of_one_actor_keep_that_actor_away_and_nobody_else() -> None:
    breaker = make(Clock())
    fail(breaker, "bob", 3)
    assert breaker.begin("bob") is None
    assert (breaker.retry_after_s("bob"), breaker.retry_after_s("alice")) == (1.0, 0.0)
    assert (breaker.state, breaker.opened, breaker.held_off()) == ("closed", 0, 1)
    succeed(breaker, "alice")
    assert breaker.begin("bob") is None, "her answers say nothing of his calls"


@requirement("UP-48")
def test_failures_of_several_open_it_for_all_with_at_most_half_of_them_one_actors() -> None:
    breaker = make(Clock(), failures=4)
    fail(breaker, "bob", 3)
    fail(breaker, "alice")
    assert breaker.opened == 0
    fail(breaker, "carol")
    assert (breaker.state, breaker.opened, breaker.begin("dave")) == ("open", 1, None)


@requirement("UP-48")
def test_an_answer_to_anyone_ends_the_evidence_and_a_call_that_ran_meanwhile_is_none() -> None:
    breaker = make(Clock(), failures=4)
    old = begun(breaker, "dave")
    fail(breaker, "bob", 2)
    fail(breaker, "alice")
    succeed(breaker, "carol")
    breaker.failed(old)
    fail(breaker, "alice", 2)
    fail(breaker, "bob")
    assert breaker.opened == 0
    fail(breaker, "bob")
    assert breaker.opened == 1


@requirement("UP-49")
def test_one_actor_and_a_ping_without_an_answer_open_it_and_a_ping_with_one_closes_it() -> None:
    clock = Clock()
    breaker = make(clock, pings=True)
    fail(breaker, "bob", 2)
    assert breaker.next_ping_s() is None
    fail(breaker, "bob")
    assert breaker.next_ping_s() == 0
    breaker.pinged(None)
    assert (breaker.state, breaker.begin("alice"), breaker.next_ping_s()) == ("open", None, 1.0)
    clock.now = 1.0
    assert breaker.begin("alice") is None, "our ping tries it, not the next call"
    breaker.pinged(None)
    assert breaker.next_ping_s() == 2.0
    clock.now = 3.0
    breaker.pinged("answered")
    assert breaker.state == "closed"
    begun(breaker, "alice")


@requirement("UP-48", "UP-49")
def test_a_server_that_answers_its_ping_is_open_to_others_however_many_fail() -> None:
    breaker = make(Clock(), pings=True)
    for actor in ("a", "b", "c", "d"):
        fail(breaker, actor, 3)
        assert breaker.next_ping_s() == 0
        breaker.pinged("answered")
        assert (breaker.state, breaker.next_ping_s()) == ("closed", None)
    begun(breaker, "alice")
    assert breaker.held_off() == 4


@requirement("UP-49")
def test_an_answer_to_a_call_while_the_ping_waits_counts_for_more() -> None:
    breaker = make(Clock(), pings=True)
    fail(breaker, "bob", 3)
    succeed(breaker, "alice")
    breaker.pinged(None)
    assert breaker.state == "closed"


@requirement("UP-49")
def test_a_connection_that_comes_about_is_no_answer_and_lets_calls_try() -> None:
    clock = Clock()
    breaker = make(clock, pings=True, failures=2)
    fail(breaker, "bob", 2)
    breaker.pinged("reached")
    assert (breaker.state, breaker.next_ping_s()) == ("closed", None)
    fail(breaker, "alice")
    breaker.pinged("reached")
    assert breaker.state == "open"
    clock.now = 1.0
    breaker.pinged("reached")
    assert (breaker.state, breaker.next_ping_s()) == ("half_open", None)
    succeed(breaker, "carol")
    state: str = breaker.state
    assert state == "closed"


def opened_by_bob_and_alice(clock: Clock) -> UpstreamBreaker:
    breaker = make(clock, failures=2)
    fail(breaker, "bob")
    fail(breaker, "alice")
    assert breaker.opened == 1
    return breaker


@requirement("UP-49")
def test_the_slow_try_of_one_actor_does_not_decide_for_another() -> None:
    clock = Clock()
    breaker = opened_by_bob_and_alice(clock)
    clock.now = 1.0
    slow = begun(breaker, "bob")
    assert breaker.begin("bob") is None
    succeed(breaker, "alice")
    assert breaker.state == "closed"
    breaker.failed(slow)
    assert breaker.state == "closed"


@requirement("UP-49")
def test_an_actor_who_tried_in_vain_leaves_the_next_try_to_others_for_a_while() -> None:
    clock = Clock()
    breaker = opened_by_bob_and_alice(clock)
    clock.now = 1.0
    fail(breaker, "bob")
    assert (breaker.retry_after_s("alice"), breaker.retry_after_s("bob")) == (2.0, 4.0)
    clock.now = 3.0
    assert breaker.begin("bob") is None
    breaker.undecided(begun(breaker, "alice"))
    assert breaker.begin("bob") is None
    clock.now = 5.0
    begun(breaker, "bob")


@requirement("UP-49")
def test_three_actors_try_at_the_same_time_and_no_more() -> None:
    clock = Clock()
    breaker = opened_by_bob_and_alice(clock)
    clock.now = 1.0
    for actor in ("a", "b", "c"):
        begun(breaker, actor)
    assert breaker.begin("d") is None


@requirement("UP-51")
def test_a_new_session_is_tried_at_once_by_all() -> None:
    breaker = make(Clock(), pings=True)
    fail(breaker, "bob", 3)
    breaker.pinged(None)
    breaker.reconnected()
    assert (breaker.state, breaker.retry_after_s("bob")) == ("closed", 0.0)
    begun(breaker, "alice")
    begun(breaker, "bob")


@requirement("UP-52")
def test_the_actors_that_are_kept_are_bounded() -> None:
    breaker = make(Clock(), failures=1_000)
    for number in range(3_000):
        fail(breaker, f"actor {number}")
        succeed(breaker, "one that lives")
    assert len(breaker._own) == 1_000


@pytest.mark.parametrize("pings", [True, False])
def test_with_no_number_of_failures_it_never_opens(pings: bool) -> None:
    breaker = make(Clock(), failures=0, pings=pings)
    for actor in ("a", "b"):
        fail(breaker, actor, 500)
    assert (breaker.state, breaker.held_off(), breaker.next_ping_s()) == ("closed", 0, None)


STEPS = st.tuples(
    st.sampled_from(["begin", "ok", "bad", "left", "wait", "session", "answered", "reached", "silent"]),
    st.sampled_from("abc"),
    st.integers(0, 9),
)


@requirement("UP-49")
@given(st.booleans(), st.lists(STEPS))
def test_whatever_happens_it_never_stays_shut(pings: bool, steps: list[tuple[str, str, int]]) -> None:
    clock = Clock()
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
        elif step in ("answered", "reached", "silent"):
            if breaker.next_ping_s() == 0:
                breaker.pinged(None if step == "silent" else step)  # type: ignore[arg-type]
        elif running:
            end = {"ok": breaker.succeeded, "bad": breaker.failed, "left": breaker.undecided}[step]
            end(running.pop(number % len(running)))
        assert 0 <= breaker.retry_after_s(actor) <= 16
        assert len(breaker._probing) <= 3
    for ticket in running:
        breaker.undecided(ticket)
    clock.now += 16
    if breaker.next_ping_s() is not None:
        breaker.pinged("reached")
    if breaker.state == "open":
        clock.now += 16
        breaker.pinged("reached") if pings else None
    for actor in "abc":
        breaker.undecided(begun(breaker, actor))
        if pings and breaker.next_ping_s() is not None:
            breaker.pinged("reached")
