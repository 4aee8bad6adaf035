"""How the service comes to its end: no new streams, the running ones go on for a while, then end properly (E90)."""

import asyncio
from collections.abc import Callable

from wicketgate.engine.limits import StreamLimit
from wicketgate.gateway.lifecycle import Lifecycle


class Drain:
    """Upstreams and streams, stopped together."""

    def __init__(self, lifecycle: Lifecycle, streams: StreamLimit, at_begin: Callable[[], None] = lambda: None) -> None:
        self._lifecycle = lifecycle
        self._streams = streams
        self._at_begin = at_begin

    def begin(self, drain_s: float) -> None:
        """From now on nothing new is taken. What still runs after *drain_s* ends with ``done`` (cancelled).

        May be said again with less time.
        """
        self._at_begin()
        self._lifecycle.stop_after(drain_s)
        asyncio.get_running_loop().call_later(drain_s, self._streams.end_all)

    async def wait(self) -> None:
        """Until the last stream is over, detached runs among them."""
        await self._streams.wait_empty()
