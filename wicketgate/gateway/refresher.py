"""When the catalog is refreshed: an upstream connected, or says that its tools changed (DESIGN §1 "State").

One refresh at a time for each upstream, and one more if it changed meanwhile; upstreams never wait for one another.
One that did not give its tools is asked again after a while.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from wicketgate.errors import CatalogError
from wicketgate.gateway.runtime import ProxyRuntime

log = logging.getLogger("wicketgate.refresher")

_MAX_BRAKE_S = 5.0


class CatalogRefresher:
    """*refreshed* holds the upstreams that have had their turn at least once, whatever came of it. One that is no
    longer *known* is not asked."""

    def __init__(
        self,
        runtime: ProxyRuntime,
        *,
        known: Callable[[str], bool] = lambda name: True,
        retry_s: float = 5.0,
        brake_s: float = 0.1,
    ) -> None:
        self._runtime = runtime
        self._known = known
        self._retry_s = retry_s
        self._brake_s = brake_s
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self.refreshed: set[str] = set()

    def request(self, upstream: str) -> None:
        """Called on the event loop; returns at once."""
        if retry := self._retries.pop(upstream, None):
            retry.cancel()
        if not self._known(upstream):
            return
        if upstream in self._running:
            self._again.add(upstream)
        else:
            self._running[upstream] = asyncio.create_task(self._until_quiet(upstream))

    async def aclose(self) -> None:
        for retry in self._retries.values():
            retry.cancel()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _until_quiet(self, upstream: str) -> Coroutine[None, None, None]:
        async def refresh() -> None:
            try:
                again, pause_s = True, self._brake_s
                while again:
                    self._again.discard(upstream)
                    await self._refresh(upstream)
                    self.refreshed.add(upstream)
                    again = upstream in self._again
                    if again:  # one that never stops announcing must not keep us building
                        await asyncio.sleep(pause_s)
                        pause_s = min(pause_s * 2, _MAX_BRAKE_S)
            finally:
                del self._running[upstream]

        return refresh()

    async def _refresh(self, upstream: str) -> None:
        try:
            report = await self._runtime.refresh_catalog([upstream])
        except CatalogError as error:
            # The catalog in force stays in force, whole (S0 §1.5).
            log.error("catalog not refreshed after %s changed: %s", upstream, error)
        except Exception:
            log.exception("catalog not refreshed after %s changed", upstream)
        else:
            if upstream not in report.stale:
                return
        if not self._known(upstream):
            return
        loop = asyncio.get_running_loop()
        self._retries[upstream] = loop.call_later(self._retry_s, self.request, upstream)
