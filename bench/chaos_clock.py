"""Runs the program with a wrong time of day, for ``make chaos`` alone: ``python -m bench.chaos_clock FILE serve ...``.

``time.time`` is wrong by the seconds in FILE, which is read again when it is a second old. Monotonic clocks are right,
as after a step of the system's clock. (libfaketime 0.9.10 breaks ``time.sleep`` of Python 3.11.)
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

_READ_EVERY_S = 1.0


def wrong_time(file: Path, real: Callable[[], float]) -> Callable[[], float]:
    ahead_s, read_at = 0.0, float("-inf")

    def now() -> float:
        nonlocal ahead_s, read_at
        if real() - read_at > _READ_EVERY_S:
            ahead_s, read_at = float(file.read_text() or 0), real()
        return real() + ahead_s

    return now


if __name__ == "__main__":
    time.time = wrong_time(Path(sys.argv.pop(1)), time.time)
    import_module("app.cli").main()  # imported now, so that every module has the wrong clock
