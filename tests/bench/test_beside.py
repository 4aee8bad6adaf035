"""The comparison of two checkouts: what counts as worse, and a real short run."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import beside
from bench.catalogs import ROOT
from bench.checkouts import Measures, range_table, worse
from tests.support.requirement import requirement


@pytest.mark.parametrize(
    ("before", "here", "is_worse"),
    [
        ([100.0], [110.0], False),
        ([100.0], [110.1], True),
        ([100.0], [50.0], False),
        # The middle counts, not the worst round.
        ([100.0, 90.0, 110.0], [101.0, 99.0, 300.0], False),
        ([100.0, 90.0, 300.0], [120.0, 112.0, 113.0], True),
        # What one of them does not have cannot be compared.
        ([], [100.0], False),
        ([100.0], [], False),
        ([0.0], [100.0], False),
    ],
)
@requirement("OPS-527")
def test_a_measure_is_worse_if_its_middle_is_more_than_ten_per_cent_higher(
    before: list[float], here: list[float], is_worse: bool
) -> None:
    measures: Measures = {"call, CPU µs": {"before": before, "here": here}}
    assert worse(measures, "before", 10) == (measures if is_worse else {})


@requirement("OPS-526")
def test_a_table_has_the_middle_and_the_range_of_each_checkout() -> None:
    measures: Measures = {
        "call, CPU µs": {"before": [90.0, 100.0, 150.0], "here": [120.0, 110.0, 130.0]},
        "new, MB": {"here": [1.0]},
    }
    made = range_table("In turns", measures)
    assert list(made.head) == ["middle (least to most)", "before", "here", "here × before"]
    assert made.rows == [
        ["call, CPU µs", "100 (90.0 to 150)", "120 (110 to 130)", "1.20"],
        ["new, MB", "–", "1.00 (1.00 to 1.00)", "–"],
    ]


@pytest.mark.parametrize(
    ("percent", "code", "shown"),
    [("10", 1, "1 of 2 measures are more than 10 % above before"), ("60", 0, "0 of 2 measures are more than 60 %")],
)
@requirement("OPS-527")
def test_the_exit_code_and_the_table_say_what_got_worse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], percent: str, code: int, shown: str
) -> None:
    measures: Measures = {
        "call, CPU µs": {"before": [100.0], "here": [150.0]},
        "start, MB": {"before": [100.0], "here": [90.0]},
    }
    monkeypatch.setattr(beside, "worktree", lambda ref: nullcontext(Path("before")))
    monkeypatch.setattr(beside, "measured", lambda *_, **__: measures)
    monkeypatch.setattr(sys, "argv", ["beside", "HEAD", "--percent", percent, "--json", "/dev/null"])
    with pytest.raises(SystemExit) as ended:
        beside.main()
    told = capsys.readouterr().out
    assert (ended.value.code, shown in told) == (code, True), told
    assert ("| call, CPU µs " in told) == (code == 1)
    assert "start, MB" not in told


@requirement("OPS-526", "OPS-527")
def test_a_commit_is_measured_beside_this_checkout_and_leaves_nothing() -> None:
    line = [sys.executable, "-m", "bench.beside", "HEAD", "--quick", "--only", "catalog", "engine"]
    before = _worktrees()
    # A limit that is always passed: what a short run finds is chance.
    line += ["--percent", "-99.9", "--json", "/dev/null"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "| 10 tools: query, CPU ms" in done.stdout
    assert "| a delta, one at a time, CPU µs" in done.stdout
    assert _worktrees() == before


@requirement("OPS-527")
def test_a_commit_that_is_unknown_is_told_with_another_exit_code() -> None:
    line = [sys.executable, "-m", "bench.beside", "no-such-commit"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no-such-commit" in done.stderr


def _worktrees() -> list[str]:
    done = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "wicketgate-beside-" in line]
