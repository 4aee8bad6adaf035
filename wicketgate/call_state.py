"""Needs of the runtime for what calls leave to later calls: executions counted, results kept, cards seen.

Each store has three forms: in memory, in a file, in a Redis. One in memory answers without waiting for anything.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from wicketgate.catalog.card import SeenCards

T = TypeVar("T")

WINDOW_S = 60.0
"""The time for which an execution counts."""


class StoreAway(Exception):
    """Raised by a store that others share, for a step that it did not do. The message is the end of a log line. Whether
    it did it nevertheless is not known after one that was late."""


@dataclass(frozen=True, slots=True)
class Window:
    """A limit of one actor: at most *most* executions count at once. *name* tells the actor's windows apart."""

    name: str
    most: int


@dataclass(frozen=True, slots=True)
class Full:
    """The refusal of a window: *retry_after_s* later it takes an execution again, if nothing else is counted."""

    window: Window
    retry_after_s: float


class QuotaStore(Protocol):
    """Executions that were counted, by actor and window. The windows slide: each execution counts for ``WINDOW_S`` of
    its own, whatever limit it was counted under."""

    async def take(self, actor: str, windows: Sequence[Window], *, count: bool = True) -> Full | None:
        """Count one execution in all of *windows*, of which there is one at least, in one step. If one of them is full
        nothing is counted, and the one that stays full longest is returned. Without *count* nothing is counted either
        way.

        Raises StoreAway, and NotAdmitted where nothing may run uncounted.
        """
        ...

    async def aclose(self) -> None:
        """Once, when nothing is counted any more."""
        ...


Key = tuple[str | None, str, str, str, str, str, str, str]
"""The parts that decide whether two calls are equal: the actor or None, the caller's way to be asked and its
capabilities, the catalog's version, the tool's id, its server and name there, the arguments."""


@dataclass(frozen=True, slots=True)
class Found:
    """A *result* that was kept, or None. *since* goes with ``put``: a result that was asked for before the store was
    cleared is not kept."""

    result: Mapping[str, Any] | None
    since: object = 0


class ResultStore(Protocol):
    """Results by key, each for a time. Bounded in number and, where bytes are counted, in bytes."""

    async def get(self, key: Key) -> Found:
        """Raises StoreAway."""
        ...

    async def put(self, key: Key, result: Mapping[str, Any], ttl_s: float, since: object) -> None:
        """Keep it, unless the store was cleared since it was looked for. Raises StoreAway."""
        ...

    async def clear(self) -> None:
        """Forget all results, those of other processes too. Raises StoreAway."""
        ...

    async def aclose(self) -> None:
        """Once, when nothing is kept any more."""
        ...


Step = Callable[[SeenCards], tuple[T, SeenCards]]
"""A step over what a session has seen: its result, and what the session has seen then. It may be run again."""


class SessionStore(Protocol):
    """Seen cards of browsing sessions, by session key (BROWSE-20 to BROWSE-25). A session lapses when it was not used
    for its time to live."""

    async def update(self, session: str, ids: Collection[str], step: Step[T]) -> T:
        """Run *step* over the cards of *ids* that the session has seen, perhaps with others, and keep what it changed,
        with no other step of the session in between. Raises StoreAway."""
        ...

    async def aclose(self) -> None:
        """Once, when nothing is seen any more."""
        ...
