"""The judgement and the plan of ``make chaos``: what must not happen is seen when it does."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from bench.chaos_judge import (
    FAULTS,
    Fault,
    Ledger,
    Outcome,
    Reading,
    Told,
    judge,
    longest_gap_s,
    outcome_of_call,
    outcome_of_chat,
)
from bench.chaos_plan import KINDS, OF_REPLICAS, lane, lanes
from bench.chaos_story import answer, charges, first_words, last_words

NUMBER = next(number for number in itertools.count(1) if charges(number) and len(first_words(number)) > 2)
Event = tuple[str, Mapping[str, Any]]


def run(said: str = answer("charge", NUMBER), kind: str = "output") -> list[Event]:
    """The events of a whole run, one for each word."""
    call = {"id": f"c{NUMBER}", "name": "tool_execute", "arguments": {}}
    return [
        *(("text-delta", {"content": word}) for word in first_words(NUMBER)),
        ("tool-call", call),
        ("tool-result", {"id": f"c{NUMBER}", kind: said}),
        *(("text-delta", {"content": word}) for word in last_words(NUMBER, said)),
        ("done", {"finish_reason": "stop"}),
    ]


def read(*parts: tuple[str, int, list[Event]], again: bool = False) -> Reading:
    """Each part is a connection: the id of the run, the position of its first event, its events."""
    reading = Reading(NUMBER)
    for name, first, events in parts:
        for position, (event, data) in enumerate(events, first):
            reading.add(f"{name}-{position}", event, data, again)
    return reading


def faults(reading: Reading) -> set[Fault]:
    if reading.ended:
        reading.outcome()
    return {fault for fault, _ in reading.breaches}


def told(outcome: Outcome, *, effect: bool = True) -> Told:
    return Told("/mcp 2026", NUMBER, outcome, 1.0, 0.1, effect)


def test_a_run_that_was_read_over_three_connections_is_whole() -> None:
    events = run()
    reading = read(("a", 1, events[:2]), ("a", 3, events[2:4]), ("a", 5, events[4:]))
    assert reading.outcome() == ("ok", "")
    assert faults(reading) == set()


def test_events_that_come_again_from_the_beginning_must_be_the_same() -> None:
    events = run()
    assert faults(read(("a", 1, events[:3]), ("a", 1, events), again=True)) == set()
    assert faults(read(("a", 1, events[:3]), ("a", 1, [events[1], *events[1:]]), again=True)) == {"events lost"}


@pytest.mark.parametrize("second", [2, 4])
def test_an_event_that_comes_twice_or_never_is_seen(second: int) -> None:
    events = run()
    reading = read(("a", 1, events[:2]), ("a", second, events[second - 1 :]))
    assert "events lost" in faults(reading)


def test_a_run_that_began_anew_is_seen() -> None:
    events = run()
    assert "keyed runs begun again" in faults(read(("a", 1, events[:2]), ("b", 1, events)))


def test_another_text_is_seen_and_so_is_a_result_that_is_not_the_right_one() -> None:
    found: list[Fault] = []

    def note(fault: Fault, line: str) -> None:
        found.append(fault)

    events = run()
    other = [("text-delta", {"content": "other "}), *events[1:]]
    outcome_of_chat(NUMBER, other, note)
    outcome_of_chat(NUMBER, [*events[:-2], events[-1]], note)
    outcome_of_chat(NUMBER, [event for event in events if event[0] != "tool-result"], note)
    assert set(found) == {"wrong answers"}
    assert len(found) >= 3
    reply = {"result": {"structuredContent": {"status": "ok", "summary": "charged 1000000"}}}
    assert outcome_of_call("charge", NUMBER, reply, note)[0] == "failed"
    assert len(found) >= 4


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        (run("fate unknown: it was sent", "error"), "unknown"),
        (run('{"error":"UPSTREAM_UNAVAILABLE"}', "error"), "refused"),
        (run("no", "error"), "failed"),
        ([*run()[:2], ("error", {"code": "provider_error"})], "broken off"),
    ],
)
def test_what_a_fault_may_cost_is_told_apart(events: list[Event], outcome: Outcome) -> None:
    reading = read(("a", 1, events))
    assert reading.outcome()[0] == outcome
    assert faults(reading) == set()


@pytest.mark.parametrize(
    ("ends", "effects", "fault"),
    [
        ([told("ok")], [NUMBER], None),
        ([told("ok", effect=False)], [], None),
        ([told("cut")], [], None),
        ([told("cut")], [NUMBER], None),
        ([told("cut")], [NUMBER, NUMBER], "effects doubled"),
        ([told("ok")], [], "wrong answers"),
        ([told("refused")], [NUMBER], "wrong answers"),
    ],
)
def test_effects_are_held_against_what_was_told(ends: list[Told], effects: list[int], fault: Fault | None) -> None:
    verdict = judge(Ledger(told=ends), effects)
    assert {name for name, count in verdict.counts.items() if count} == ({fault} if fault else set())
    assert verdict.passed == (fault is None)
    assert set(verdict.counts) == set(FAULTS)


def test_the_longest_gap_counts_the_beginning_and_the_end() -> None:
    assert longest_gap_s([3.0, 4.0], 0, 6) == 3.0
    assert longest_gap_s([1.0, 2.0], 0, 6) == 4.0
    assert longest_gap_s([], 0, 6) == 6.0


def test_the_plan_is_that_of_its_seed_and_brings_every_fault_equally_often() -> None:
    assert set(itertools.chain(*lanes(KINDS))) == set(KINDS)
    assert set(lanes(KINDS)[0]) == OF_REPLICAS
    for kinds in lanes(KINDS):
        first = list(itertools.islice(lane(kinds, 1, 8), 3 * len(kinds)))
        assert first == list(itertools.islice(lane(kinds, 1, 8), 3 * len(kinds)))
        assert first != list(itertools.islice(lane(kinds, 2, 8), 3 * len(kinds)))
        assert sorted(strike.kind for strike in first) == sorted([*kinds] * 3)
    assert list(lane([], 1, 8)) == []


@pytest.mark.parametrize(
    ("flush", "call", "lost"),
    [
        ([5.0, 6.0], (4.0, 7.0), True),
        ([5.0, 6.0], (5.2, 5.4), True),
        ([5.0, 6.0], (6.1, 7.0), False),
        ([5.0, 6.0], (3.0, 4.9), False),
        ([5.0], (5.5, 5.6), True),
        ([5.0], (4.0, 4.9), False),
    ],
)
def test_a_loss_of_all_keys_excuses_what_runs_while_it_lasts(
    flush: list[float], call: tuple[float, float], lost: bool
) -> None:
    assert Ledger(flushes=[flush]).lost(*call) is lost
