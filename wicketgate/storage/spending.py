"""Sums of what was spent, as rows of a ``Store``: one for each day and actor, and one for each period of a budget.

They are written every few seconds, so a process that is killed loses the last of them. If the store fails in the middle
of a write, what was in it may be counted twice.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from wicketgate.errors import NotAdmitted
from wicketgate.gateway.spending import DAYS_KEPT, OTHER, Entry, Numbers, SpentRow
from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.store import Conflict, Full, Kind, Put, Store, StoreUnavailable
from wicketgate.task_end import end_tasks, hold

log = logging.getLogger("wicketgate.spending")

MOST_ACTORS = 1_000
"""Actors of a day who have a row of their own."""
_MOST_ENTRIES = 1_000
_MOST_WAITING = 10_000
_MOST_BUDGETS = 100_000
_DAY_S = 86_400.0
_MONTH_S = 32 * _DAY_S
_WRITE_EVERY_S = 2.0
_TRIES = 50
_AT_ONCE = 32

# A row of a day is never evicted: it expires.
_SPENT = Kind("spent", owner_rows=MOST_ACTORS, listed=True)
_SPENT_BY_OTHERS = Kind("spent_by_others", listed=True)
_BUDGET = Kind("budget", most_rows=_MOST_BUDGETS)

Sums = dict[Entry, list[int]]
Change = Callable[[bytes | None], bytes | None]
"""Returns the new data of a row; None if the row is damaged."""


class StoredLedger:
    """Implements Ledger over *store*. *modes* decide over ``budgets`` while it is unavailable or has no room for one:
    ``open``, each process goes on with what it knows."""

    def __init__(self, store: Store, modes: FailModes | None = None) -> None:
        self._store = store
        self._modes = modes or FailModes()
        self._days: dict[tuple[str, str], Sums] = {}
        self._budgets: dict[str, int] = {}
        self._flying: dict[str, int] = {}
        self._known: dict[str, int] = {}
        self._is_full = False
        self._failures: list[StoreUnavailable] = []
        self._turn = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        writing = asyncio.create_task(self._write_again_and_again(), name="sums of what was spent")
        try:
            yield
        finally:
            await end_tasks(writing)
            await self.write()

    def add(self, day: str, actor: str, entry: Entry, numbers: Numbers, budgets: Iterable[str]) -> None:
        if (day, actor) not in self._days and len(self._days) >= _MOST_WAITING:
            actor = OTHER
        _add(self._days.setdefault((day, actor), {}), entry, numbers)
        for budget in budgets:
            self._add_cost(budget, numbers[-1])

    def _add_cost(self, budget: str, cost: int) -> None:
        if budget in self._budgets or len(self._budgets) < _MOST_WAITING:
            self._budgets[budget] = self._budgets.get(budget, 0) + cost

    async def spent(self, budgets: Sequence[str]) -> Sequence[int]:
        return await asyncio.gather(*map(self._spent, budgets))

    async def _spent(self, budget: str) -> int:
        written = self._known.get(budget, 0)
        try:
            row = await self._store.get(_BUDGET, hashed(budget))
            if row is None and self._is_full:
                raise Full("all")
            found = 0 if row is None else sound(_BUDGET.name, budget, partial(int, row.data))
            if found is None:
                raise StoreUnavailable("its row is damaged")
            written = self._known[budget] = found
            if len(self._known) > _MOST_WAITING:
                self._known.clear()
            self._modes.answered("budgets")
        except (StoreUnavailable, Full) as error:
            if not self._without(error):
                raise NotAdmitted(
                    "Budgets cannot be checked at the moment, so no chat that has one can begin."
                ) from None
        # What is being written may be in the row already, and counts twice for that moment.
        return written + self._budgets.get(budget, 0) + self._flying.get(budget, 0)

    def _without(self, error: Exception) -> bool:
        """Returns true if chats begin all the same."""
        if self._modes.begins("budgets"):
            why = "there is no room for more of them" if isinstance(error, Full) else str(error)
            log.error("budgets cannot be kept for all processes: %s", why)
        return self._modes.without("budgets") == "open"

    async def rows(self, day: str) -> Sequence[SpentRow]:
        found: list[SpentRow] = []
        for kind in (_SPENT, _SPENT_BY_OTHERS):
            for row in await self._store.of_owner(kind, day):
                actor, sums = sound(kind.name, row.key, partial(_read, row.data)) or ("", {})
                found += ((actor, entry, numbers) for entry, numbers in sums.items())
        return found

    async def write(self) -> None:
        """Writes what was added. What cannot be written waits for the next time. A write goes on to its end, also if
        its caller is cancelled."""
        writing = asyncio.create_task(self._write())
        hold(writing, self._writes)
        await asyncio.shield(writing)

    async def _write(self) -> None:
        async with self._turn:
            (days, self._days), (self._flying, self._budgets) = (self._days, {}), (self._budgets, {})
            writes = [
                *(partial(self._write_day, day, actor, sums) for (day, actor), sums in days.items()),
                *(partial(self._write_budget, budget, cost) for budget, cost in self._flying.items()),
            ]
            self._failures.clear()
            for start in range(0, len(writes), _AT_ONCE):
                await asyncio.gather(*(write() for write in writes[start : start + _AT_ONCE]))
            self._flying = {}
            if self._failures:
                log.warning("what was spent is written later: %s", self._failures[0])

    async def _write_day(self, day: str, actor: str, sums: Sums) -> None:
        kind, key = (_SPENT_BY_OTHERS, day) if actor == OTHER else (_SPENT, hashed(f"{day} {actor}"))
        try:
            await self._change(kind, key, day, DAYS_KEPT * _DAY_S, partial(_with_sums, actor, sums))
        except (StoreUnavailable, Full) as error:
            for entry, numbers in sums.items():
                self.add(day, OTHER if isinstance(error, Full) else actor, entry, numbers, ())

    async def _write_budget(self, budget: str, cost: int) -> None:
        is_of_day = budget.count("-", budget.rindex(" ")) > 1
        try:
            life_s = 2 * _DAY_S if is_of_day else _MONTH_S
            await self._change(_BUDGET, hashed(budget), "-", life_s, partial(_with_cost, cost))
            self._known[budget] = self._known.get(budget, 0) + cost
            self._is_full = False
        except (StoreUnavailable, Full) as error:
            self._is_full |= isinstance(error, Full)
            self._without(error)
            self._add_cost(budget, cost)

    async def _change(self, kind: Kind, key: str, owner: str, life_s: float, change: Change) -> None:
        if self._failures:
            raise self._failures[0]
        for _ in range(_TRIES):
            try:
                row = await self._store.get(kind, key)
            except StoreUnavailable as error:
                self._failures.append(error)
                raise
            data = sound(kind.name, key, partial(change, None if row is None else row.data))
            if data is None:
                return  # a damaged row is never mended
            with suppress(Conflict):
                await self._store.step([Put(kind, key, data, owner, 0 if row is None else row.version, life_s)])
                return
        raise StoreUnavailable("other processes write at the same time")

    async def _write_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            try:
                await self.write()
            except Exception:
                # The last boundary of this task: the next write has to come all the same.
                log.exception("what was spent could not be written")


def _add(sums: Sums, entry: Entry, numbers: Numbers) -> None:
    if entry not in sums and len(sums) >= _MOST_ENTRIES:
        entry = (entry[0], OTHER, "")
    sums[entry] = [one + more for one, more in zip(sums.get(entry) or [0] * len(numbers), numbers, strict=True)]


def _with_sums(actor: str, more: Sums, data: bytes | None) -> bytes:
    sums = {} if data is None else _read(data)[1]
    for entry, numbers in more.items():
        _add(sums, entry, numbers)
    return packed([actor, [[*entry, *numbers] for entry, numbers in sums.items()]])


def _with_cost(cost: int, data: bytes | None) -> bytes:
    return str(int(data or 0) + cost).encode()


def _read(data: bytes) -> tuple[str, Sums]:
    """Raises ValueError and TypeError for damaged *data*."""
    actor, entries = unpacked(data)
    sums: Sums = {}
    for what, name, key, *numbers in entries:
        if not all(isinstance(each, str) for each in (actor, what, name, key)) or list(map(type, numbers)) != [int] * 5:
            raise TypeError
        sums[what, name, key] = numbers
    return actor, sums
