"""The second try of tests that failed beside others, as ``make test`` runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MOST_AGAIN

ROOT = Path(__file__).parents[1]
STEADY = "def test_steady(): pass\n"
FAILING = "def test_failing(): raise AssertionError\n"
UNSTEADY = """
from pathlib import Path
def test_unsteady():
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError
"""


def run(folder: Path, text: str) -> tuple[int, str]:
    """Runs the tests of *text* as the Makefile does: the exit code, and what was printed."""
    file = folder / "test_of_ours.py"
    file.write_text(text)
    line = [sys.executable, "-m", "tests.again", file.name]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("text", "code", "again", "unsteady"),
    [
        (STEADY, 0, False, False),
        (STEADY + UNSTEADY, 0, True, True),
        (STEADY + FAILING, 1, True, False),
        (UNSTEADY + FAILING, 1, True, False),
        ("\n".join(FAILING.replace("failing", f"failing_{n}") for n in range(MOST_AGAIN + 1)), 1, False, False),
        ("this is no Python", 2, False, False),
    ],
    ids=["all pass", "one passes alone", "one fails alone too", "one of two passes alone", "too many", "no tests"],
)
def test_a_failure_counts_if_it_is_one_alone_too(
    tmp_path: Path, text: str, code: int, again: bool, unsteady: bool
) -> None:
    found, printed = run(tmp_path, text)
    assert found == code, printed
    assert ("run again, alone" in printed) == again
    assert ("not steady" in printed) == unsteady
