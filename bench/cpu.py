"""CPU time that a process has used so far, by its id: all its threads, ended ones too; and its cores (Linux)."""

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CORES = sorted(os.sched_getaffinity(0))
MEASURED, LOAD = {_CORES[0]}, {_CORES[-1]}
"""The core of the measured process, and that of its callers and upstreams. The same one if there is no other."""


def cpu_s(pid: int) -> float:
    """Seconds, to the nanosecond where the kernel has them. Raises OSError when there is no such process."""
    # How Linux makes the id of a process's clock (clock_getcpuclockid); Python has it only for threads.
    return time.clock_gettime((~pid << 3) | 2)


def pin(pid: int, cores: Collection[int]) -> None:
    """Let the process run on *cores* alone: its threads of now, and all that they start later."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), cores)


@contextmanager
def as_load() -> Iterator[None]:
    """Runs this process, and all that it starts, on ``LOAD``."""
    before = os.sched_getaffinity(0)
    pin(os.getpid(), LOAD)
    try:
        yield
    finally:
        pin(os.getpid(), before)
