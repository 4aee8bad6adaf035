"""Gives memory back after a start and after a peak (OPS-43, OPS-378).

glibc keeps what a burst has used and freed: after a hundred slow readers of a fast model 300 MB, for good.
``malloc_trim`` returns it to the system. It holds the allocator, about a millisecond for each 10 MB, so it is
called from a thread, only while the process does little, and only after it has grown by much.
"""

import asyncio
import ctypes
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("wicketgate.service")

LOOK_EVERY_S = 10.0
WORTH_BYTES = 32 << 20
_IDLE_SHARE = 0.25
_STATM = Path("/proc/self/statm")


def malloc_trim() -> Callable[[], object] | None:
    """glibc's function; None with another C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    return lambda: trim(0)


def resident_bytes() -> int:
    """The memory that this process occupies; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class Trimming:
    """Decides when it is time to trim, from what is seen every few seconds."""

    def __init__(self, resident: int) -> None:
        self._low = resident

    def due(self, resident: int, busy_share: float) -> bool:
        """True if the process has grown by much since it was last small and is now idle. *busy_share*: of one core,
        since the last look."""
        self._low = min(self._low, resident)
        return busy_share < _IDLE_SHARE and resident - self._low >= WORTH_BYTES

    def trimmed(self, resident: int) -> None:
        """Takes the rest to be in use: it is not tried again before the process has grown once more."""
        self._low = resident


async def give_back(
    trim: Callable[[], object],
    started: Callable[[], Awaitable[object]],
    *,
    resident: Callable[[], int] = resident_bytes,
    every_s: float = LOOK_EVERY_S,
) -> None:
    """Trims once when *started* has returned, then looks every *every_s* seconds, until cancelled."""
    await started()
    await asyncio.to_thread(trim)
    trimming = Trimming(resident())
    while True:
        cpu, clock = time.process_time(), time.monotonic()
        await asyncio.sleep(every_s)
        share = (time.process_time() - cpu) / max(time.monotonic() - clock, 1e-6)
        before = resident()
        if trimming.due(before, share):
            await asyncio.to_thread(trim)
            after = resident()
            trimming.trimmed(after)
            log.debug("gave back %d MB of memory", (before - after) >> 20)


@contextmanager
def giving_back(started: Callable[[], Awaitable[object]]) -> Iterator[None]:
    """Runs ``give_back`` beside the block, where there is something to call."""
    trim = malloc_trim()
    task = None if trim is None else asyncio.get_running_loop().create_task(give_back(trim, started))
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
