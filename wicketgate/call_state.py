"""Needs of the runtime for what calls leave to later calls: executions counted, results kept, cards seen.

Quotas hold over all processes that share a store. Each process has its own kept results and seen cards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from wicketgate.access.flow import SessionMemory
from wicketgate.catalog.card import SeenCards

T = TypeVar("T")

WINDOW_S = 60.0
"""The length of a window."""


@dataclass(frozen=True, slots=True)
class Window:
    """A limit of one actor: at most *most* executions in ``WINDOW_S``. *name* distinguishes the actor's windows."""

    name: str
    most: int


@dataclass(frozen=True, slots=True)
class Full:
    """The refusal of a window: *retry_after_s* later it takes an execution again, if nothing else is counted."""

    window: Window
    retry_after_s: float


class QuotaStore(Protocol):
    """Counts executions by actor and window. Other limits of a window count on what was counted before."""

    async def take(self, actor: str, windows: Sequence[Window], *, count: bool = True) -> Full | None:
        """Counts one execution in all of *windows*, at least one, in one step. If one of them is full, counts nothing
        and returns the one that stays full longest. Without *count* nothing is counted either way.

        Raises NotAdmitted if executions cannot be counted and nothing may run uncounted.
        """
        ...


Key = tuple[str | None, str, str, str, str, str, str, str]
"""The parts that decide whether two calls are equal: the actor or None, the caller's way to be asked and its
capabilities, the catalog's version, the tool's id, its server and name there, the arguments."""


@dataclass(frozen=True, slots=True)
class Found:
    """A *result* that was kept, or None. *since* belongs to ``put``: a result that was requested before the store was
    cleared is not kept."""

    result: Mapping[str, Any] | None
    since: int = 0


class ResultStore(Protocol):
    """Results by key, each for a time. Bounded in number."""

    def get(self, key: Key) -> Found: ...

    def put(self, key: Key, result: Mapping[str, Any], ttl_s: float, since: int) -> None:
        """Keeps *result*, unless the store was cleared after *since*."""
        ...

    def clear(self) -> None:
        """Removes all results."""
        ...


Step = Callable[[SeenCards], tuple[T, SeenCards]]
"""A step over what a session has seen: its result, and what the session has seen then."""


class SessionStore(Protocol):
    """Seen cards of browsing sessions, by session key (BROWSE-20 to BROWSE-25). A session lapses when it was not used
    for its time to live."""

    def update(self, session: str, step: Step[T]) -> T:
        """Runs *step* over the cards that the session has seen, and keeps what it changed."""
        ...


class FlowStore(Protocol):
    """The memories of sessions for flow rules (ACCESS-262), shared by all processes that use one store."""

    async def read(self, session: str) -> tuple[SessionMemory | None, float]:
        """Returns the memory of a session, which must not be changed, and its remaining seconds. The memory is None if
        the store is unavailable or the row is damaged."""
        ...

    async def change(self, session: str, life_s: float | None, change: Callable[[SessionMemory, float], bool]) -> bool:
        """Applies *change* to the memory and the time in seconds since the epoch. *change* returns False if it changed
        nothing. The memory lives for at least three quarters of *life_s* from now. With None it keeps its life, and a
        session without memory is skipped. Returns False if the change could not be stored, which is logged."""
        ...
