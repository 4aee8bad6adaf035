"""Runs whose leases have lapsed: which of them are to be taken over, and when to look for them again (CHAT-124).

A lease that has lapsed does not mean that its process is gone: after an outage of the store all of them have, until
their holders renew them. So a run is taken over only when it was seen twice, with time to renew between.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress


class LapsedRuns:
    """*patience_s* is the time between the two looks at a run, *look_s* that between looks while there is none."""

    def __init__(self, patience_s: float, look_s: float) -> None:
        self._patience_s = patience_s
        self._look_s = look_s
        self._since: dict[str, float] = {}
        self._shown: dict[str, int] = {}
        self._noticed = asyncio.Event()

    def due(self, names: Mapping[str, bool], now: float) -> list[str]:
        """Those of *names*, which are all that have lapsed, that may be taken over now: one that was released, for
        which they have true, at once."""
        self._noticed.clear()
        self._since = {name: self._since.get(name, now) for name in names}
        self._shown = {name: position for name, position in self._shown.items() if name in self._since}
        return [name for name, since in self._since.items() if names[name] or now - since >= self._patience_s]

    def seen(self, name: str, shown: int) -> None:
        """A reader has found that the run has lapsed, and has been *shown* its event at this position."""
        if shown:
            self._shown[name] = shown
        if name not in self._since:
            self._noticed.set()

    def shown(self, name: str) -> int:
        """The last position of the run that a reader is known to have seen; 0 if none is."""
        return self._shown.get(name, 0)

    def forget(self) -> None:
        """Begin anew: what was seen does not count."""
        self._since.clear()
        self._noticed.clear()

    async def wait(self, now: float) -> None:
        """Return when it is time for the next look."""
        next_due = min(self._since.values(), default=now + self._look_s - self._patience_s) + self._patience_s
        with suppress(TimeoutError):
            async with asyncio.timeout(max(next_due - now, self._patience_s / 4)):
                await self._noticed.wait()
