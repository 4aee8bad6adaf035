"""This process among those that share a store: its mark, and when it takes over what ended processes held."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from wicketgate.storage.core import DamagedRow
from wicketgate.storage.store import BEAT_S, MARK_S, Beat, Store, StoreUnavailable
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.storage")

RELEASED = "released"
"""The topic of signals that a row was released for the next process."""

TakeOver = Callable[[Sequence[str]], Awaitable[None]]
"""Gets the keys of rows that may be taken."""


class Process:
    """Keeps the mark *id* alive within ``running``.

    After a start, an outage, or a pause of its own it takes over nothing for the lifetime of a mark, so that processes
    that live can renew theirs first (EXEC-120). *id* is random by default, and unique among all processes of the store.
    """

    def __init__(self, store: Store, id: str | None = None, *, mark_s: float = MARK_S, beat_s: float = BEAT_S) -> None:
        self.id = id or secrets.token_hex(8)
        self._store = store
        self._mark_s = mark_s
        self._beat_s = beat_s
        self._patient_until = 0.0
        self._takers: dict[str, TakeOver] = {}
        self._lost: list[Callable[[], None]] = []
        self._taking: asyncio.Task[None] | None = None

    def take_over(self, kind: str, taker: TakeOver) -> None:
        """Calls *taker* with the keys of rows of *kind* whose process has ended. It may be called again with a key that
        it did not take."""
        self._takers[kind] = taker

    def on_lost(self, listener: Callable[[], None]) -> None:
        """Calls *listener* when the own mark was not alive: others may have taken what this process held."""
        self._lost.append(listener)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Beats within the block, and removes the mark at its end."""
        self._be_patient()
        with suppress(StoreUnavailable):
            await self._store.beat(self.id, mark_s=self._mark_s)
        beating = asyncio.create_task(self._beating(), name="mark of this process")
        try:
            yield
        finally:
            await end_tasks(beating, self._taking)
            with suppress(StoreUnavailable):
                await self._store.beat(self.id, mark_s=0)

    async def _renew(self) -> Beat:
        beat = await self._store.beat(self.id, mark_s=self._mark_s)
        if beat.lost:
            self._be_patient()
            for listener in self._lost:
                listener()
        return beat

    def _is_patient(self) -> bool:
        return asyncio.get_running_loop().time() < self._patient_until

    def _be_patient(self) -> None:
        self._patient_until = asyncio.get_running_loop().time() + self._mark_s

    async def _beating(self) -> None:
        while True:
            try:
                async with self._store.listen(RELEASED) as changed:
                    while True:
                        await changed.wait(self._beat_s)
                        await self._beat()
            except StoreUnavailable:
                self._be_patient()
            except Exception:
                # The last boundary of this task: without it the process would count as ended.
                log.exception("the mark of this process was not renewed")
            await asyncio.sleep(self._beat_s)

    async def ended(self, process: str) -> bool:
        """Returns true only if *process* is known to have ended."""
        try:
            await self._renew()  # first, because all marks may have lapsed at once
            return not self._is_patient() and not (process.isascii() and await self._store.alive(process))
        except StoreUnavailable:
            self._be_patient()
            return False

    async def _beat(self) -> None:
        beat = await self._renew()
        idle = self._taking is None or self._taking.done()
        if beat.lapsed and idle and not self._is_patient():
            self._taking = asyncio.create_task(self._take(beat.lapsed), name="rows of ended processes")

    async def _take(self, lapsed: Mapping[str, Sequence[str]]) -> None:
        """Runs outside of the beat, which must not wait for it."""
        for kind, keys in lapsed.items():
            if taker := self._takers.get(kind):
                try:
                    await taker(keys)
                except DamagedRow:
                    continue  # it is logged, and says nothing of other rows
                except StoreUnavailable:
                    return
                except Exception:
                    log.exception("rows of kind %s that an ended process held were not taken over", kind)
