"""CPU time that a process has used so far, by its id: all its threads, ended ones too (Linux)."""

import time


def cpu_s(pid: int) -> float:
    """Seconds, to the nanosecond where the kernel has them. Raises OSError when there is no such process."""
    # How Linux makes the id of a process's clock (clock_getcpuclockid); Python has it only for threads.
    return time.clock_gettime((~pid << 3) | 2)
