"""Room in memory for large answers of upstreams, in bytes, for all upstreams of a process together (UP-236).

A reader takes room before it reads more than a megabyte of an answer. Until there is room it reads nothing, and the
server waits. The call holds the room until its result is sealed. Room is taken for the whole answer in advance, so an
answer that has room can always be read to its end, and has to get there within HOLD_S. Actors share the room as they
share the slots of an upstream.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from math import inf
from pathlib import Path

from wicketgate.fleet.slots import CallSlots, shared_slots

_LEAST_BYTES = 32 << 20
_MOST_BYTES = 256 << 20
_PART_OF_MEMORY = 16
"""An answer occupies up to four times its size: its bytes, its values, and its texts encoded again."""
HOLD_S = 30.0
"""Seconds within which an answer that has room must come to its end (UP-275). A stream that brings the answers to all
callers waits as long for room."""


class AnswerHold:
    """The room of one answer at a time, taken for *actor*. On a stream that brings the answers to all callers, it calls
    *waits* every second while it waits for room, and waits no longer than HOLD_S."""

    def __init__(self, actor: str, waits: Callable[[], None] | None = None) -> None:
        self._actor = actor
        self._waits = waits
        self._room: CallSlots | None = None
        self._closed = False
        self.bytes = 0
        self.end_by = inf
        """When the answer that is being read must be whole, in the loop's time."""

    async def take(self, size: int) -> None:
        """Gives back what it holds, then waits for room for *size* bytes, or for four fifths of all if that is less.
        Raises TimeoutError."""
        self.shrink(0)
        room = shared_slots("answers", lambda: room_bytes(memory_bytes()))
        size = min(size, room.most * 4 // 5)
        if not room.enter(self._actor, size):
            turn = asyncio.get_running_loop().create_task(room.wait(self._actor, size))
            async with asyncio.timeout(HOLD_S if self._waits is not None else None):
                try:
                    while not (await asyncio.wait([turn], timeout=1.0))[0]:
                        if self._waits is not None:
                            self._waits()
                except asyncio.CancelledError:
                    if not turn.cancel():
                        room.leave(self._actor, size)
                    raise
        self._set(room, size)
        self.end_by = asyncio.get_running_loop().time() + HOLD_S

    def shrink(self, size: int) -> None:
        """Gives back all but *size* bytes: the answer is whole, or dropped."""
        self.end_by = inf
        if size < self.bytes and self._room is not None:
            self._room.leave(self._actor, self.bytes - size)
            self.bytes = size

    def keep(self, other: "AnswerHold") -> None:
        """Takes over what *other* holds, in place of its own."""
        self.shrink(0)
        self._actor = other._actor
        self._set(other._room, other.bytes)
        other.bytes, other.end_by = 0, inf

    def close(self) -> None:
        """Gives back what it holds, and from now on at once what it takes: a background task may outlast the call."""
        self._closed = True
        self.shrink(0)

    def _set(self, room: CallSlots | None, size: int) -> None:
        self.shrink(0)
        self._room, self.bytes = room, size
        if self._closed:
            self.shrink(0)


hold_in_force: ContextVar[AnswerHold | None] = ContextVar("hold_in_force", default=None)
"""The hold of the call that runs."""


def room_bytes(memory: int) -> int:
    """Returns the size of the room for a process that may use *memory* bytes."""
    return max(_LEAST_BYTES, min(memory // _PART_OF_MEMORY, _MOST_BYTES))


def memory_bytes() -> int:
    """Returns the limit of the process's cgroup (v1 or v2), or the memory of the machine if that is less."""
    found, own = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")], {"": "", "memory": ""}
    with suppress(OSError, ValueError):
        own |= dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    # A container may show the path that the host uses. Then its own limit is at the root.
    for first, second in ((own["memory"], own[""]), ("", "")):
        for file in (f"memory{first}/memory.limit_in_bytes", f".{second}/memory.max"):
            with suppress(OSError, ValueError):  # there is no such file, or no limit ("max")
                found.append(int(Path("/sys/fs/cgroup", file).read_text()))
    return min(found)
