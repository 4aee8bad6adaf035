"""Two measures of a server: how much it may say unasked, and how long it may stay silent (W-ISOLATION, W-SESSIONS)."""

import asyncio
from collections.abc import Awaitable, Callable

from wicketgate.upstreams.mcp.call import Gone, Malformed, Refused

UNANSWERED = 3
PROBE_S = 10.0


class Pace:
    """Allows *burst* at once, and *rate* a second after that. *now* is a clock in seconds."""

    def __init__(self, rate: float, burst: float, now: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._left = burst
        self._at = now()

    def take(self, weight: float = 1) -> float:
        """Seconds to wait before the next; 0 while there is something left."""
        now = self._now()
        self._left = min(self._left + (now - self._at) * self._rate, self._burst) - weight
        self._at = now
        return max(0.0, -self._left / self._rate)


class Silence:
    """Gives up a server that runs but answers nothing any more, on one connection.

    A stopped or deadlocked server, or one that closed its output, does not end, so nothing else would show it. *probe*
    asks the server for something that costs it nothing.
    """

    def __init__(self, probe: Callable[[], Awaitable[object]], probe_s: float = PROBE_S) -> None:
        self._probe = probe
        self._probe_s = probe_s
        self._unanswered = 0
        self._doubt = asyncio.Event()
        self.in_flight = 0

    def heard(self) -> None:
        self._unanswered = 0

    def unanswered(self) -> None:
        """A call was given up before it had an answer."""
        self._unanswered += 1
        if self._unanswered >= UNANSWERED:
            self._doubt.set()

    async def lasting(self) -> None:
        """Return when several calls in a row got no answer, the server answers no probe either, and no call is left
        that has time: a server with one thread may be busy with that one."""
        while True:
            await self._doubt.wait()
            while self._unanswered >= UNANSWERED:
                if not await self._answers() and not self.in_flight:
                    return
            self._doubt.clear()

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(self._probe_s):
                await self._probe()
        except TimeoutError:
            return False
        except Gone:
            await asyncio.sleep(self._probe_s)  # the connection's own signs show it
        except (Refused, Malformed):
            pass
        self.heard()
        return True
