"""A store with outages, with steps whose answers are lost, and with counts of what it was asked."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Fence, Op, Store, StoreUnavailable

_ASKED = ("get", "of_owner", "read_log", "step", "beat", "alive", "count", "places", "listen")


def _refuse(*_: object, **__: object) -> Any:
    raise StoreUnavailable("it is unavailable")


class FailingStore(MemoryStore):
    """A store in memory, or the way to *store*. *unavailable*: none of *refused* works. *lost*: steps are done, but
    their answers are lost. The next *repeats* steps are done twice, as the client of Redis does if it got no answer."""

    unavailable = False
    lost = False
    repeats = 0

    def __init__(self, store: Store | None = None, refused: Sequence[str] = _ASKED) -> None:
        super().__init__()
        self._store = store
        self.refused = refused
        self.asked = Counter[str]()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _ASKED:
            return found
        self.asked[name] += 1
        if self.unavailable and name in self.refused:
            return _refuse
        return found if self._store is None or name == "step" else getattr(self._store, name)

    async def step(self, ops: Sequence[Op], *, fence: Fence | None = None, durable: bool = False) -> Sequence[int]:
        step = super().step if self._store is None else self._store.step
        if self.repeats:
            self.repeats -= 1
            await step(ops, fence=fence, durable=durable)
        done = await step(ops, fence=fence, durable=durable)
        if self.lost:
            raise StoreUnavailable("no answer")
        return done
