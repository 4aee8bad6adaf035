"""When a server that lets every call time out is given up: it runs, but answers nothing any more (W-SESSIONS).

A stopped or deadlocked server, or one that closed its output, does not end, so no other sign of it would come.
"""

import asyncio
from collections.abc import Awaitable, Callable

from wicketgate.upstreams.mcp_client.failure import Gone, Malformed, Refused

UNANSWERED = 3
PROBE_S = 10.0


class Silence:
    """Of one session. Calls are told to it; *probe* asks the server for something that costs it nothing."""

    def __init__(self, probe: Callable[[], Awaitable[object]], probe_s: float = PROBE_S) -> None:
        self._probe = probe
        self._probe_s = probe_s
        self._unanswered = 0
        self._doubt = asyncio.Event()
        self.in_flight = 0

    def heard(self) -> None:
        self._unanswered = 0

    def unanswered(self) -> None:
        """A call has waited for as long as it could."""
        self._unanswered += 1
        if self._unanswered >= UNANSWERED:
            self._doubt.set()

    async def lasting(self) -> None:
        """Return when several calls in a row got no answer, the server gives none to a probe either, and nobody waits
        for one: a server with one thread may be busy with a call that has time."""
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
            await asyncio.sleep(self._probe_s)  # found out elsewhere
        except (Refused, Malformed):
            pass
        self.heard()
        return True
