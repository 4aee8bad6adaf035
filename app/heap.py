"""The garbage collector's part in a responsive event loop (`make bench-pause`; performance guide, rule 5).

A full collection looks at every container of the heap and holds the loop meanwhile: 0.2 s and more with 10,000 tools.
So none is made while a refresh is under way, and after one that changed a large catalog the heap is frozen: what it
holds is passed over from then on, and still freed when nothing refers to it. Only garbage in cycles that is alive at a
freeze is never collected, which is why a freeze follows a change and nothing else.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEVER = 1_000_000
_YOUNG_OBJECTS = 10_000


def collect_seldom() -> None:
    """For a service, once it is built: what was imported is there to stay, and is not looked at again. Of what a
    request makes, little is garbage in cycles; looking for it after every 700 objects is a tenth of relaying a model's
    stream."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


class Heap:
    """Implements HeapKeeper. One for a process."""

    def __init__(self) -> None:
        self._refreshes = 0
        self._thresholds = gc.get_threshold()

    @contextmanager
    def refreshing(self) -> Iterator[None]:
        if self._refreshes == 0:
            self._thresholds = gc.get_threshold()
            gc.set_threshold(*self._thresholds[:2], _NEVER)
        self._refreshes += 1
        try:
            yield
        finally:
            self._refreshes -= 1
            if self._refreshes == 0:
                gc.set_threshold(*self._thresholds)

    def settle(self) -> None:
        gc.freeze()
