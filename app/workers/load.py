"""The connections that each worker holds, in memory that all of them share (OPS-175)."""

import mmap
import struct
from dataclasses import dataclass

_COUNT = struct.Struct("=q")
_ABSENT = 2**40


@dataclass(frozen=True, slots=True)
class Loads:
    """Counts by the number of the worker. Made before the workers are forked."""

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
