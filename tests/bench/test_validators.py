"""The validators' benchmark has cases that are what they say, rows for its engines, and an end to what holds one."""

import sys
from contextlib import closing

import pytest
from jsonschema import Draft202012Validator

from bench.catalogs import MISSING, routing_data
from bench.validators import BUILT_IN, HOSTILE, OURS, TIMES, Case, Engines, hostile, measure, real_cases, shown


def _is_what_it_says(case: Case) -> bool:
    validator = Draft202012Validator(case.schema)
    return validator.is_valid(case.valid) and not validator.is_valid(case.invalid)


def test_the_built_in_cases_fit_and_do_not_fit() -> None:
    assert [_is_what_it_says(case) for case in BUILT_IN] == [True] * len(BUILT_IN)


@pytest.mark.skipif(routing_data() is None, reason=MISSING)
def test_the_real_cases_fit_and_do_not_fit_and_are_the_same_every_time() -> None:
    data = routing_data()
    assert data
    cases = real_cases(data, 5)
    assert [_is_what_it_says(case) for case in cases] == [True] * 5
    assert cases == real_cases(data, 5)


def test_each_engine_has_a_row_with_times_and_its_verdicts_are_counted() -> None:
    mistaken = Case(BUILT_IN[0].schema, BUILT_IN[0].invalid, BUILT_IN[0].valid)
    with closing(Engines(sys.executable)) as process:
        engines = dict.fromkeys(OURS, process)
        rows = measure(engines, BUILT_IN, calls=1, rounds=1)
        assert [(row["engine"], row["unlike"]) for row in rows] == [(name, 0) for name in OURS]
        assert all(row[key] > 0 for row in rows for key in TIMES)
        assert [row["unlike"] for row in measure(engines, [mistaken], calls=1, rounds=1)] == [2] * len(OURS)
    assert len(shown(rows).splitlines()) == 1 + len(OURS)


def test_an_engine_that_is_not_there_fails_by_name() -> None:
    with closing(Engines(sys.executable)) as process:
        (row,) = measure({"jsonschema-rs": process}, BUILT_IN[:1], calls=1, rounds=1)
    assert row["failed"] == "ModuleNotFoundError"
    assert "ModuleNotFoundError" in shown([row])


def test_what_holds_an_engine_is_ended_and_ours_is_not_held() -> None:
    (held,) = hostile({"jsonschema, compiled once": sys.executable}, dict([next(iter(HOSTILE.items()))]), 0.3)
    assert held["outcome"] == "no answer"
    assert held["wall_ms"] >= 300
    ours = hostile({"ours": sys.executable}, HOSTILE, 20)
    assert [row["outcome"] for row in ours] == ["refused", "refused"]
