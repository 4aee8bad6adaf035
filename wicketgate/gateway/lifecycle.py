"""From start to stop: upstreams are supervised, the catalog follows them, and readiness is decided (DESIGN §2 "Paths").

Start-up never waits for a slow server: each has its turn or misses it, and joins later by itself. Upstreams may come
and go while it runs.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from wicketgate.fleet.member import Member
from wicketgate.fleet.multiplex import MultiplexUpstream
from wicketgate.gateway.refresher import CatalogRefresher
from wicketgate.gateway.runtime import ProxyRuntime


@dataclass(eq=False, slots=True)
class _Supervised:
    member: Member
    retiring: bool = False
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


class Lifecycle:
    """Enter ``running`` once."""

    def __init__(self, fleet: MultiplexUpstream, runtime: ProxyRuntime, *, start_deadline_s: float) -> None:
        self._fleet = fleet
        self._refresher = CatalogRefresher(runtime, known=lambda name: name in fleet.members)
        self._start_deadline_s = start_deadline_s
        self._started = False
        self._stopping = False
        self._tasks: TaskGroup | None = None
        self._supervised: dict[str, _Supervised] = {}

    def ready(self) -> bool:
        """True from the moment every upstream has given its tools or failed once, or the start deadline has passed,
        until the end of ``running``."""
        return self.started() and not self._stopping

    def started(self) -> bool:
        """Like ``ready``, but it stays true while what runs comes to its end."""
        if not self._started:
            members = self._fleet.members.values()
            self._started = bool(members) and all(map(self._settled, members))
        return self._started

    async def wait_ready(self, poll_s: float = 0.02) -> None:
        while not self.ready():  # noqa: ASYNC110  # the status of an upstream is read, it sends no event
            await anyio.sleep(poll_s)

    def missing(self, names: Collection[str]) -> dict[str, str]:
        """Of *names* those that are not connected or have not given their tools, and why as far as it is known."""
        members = [self._fleet.members[name] for name in names]
        return {
            member.name: member.upstream.status.error or "it has not given its tools yet"
            for member in members
            if member.upstream.status.phase != "ready" or member.name not in self._refresher.refreshed
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        def enough() -> None:
            self._started = True

        wait_s = self._start_deadline_s if self._fleet.members else 0
        deadline = asyncio.get_running_loop().call_later(wait_s, enough)
        async with anyio.create_task_group() as holder:
            # In a task of its own: ending the supervisors early must not end who holds this context too.
            tasks: TaskGroup = await holder.start(self._hold)
            self._tasks = tasks
            for member in self._fleet.members.values():
                self._start(tasks, member)
            try:
                yield
            finally:
                self._stopping = True
                deadline.cancel()
                await self._refresher.aclose()
                tasks.cancel_scope.cancel()

    def follow(self, drain_s: float) -> None:
        """The fleet has other members: those that are new are supervised from now on; those that are gone take no more
        calls, are ended *drain_s* later at the latest, and are waited for. Returns at once.

        One that takes the place of another of its name begins when that has ended: two servers could want one port or
        one file.
        """
        if self._tasks is None or self._stopping:
            return
        members = self._fleet.members
        for name, supervised in list(self._supervised.items()):
            if members.get(name) is not supervised.member and not supervised.retiring:
                supervised.retiring = True
                self._tasks.start_soon(self._retire, supervised, drain_s, name=f"retiring {name}")
        for name, member in members.items():
            before = self._supervised.get(name)
            if before is None or before.member is not member:
                self._start(self._tasks, member, before)

    def stop_after(self, drain_s: float) -> None:
        """No more requests from now on; the upstreams are ended after *drain_s*, or by the end of ``running``.

        Ending a stubborn child takes seconds of its own, so it does not wait for the last response.
        """
        self._stopping = True
        if self._tasks is not None:
            asyncio.get_running_loop().call_later(drain_s, self._tasks.cancel_scope.cancel)

    @staticmethod
    async def _hold(*, task_status: TaskStatus[TaskGroup]) -> None:
        async with anyio.create_task_group() as tasks:
            task_status.started(tasks)
            await anyio.sleep_forever()

    def _start(self, tasks: TaskGroup, member: Member, before: _Supervised | None = None) -> None:
        supervised = self._supervised[member.name] = _Supervised(member)
        tasks.start_soon(self._supervise, supervised, before, name=f"upstream {member.name}")

    async def _supervise(self, supervised: _Supervised, before: _Supervised | None) -> None:
        try:
            with supervised.scope:
                if before is not None:
                    await before.ended.wait()
                await supervised.member.supervise(self._refresher.request)
        finally:
            supervised.ended.set()

    async def _retire(self, supervised: _Supervised, drain_s: float) -> None:
        await supervised.member.retire(drain_s)
        supervised.scope.cancel()
        await supervised.ended.wait()
        if self._supervised.get(supervised.member.name) is supervised:
            del self._supervised[supervised.member.name]

    def _settled(self, member: Member) -> bool:
        return member.name in self._refresher.refreshed or member.upstream.status.phase == "down"
