"""The place of a worker among those of one service."""

import mmap
import signal
import struct
from dataclasses import dataclass

from app.local_key import LocalKey

READY = b"ready\n"
"""The report of a worker that serves."""
CUT = signal.SIGUSR2
"""Ends a worker at once. A second SIGTERM does not, since a service manager may send one to every process."""
_COUNT = struct.Struct("=q")
_ABSENT = 2**40


@dataclass(frozen=True, slots=True)
class Loads:
    """Connections of each worker, in memory that all of them share (OPS-175). Made before they are forked."""

    memory: mmap.mmap
    count: int

    @classmethod
    def of(cls, count: int) -> "Loads":
        loads = cls(mmap.mmap(-1, count * _COUNT.size), count)
        for number in range(count):
            loads.absent(number)
        return loads

    def absent(self, number: int) -> None:
        """Notes that no worker is at this place now."""
        _COUNT.pack_into(self.memory, number * _COUNT.size, _ABSENT)

    def is_least(self, number: int, held: int) -> bool:
        """Notes what worker *number* holds; returns true if none holds less."""
        _COUNT.pack_into(self.memory, number * _COUNT.size, held)
        return all(held <= other for (other,) in _COUNT.iter_unpack(self.memory[: self.count * _COUNT.size]))


@dataclass(frozen=True, slots=True)
class Place:
    """*number* of *count* workers, from 0 on, started for the *starts*-th time.

    *report* is the descriptor on which the supervisor is told that the worker is ready, or why it cannot be.
    *lifeline* is one that ends with the supervisor. *loads* are the connections of all workers. *local* is the key of a
    service without keys. *seal_key* seals in a service without ``auth.seal_keys``. *service* is a random id that only
    the workers of one supervisor have.
    """

    number: int
    count: int
    starts: int
    report: int
    lifeline: int
    loads: Loads
    local: LocalKey | None = None
    seal_key: bytes | None = None
    service: str = ""
