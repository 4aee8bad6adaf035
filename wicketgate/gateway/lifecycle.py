"""The run of a runtime from start to stop: supervised upstreams, a catalog that follows them, readiness.

Start-up never waits for a slow server: each has its turn or misses it, and joins later by itself. Upstreams may come
and go while it runs. The catalog is refreshed when an upstream connects or says that its tools changed: one refresh at
a time for each upstream, and one more if it changed. An upstream that did not give its tools is asked again
after a while.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from wicketgate.errors import CatalogError
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.fleet.turns import Turns, cancel_in_turns
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.gateway.upstream_reports import UpstreamReports
from wicketgate.task_end import hold

log = logging.getLogger("wicketgate.refresher")

_RETRY_S = 5.0
_FIRST_BRAKE_S = 0.1
_MAX_BRAKE_S = 5.0

Begin = Callable[[Coroutine[None, None, None], str], asyncio.Task[None]]
"""Starts work as a task of this name, which ends with the run."""


class _Refresher:
    """Refreshes the catalog at the request of upstreams. *refreshed* holds those that have had their turn at least
    once, whatever came of it. One that is no longer *known* is not asked."""

    def __init__(self, runtime: ProxyRuntime, known: Callable[[str], bool]) -> None:
        self._runtime = runtime
        self._known = known
        self._begin: Begin | None = None
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._running: set[str] = set()
        self._again: set[str] = set()
        self.refreshed: set[str] = set()

    def open(self, begin: Begin) -> None:
        """Refresh from now on, in tasks that *begin* starts."""
        self._begin = begin

    def close(self) -> None:
        """Begin no further refresh."""
        self._begin = None
        for retry in self._retries.values():
            retry.cancel()

    def request(self, upstream: str) -> None:
        """Called on the event loop; returns at once."""
        if retry := self._retries.pop(upstream, None):
            retry.cancel()
        if self._begin is None or not self._known(upstream):
            return
        if upstream in self._running:
            self._again.add(upstream)
        else:
            self._running.add(upstream)
            self._begin(self._until_quiet(upstream), f"refreshing {upstream}")

    async def _until_quiet(self, upstream: str) -> None:
        try:
            again, pause_s = True, _FIRST_BRAKE_S
            while again:
                self._again.discard(upstream)
                await self._refresh(upstream)
                self.refreshed.add(upstream)
                again = upstream in self._again
                if again:  # one that never stops announcing must not keep us building
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _MAX_BRAKE_S)
        finally:
            self._running.discard(upstream)

    async def _refresh(self, upstream: str) -> None:
        try:
            report = await self._runtime.refresh_catalog([upstream])
        except CatalogError as error:
            # The catalog in force stays in force, whole (CARD-14).
            log.error("catalog not refreshed after %s changed: %s", upstream, error)
        except Exception:
            log.exception("catalog not refreshed after %s changed", upstream)
        else:
            if upstream not in report.stale:
                return
        if self._begin is not None and self._known(upstream):
            loop = asyncio.get_running_loop()
            self._retries[upstream] = loop.call_later(_RETRY_S, self.request, upstream)


@dataclass(eq=False, slots=True)
class _Supervised:
    member: Member
    task: asyncio.Task[None]
    retiring: bool = False


class Lifecycle:
    """Supervises the members of a fleet and keeps the runtime's catalog up to date. Enter ``running`` once."""

    def __init__(self, fleet: MultiplexUpstream, runtime: ProxyRuntime, *, start_deadline_s: float) -> None:
        self._fleet = fleet
        self._runtime = runtime
        self._refresher = _Refresher(runtime, lambda name: name in fleet.members)
        self._start_deadline_s = start_deadline_s
        self._started = False
        self._settling = False
        self._stopping = False
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervised: dict[str, _Supervised] = {}
        self._ending = Turns()
        self._ended: asyncio.Task[None] | None = None
        self.reports = UpstreamReports(
            lambda: fleet.members,
            runtime.catalog,
            runtime.troubles,
            lambda name: name in self._refresher.refreshed,
        )

    def ready(self) -> bool:
        """True from the moment every upstream has given its tools or failed once, or the start deadline has passed,
        until the first sign of a stop: the end of ``running``, or ``settle``."""
        return self.taking() and not self._settling

    def taking(self) -> bool:
        """Like ``ready``, but it stays true after ``settle``: requests that still come are served."""
        return self.started() and not self._stopping

    def started(self) -> bool:
        """Like ``ready``, but it stays true while what runs comes to its end."""
        if not self._started:
            members = self._fleet.members.values()
            self._started = bool(members) and all(map(self._settled, members))
        return self._started

    async def wait_ready(self, poll_s: float = 0.02) -> None:
        """Return when it is ready, after its upstreams were reported."""
        while not self.ready():  # noqa: ASYNC110  # the status of an upstream is read, it sends no event
            await asyncio.sleep(poll_s)
        self.reports.look()

    async def wait_settled(self, bound_s: float, poll_s: float = 0.02) -> None:
        """Wait until every upstream has given its tools or failed once, beyond the start deadline too, for *bound_s* at
        the longest. Those that have are reported."""
        with suppress(TimeoutError):
            async with asyncio.timeout(bound_s):
                while not all(map(self._settled, self._fleet.members.values())):  # noqa: ASYNC110  # as above
                    await asyncio.sleep(poll_s)
        self._started = True
        self.reports.look()

    def missing(self, names: Collection[str]) -> dict[str, str]:
        """Of *names* those that are not connected or have not given their tools, and why as far as it is known. One
        that waits for a first login lacks nothing that the operator could give."""
        members = [self._fleet.members[name] for name in names]
        return {
            member.name: member.upstream.status.report or "it has not given its tools yet"
            for member in members
            if member.upstream.status.phase != "waiting"
            and (member.upstream.status.phase != "ready" or member.name not in self._refresher.refreshed)
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        def enough() -> None:
            self._started = True

        wait_s = self._start_deadline_s if self._fleet.members else 0
        deadline = asyncio.get_running_loop().call_later(wait_s, enough)
        raised: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as self._group:
                self._refresher.open(self._begin)
                self._begin(self.reports.watch(), "reports on upstreams")
                for member in self._fleet.members.values():
                    self._start(member)
                try:
                    yield
                except BaseException as error:
                    raised = error
                    raise
                finally:
                    self._stopping = True
                    deadline.cancel()
                    self._refresher.close()
                    await self._runtime.aclose()
                    if self._ended is not None:
                        self._ended.cancel()
                    await self._end_upstreams()
        except BaseExceptionGroup:
            if raised is None:
                raise
        # The caller's own error, as it raised it, and not in the group of the tasks here (LIB-28).
        if raised is not None:
            raise raised

    def adopt_members(self, drain_s: float) -> None:
        """Supervise the fleet's new members from now on. Those that are gone take no more calls, are ended *drain_s*
        later at the latest, and are waited for. Returns at once.

        One that takes the place of another of its name begins when that has ended: two servers could want one port or
        one file.
        """
        if self._group is None or self._stopping:
            return
        # Those that are gone, or replaced by another of their name.
        members = self._fleet.members
        for name, supervised in list(self._supervised.items()):
            if members.get(name) is not supervised.member and not supervised.retiring:
                supervised.retiring = True
                self._begin(self._retire(supervised, drain_s), f"retiring {name}")
        # Those that are new.
        for name, member in members.items():
            before = self._supervised.get(name)
            if before is None or before.member is not member:
                self._start(member, before.task if before is not None else None)

    def supervised(self) -> int:
        """Returns the number of upstreams that have not ended."""
        return sum(not one.task.done() for one in self._supervised.values())

    def settle(self) -> None:
        """Report that the end is near, and change nothing else: load balancers send their requests elsewhere soon."""
        self._settling = True

    def stop_after(self, drain_s: float) -> None:
        """No more requests from now on; calls under way and the upstreams are ended after *drain_s*, or by the end of
        ``running``.

        Ending a stubborn child takes seconds of its own, so it does not wait for the last response.
        """
        self._stopping = True
        self._ended = asyncio.get_running_loop().create_task(self._end_after(drain_s))

    def _begin(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        assert self._group is not None
        return hold(self._group.create_task(work, name=name), self._tasks)

    async def _end_after(self, drain_s: float) -> None:
        await asyncio.sleep(drain_s)
        await self._end_upstreams()

    async def _end_upstreams(self) -> None:
        # Their callers are answered before their servers are ended: "lost" in plain words, no broken connection.
        for member in self._fleet.members.values():
            member.stop()
        self._refresher.close()
        await cancel_in_turns(list(self._tasks))

    def _start(self, member: Member, before: asyncio.Task[None] | None = None) -> None:
        task = self._begin(self._supervise(member, before), f"upstream {member.name}")
        self._supervised[member.name] = _Supervised(member, task)

    async def _supervise(self, member: Member, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self.reports.began(member)
        await member.supervise(self._refresher.request)

    async def _retire(self, supervised: _Supervised, drain_s: float) -> None:
        await supervised.member.retire(drain_s)
        with await self._ending.take():
            supervised.task.cancel()
            await asyncio.wait([supervised.task])
        if self._supervised.get(supervised.member.name) is supervised:
            del self._supervised[supervised.member.name]

    def _settled(self, member: Member) -> bool:
        return member.name in self._refresher.refreshed or member.upstream.status.phase in ("waiting", "down")
