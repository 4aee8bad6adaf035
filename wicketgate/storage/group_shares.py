"""Places of one kind, of which an actor has no more in a group of processes than the operator allows (ACCESS-97 to
ACCESS-100).

What all actors hold together is bounded to protect the process that serves them, so each process counts that for
itself. The limit of one actor is counted in a store: each process sets there how many places the actor has in it, and
asks for further ones in the same step. Numbers are set and never added to, so a step may be repeated or lost. What a
process has set counts while it goes on to set it, and lapses when it does not.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wicketgate.access.shares import CountedShares, Lease, Scope, ShareRefused
from wicketgate.storage.fail_modes import FailModes
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.storage")

RENEW_S = 2.0
LAPSE_S = 6.0
"""The places of a process that died are free after so long."""
LINGER_S = 0.25
_AT_ONCE = 200
_KEPT_BACK = 8


@dataclass(frozen=True, slots=True)
class Wish:
    """*held*: places of *actor* in this process. *wanted*: those that it asks for besides."""

    actor: str
    held: int
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """*granted*: places beside those held. *elsewhere*: those that the actor has in other processes."""

    granted: int
    elsewhere: int


class PlacesAway(Exception):
    """The store did not settle. It may have done so all the same; the next step sets it right."""


class PlaceStore(Protocol):
    """The number of places by kind, actor and process."""

    @property
    def member(self) -> str:
        """The name of this process among those of the group."""
        ...

    async def settle(self, kind: str, limit: int, wishes: Sequence[Wish]) -> Sequence[Grant]:
        """Sets the places of each actor in this process to those held and granted; an actor has *limit* in all
        processes that live. This process lives for ``LAPSE_S`` more. Raises PlacesAway."""
        ...

    async def leave(self, kind: str) -> None:
        """Gives back all that this process holds. Raises PlacesAway."""
        ...

    async def aclose(self) -> None: ...


class GroupShares:
    """Implements Shares for one of the processes that share *store*. *most* bounds the places of this process,
    *per_actor* those of an actor in all of them.

    Steps are made by one task, each for all that waits: what is given back, what is to be renewed, and who wants a
    place. With *linger_s* an eighth of an actor's places stays here for so long after it was given back, at most twice
    so long, and is taken again without a step. For use from one event loop only.
    """

    def __init__(
        self,
        kind: str,
        most: int,
        per_actor: int,
        store: PlaceStore,
        fail: FailModes,
        *,
        linger_s: float = 0.0,
        renew_s: float = RENEW_S,
    ) -> None:
        self._own = CountedShares(kind, most, per_actor, prefix=f"{store.member}-")
        self._per_actor = per_actor
        self._store = store
        self._fail = fail
        self._linger_s = linger_s
        self._renew_s = renew_s
        # By actor: places set in the store, or meant to be; those of them that nobody has; the fewest of these lately.
        self._counted: dict[str, int] = {}
        self._idle: dict[str, int] = {}
        self._unused: dict[str, int] = {}
        # What is to be settled, and what could not be.
        self._waiting: dict[str, list[asyncio.Future[ShareRefused | None]]] = {}
        self._changed: set[str] = set()
        self._unsettled: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def kind(self) -> str:
        return self._own.kind

    @property
    def most(self) -> int:
        return self._own.most

    @property
    def held(self) -> int:
        return self._own.held

    @property
    def refused(self) -> Mapping[Scope, int]:
        return self._own.refused

    async def take(self, actor: str, make_room: Callable[[int], bool] | None = None) -> Lease:
        lease = await self._own.take(actor, make_room)
        if idle := self._idle.get(actor):
            self._idle[actor] = idle - 1
            self._unused[actor] = min(self._unused.get(actor, 0), idle - 1)
            return lease
        answer: asyncio.Future[ShareRefused | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(actor, []).append(answer)
        self._work()
        try:
            refused = await answer
        except asyncio.CancelledError:
            self._own.give_back(lease)
            if answer.done() and not answer.cancelled() and answer.result() is None:
                self._release(actor)
            raise
        if refused is None:
            return lease
        self._own.give_back(lease)
        self._own.refused[refused.scope] = self._own.refused.get(refused.scope, 0) + 1
        raise refused

    def give_back(self, lease: Lease) -> None:
        if not self._own.holds(lease):
            return
        self._own.give_back(lease)
        idle = self._idle.get(lease.actor, 0)
        if self._linger_s and not self._closed and idle < self._per_actor // _KEPT_BACK:
            if not self._idle:
                self._work()
            self._idle[lease.actor] = idle + 1
            self._unused.setdefault(lease.actor, 0)
        else:
            self._release(lease.actor)

    async def aclose(self) -> None:
        """Gives everything back, in the store too if it can be reached. Whoever waits is refused."""
        self._closed = True
        if self._task is not None:
            await end_tasks(self._task)
        self._refuse_all()
        with contextlib.suppress(PlacesAway):
            await self._store.leave(self.kind)

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
        self._wake.set()

    async def _settling(self) -> None:
        """Runs as long as this process has something in the store."""
        loop = asyncio.get_running_loop()
        renew_at, sweep_at = loop.time() + self._renew_s, loop.time() + self._linger_s
        try:
            while self._waiting or self._changed or self._counted or self._unsettled:
                if not self._waiting and not self._changed:
                    until = min(renew_at, sweep_at) if self._idle else renew_at
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(until):
                            await self._wake.wait()
                self._wake.clear()
                now = loop.time()
                if now >= sweep_at:
                    self._sweep()
                    sweep_at = now + self._linger_s
                if now >= renew_at:
                    self._changed |= self._unsettled | self._counted.keys()
                    renew_at = now + self._renew_s
                if batch := self._batch():
                    await self._settle(batch)
        except Exception:
            # The last boundary of this task. The next one who takes a place begins it anew.
            log.exception("places of %s are not counted", self.kind)
        finally:
            self._task = None
            self._refuse_all()

    def _sweep(self) -> None:
        """Lets go of the places that nobody has needed since the last time."""
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

    def _batch(self) -> list[tuple[Wish, list[asyncio.Future[ShareRefused | None]]]]:
        """Takes the next actors to settle, those that somebody waits for first."""
        batch = []
        for actor in self._next_actors():
            waiting = [each for each in self._waiting.pop(actor, ()) if not each.done()]
            self._changed.discard(actor)
            self._unsettled.discard(actor)
            batch.append((Wish(actor, self._counted.get(actor, 0), len(waiting)), waiting))
        return batch

    def _next_actors(self) -> list[str]:
        actors = [*self._waiting, *(self._changed - self._waiting.keys())]
        return actors[:_AT_ONCE]

    async def _settle(self, batch: list[tuple[Wish, list[asyncio.Future[ShareRefused | None]]]]) -> None:
        try:
            grants = await self._store.settle(self.kind, self._per_actor, [wish for wish, _ in batch])
        except PlacesAway:
            self._unsettled.update(wish.actor for wish, _ in batch)
            for wish, waiting in batch:
                for answer in _open(waiting):
                    if self._fail.without("places") == "open":
                        self._count(wish.actor, 1)
                        answer.set_result(None)
                    else:
                        answer.set_result(ShareRefused("away", wish.held))
            return
        except BaseException:
            self._unsettled.update(wish.actor for wish, _ in batch)
            for _, waiting in batch:
                for answer in _open(waiting):
                    answer.set_result(ShareRefused("away"))
            raise
        self._fail.answered("places")
        if self._unsettled:
            # It is back: it may have lost what it had.
            self._changed |= self._unsettled | self._counted.keys()
            self._unsettled.clear()
        for (wish, waiting), grant in zip(batch, grants, strict=True):
            granted = grant.granted
            for answer in _open(waiting):
                if granted:
                    granted -= 1
                    self._count(wish.actor, 1)
                    answer.set_result(None)
                else:
                    answer.set_result(ShareRefused("actor", wish.held + grant.elsewhere))
            if granted:
                self._changed.add(wish.actor)  # who wanted it has gone

    def _refuse_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            for answer in _open(answers):
                answer.set_result(ShareRefused("away"))


def _open(
    answers: Sequence[asyncio.Future[ShareRefused | None]],
) -> Iterator[asyncio.Future[ShareRefused | None]]:
    return (answer for answer in answers if not answer.done())
