"""Ends a gate in order: no new streams, the running ones go on for a while, then each ends properly (E90)."""

import asyncio
from collections.abc import Callable

from wicketgate.engine.limits import StreamLimit
from wicketgate.gateway.lifecycle import Lifecycle


class Drain:
    """Stops upstreams and streams together."""

    def __init__(self, lifecycle: Lifecycle, streams: StreamLimit) -> None:
        self._lifecycle = lifecycle
        self._streams = streams
        self._followers: list[Callable[[], None]] = []

    def follow(self, step: Callable[[], None]) -> None:
        """Calls *step* when the drain begins."""
        self._followers.append(step)

    def begin(self, drain_s: float) -> None:
        """Takes nothing new from now on. Streams that still run after *drain_s* end with ``done`` (cancelled).

        A second call may shorten the time.
        """
        for step in self._followers:
            step()
        self._lifecycle.stop_after(drain_s)
        asyncio.get_running_loop().call_later(drain_s, self._streams.end_all)

    async def wait(self) -> None:
        """Returns when the last stream is over, detached runs among them."""
        await self._streams.wait_empty()
