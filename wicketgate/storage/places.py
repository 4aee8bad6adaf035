"""Places of one kind, of which an actor has at most a limit over all processes that share a store (ACCESS-97 to
ACCESS-100).

Each process bounds the total of all actors for itself, because that total protects its own memory. The limit of one
actor is counted in the store: each process sets how many places the actor has in it, and asks for further ones in the
same step. Updates carry absolute counts, so they are idempotent. Counts are valid while the mark of their process is
alive; nothing is renewed here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from wicketgate.access.shares import CountedShares, Lease, ShareRefused
from wicketgate.storage.encoding import hashed
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.process import Process
from wicketgate.storage.store import BEAT_S, Grant, Store, StoreUnavailable, Wish
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.storage")

LINGER_S = 0.25
RETRY_S = BEAT_S
"""The pause before counts that the store did not take are set again."""
_AT_ONCE = 200
_KEPT_BACK = 8

_Answer = asyncio.Future[ShareRefused | None]
_Batch = dict[str, tuple[int, list[_Answer]]]
"""By actor: the places that it holds here, and the requests that wait for a further one."""


class SharedLimits(CountedShares):
    """Implements Shares for *process*, one of those that share *store*. *most* bounds the places of this process,
    *per_actor* those of an actor in all processes.

    One task at a time writes to the store: each step sets the counts that have changed and asks for the places that
    requests wait for. With *linger_s*, an eighth of an actor's places stays in this process for one to two *linger_s*
    after it was given back, and is taken again without a step. For use from one event loop only.
    """

    _per_actor: int

    def __init__(
        self,
        kind: str,
        most: int,
        per_actor: int,
        store: Store,
        process: Process,
        fail: FailModes,
        *,
        linger_s: float = 0.0,
        retry_s: float = RETRY_S,
    ) -> None:
        super().__init__(kind, most, per_actor, prefix=f"{process.id}-")
        self._store = store
        self._process = process
        self._fail = fail
        self._linger_s = linger_s
        self._retry_s = retry_s
        # By actor: places counted in the store, or meant to be; the idle ones among them; the fewest idle ones lately.
        self._counted: dict[str, int] = {}
        self._idle: dict[str, int] = {}
        self._unused: dict[str, int] = {}
        # Requests that wait for a place, and actors whose count in the store may be wrong.
        self._waiting: dict[str, list[_Answer]] = {}
        self._changed: set[str] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        process.on_lost(self._set_all)

    async def take(self, actor: str, make_room: Callable[[int], bool] | None = None) -> Lease:
        lease = await super().take(actor, make_room)
        if idle := self._idle.get(actor):
            self._idle[actor] = idle - 1
            self._unused[actor] = min(self._unused.get(actor, 0), idle - 1)
            return lease
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(actor, []).append(answer)
        self._work()
        try:
            refused = await answer
        except asyncio.CancelledError:
            super().give_back(lease)
            if answer.done() and not answer.cancelled() and answer.result() is None:
                self._release(actor)
            raise
        if refused is None:
            return lease
        super().give_back(lease)
        self.refused[refused.scope] = self.refused.get(refused.scope, 0) + 1
        raise refused

    def give_back(self, lease: Lease) -> None:
        if not self.holds(lease):
            return
        super().give_back(lease)
        idle = self._idle.get(lease.actor, 0)
        if self._linger_s and not self._closed and idle < self._per_actor // _KEPT_BACK:
            self._idle[lease.actor] = idle + 1
            self._unused.setdefault(lease.actor, 0)
            self._sweep_later()
        else:
            self._release(lease.actor)

    async def aclose(self) -> None:
        """Refuses the requests that wait, and writes nothing from now on. The counts end with the process's mark."""
        self._closed = True
        for timer in (self._sweep, self._retry):
            if timer is not None:
                timer.cancel()
        await end_tasks(self._task)
        self._refuse_all()

    def _set_all(self) -> None:
        """Sets all counts again: they were not valid while the mark was not alive, and the store may have lost them."""
        self._changed.update(self._counted)
        self._work()

    def _release(self, actor: str) -> None:
        self._count(actor, -1)
        self._changed.add(actor)
        self._work()

    def _count(self, actor: str, more: int) -> None:
        number = self._counted.get(actor, 0) + more
        if number:
            self._counted[actor] = number
        else:
            self._counted.pop(actor, None)

    def _work(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._settling(), name=f"places of {self.kind}")

    def _sweep_later(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._linger_s, self._sweep_idle)

    def _sweep_idle(self) -> None:
        """Releases the places that were not needed since the last time."""
        self._sweep = None
        for actor, unused in list(self._unused.items()):
            if unused:
                self._count(actor, -unused)
                self._changed.add(actor)
            left = self._idle.get(actor, 0) - unused
            if left:
                self._idle[actor] = self._unused[actor] = left
            else:
                self._idle.pop(actor, None)
                del self._unused[actor]
        if self._idle:
            self._sweep_later()
        self._work()

    async def _settling(self) -> None:
        try:
            while self._waiting or (self._changed and self._retry is None):
                await self._settle(self._batch())
        except Exception:
            # The last boundary of this task. The next request starts another one.
            log.exception("places of %s could not be counted", self.kind)
        finally:
            self._task = None
            self._refuse_all()

    def _batch(self) -> _Batch:
        """Takes the next actors to settle, those with waiting requests first."""
        batch: _Batch = {}
        for actor in [*self._waiting, *(self._changed - self._waiting.keys())][:_AT_ONCE]:
            self._changed.discard(actor)
            waiting = [each for each in self._waiting.pop(actor, ()) if not each.done()]
            batch[actor] = self._counted.get(actor, 0), waiting
        return batch

    async def _settle(self, batch: _Batch) -> None:
        wishes = [Wish(hashed(actor), held, len(waiting)) for actor, (held, waiting) in batch.items()]
        try:
            grants = await self._store.places(self.kind, self._process.id, self._per_actor, wishes)
        except StoreUnavailable:
            self._without_store(batch)
            return
        except BaseException:
            self._changed.update(batch)
            self._refuse(answer for _, waiting in batch.values() for answer in waiting)
            raise
        self._fail.answered("places")
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for (actor, (held, waiting)), grant in zip(batch.items(), grants, strict=True):
            self._answer(actor, held, waiting, grant)

    def _answer(self, actor: str, held: int, waiting: Sequence[_Answer], grant: Grant) -> None:
        granted = grant.granted
        for answer in _open(waiting):
            if granted:
                granted -= 1
                self._count(actor, 1)
                answer.set_result(None)
            else:
                answer.set_result(ShareRefused("actor", held + grant.elsewhere))
        if granted:
            self._changed.add(actor)  # its request was cancelled

    def _without_store(self, batch: _Batch) -> None:
        """Decides by the fail mode, and sets the counts later."""
        self._changed.update(batch)
        for actor, (held, waiting) in batch.items():
            for answer in _open(waiting):
                if self._fail.without("places") == "open":
                    self._count(actor, 1)
                    answer.set_result(None)
                else:
                    answer.set_result(ShareRefused("away", held))
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._work()

    def _refuse_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._refuse(answer for answers in waiting.values() for answer in answers)

    def _refuse(self, answers: Iterator[_Answer]) -> None:
        for answer in answers:
            if not answer.done():
                answer.set_result(ShareRefused("away"))


def _open(answers: Sequence[_Answer]) -> Iterator[_Answer]:
    return (answer for answer in answers if not answer.done())
