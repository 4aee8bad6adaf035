"""Count what a piece of code does, so that a bound on its work holds on any machine, however busy."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

A_FEW_TENTHS = 1_000_000
"""Calls that take a few tenths of a second of a core."""
FAR_TOO_LONG_S = 20.0
"""CPU seconds. Nothing bounded comes near it on a busy machine; what is exponential never ends below it."""


@contextmanager
def bounded_effort(*, calls: int = A_FEW_TENTHS) -> Iterator[None]:
    """Check that the body makes at most ``calls`` calls, of Python and of C functions.

    The number is the same at every run and on every machine, unlike a time. Work inside one C function is not seen by
    it, so the CPU time is bounded too, by ``FAR_TOO_LONG_S``.

    Raises:
        AssertionError: More calls were made, or far too much time was used.
    """
    made = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        if event in ("call", "c_call"):
            made += 1

    before = sys.getprofile()
    began = time.process_time()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
    spent = time.process_time() - began
    assert made <= calls, f"{made:,} calls were made, at most {calls:,} are allowed"
    assert spent < FAR_TOO_LONG_S, f"{spent:.1f} s of CPU time were used"
