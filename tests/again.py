"""Runs pytest, and repeats its failures alone to inform: ``python -m tests.again -n 3 ...``.

A failure is a failure: the exit code is that of the first run. The second run only reports which tests pass alone. They
depend on load or on order, and a gate's races show under load. More than ten failures are not repeated.
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
    """Returns the exit code of the first run."""
    failures = Failures()
    code = int(pytest.main([*arguments], plugins=[failures]))
    ids = failures.ids
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(ids) <= MOST_AGAIN:
        return code
    print(f"\n{len(ids)} failed. Repeated alone; one that is PASSED below depends on load or on order:", flush=True)
    subprocess.run([sys.executable, "-m", "pytest", "-rpf", *ids], check=False)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
