"""The repetition of failed tests, as ``make test`` runs it: it informs and forgives nothing."""

import os
import re
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
    ("text", "code", "passed_alone"),
    [
        (STEADY, 0, None),
        (STEADY + UNSTEADY, 1, ["unsteady"]),
        (STEADY + FAILING, 1, []),
        (UNSTEADY + FAILING, 1, ["unsteady"]),
        ("\n".join(FAILING.replace("failing", f"failing_{n}") for n in range(MOST_AGAIN + 1)), 1, None),
        ("this is no Python", 2, None),
    ],
    ids=["all pass", "one passes alone", "one fails alone too", "one of two passes alone", "too many", "no tests"],
)
def test_a_failure_stays_one_if_the_test_passes_alone(
    tmp_path: Path, text: str, code: int, passed_alone: list[str] | None
) -> None:
    found, printed = run(tmp_path, text)
    assert found == code, printed
    _, repeated, summary = printed.partition("Repeated alone")
    assert bool(repeated) == (passed_alone is not None)
    assert re.findall(r"^PASSED .*::test_(\w+)", summary, re.MULTILINE) == (passed_alone or [])
