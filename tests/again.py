"""Runs pytest, and what failed once more, alone: ``python -m tests.again -n 3 ...``.

Most of the tests start processes and wait for them, three at a time on two cores, so one may fail for the others' sake.
A test counts as failed if it fails alone too. What failed beside others only is named at the end, because it is worth a
look. Where many fail, the code is to blame, and nothing is run again.
"""

import subprocess
import sys
from collections.abc import Sequence

import pytest

MOST_AGAIN = 10


class Failures:
    """A plugin that notes which tests have failed, their set-up and end included."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.ids:
            self.ids.append(report.nodeid)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code, which is that of pytest."""
    failures = Failures()
    code = int(pytest.main([*arguments], plugins=[failures]))
    ids = failures.ids
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(ids) <= MOST_AGAIN:
        return code
    print(f"\nFailed beside the other tests ({len(ids)}); run again, alone:", *ids, sep="\n  ", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", *ids], check=False).returncode
    if code == 0:
        print("Passed alone, so they are not steady on a busy machine:", *ids, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
