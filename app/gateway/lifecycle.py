"""From start to stop: upstreams are supervised, the catalog follows them, and readiness is decided (DESIGN §2 "Paths").

Start-up never waits for a slow server: each has its turn or misses it, and joins later by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from app.gateway.ports import Upstream
from app.gateway.refresher import CatalogRefresher
from app.gateway.runtime import ProxyRuntime


class Lifecycle:
    """Enter ``running`` once."""

    def __init__(self, upstreams: Sequence[Upstream], runtime: ProxyRuntime, *, start_deadline_s: float) -> None:
        self._upstreams = upstreams
        self._refresher = CatalogRefresher(runtime)
        self._start_deadline_s = start_deadline_s
        self._started = False
        self._stopping = False
        self._supervisors: anyio.CancelScope | None = None

    def ready(self) -> bool:
        """True from the moment every upstream has given its tools or failed once, or the start deadline has passed,
        until the end of ``running``."""
        return self.started() and not self._stopping

    def started(self) -> bool:
        """Like ``ready``, but it stays true while what runs comes to its end."""
        if not self._started:
            self._started = bool(self._upstreams) and all(map(self._settled, self._upstreams))
        return self._started

    async def wait_ready(self, poll_s: float = 0.02) -> None:
        while not self.ready():  # noqa: ASYNC110  # the status of an upstream is read, it sends no event
            await anyio.sleep(poll_s)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        def enough() -> None:
            self._started = True

        wait_s = self._start_deadline_s if self._upstreams else 0
        deadline = asyncio.get_running_loop().call_later(wait_s, enough)
        async with anyio.create_task_group() as tasks:
            self._supervisors = tasks.cancel_scope
            for upstream in self._upstreams:
                tasks.start_soon(upstream.supervise, self._refresher.request, name=f"upstream {upstream.name}")
            try:
                yield
            finally:
                self._stopping = True
                deadline.cancel()
                await self._refresher.aclose()
                tasks.cancel_scope.cancel()

    def stop_after(self, drain_s: float) -> None:
        """No more requests from now on; the upstreams are ended after *drain_s*, or by the end of ``running``.

        Ending a stubborn child takes seconds of its own, so it does not wait for the last response.
        """
        self._stopping = True
        if self._supervisors is not None:
            asyncio.get_running_loop().call_later(drain_s, self._supervisors.cancel)

    def _settled(self, upstream: Upstream) -> bool:
        return upstream.name in self._refresher.refreshed or upstream.status.phase == "down"
