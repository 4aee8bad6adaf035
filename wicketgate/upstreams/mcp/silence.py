"""Silence: does a server that runs answer nothing any more? (UP-6, UP-46, UP-47)

A stopped or deadlocked server, or one that closed its output, does not end, so nothing else would show it. Calls that
go unanswered raise the doubt, our own pings settle it. Whatever the server says on the connection ends the doubt.
"""

import asyncio
from collections.abc import Awaitable, Callable

from wicketgate.upstreams.mcp.call import Gone, Malformed, Refused

UNANSWERED = 3
"""Calls in a row without a sign of the server that bring a ping."""
PINGS = 2
"""Pings without an answer after which the server is given up."""
PING_S = 5.0


class Silence:
    """The silence of one connection. *ping* asks the server for something that costs it nothing; *heard* is the number
    of things it has said so far.

    A server with one thread says nothing while a call keeps it busy. So a call that began before those without an
    answer, and whose caller still waits, speaks for it; one that began later does not.
    """

    def __init__(self, ping: Callable[[], Awaitable[object]], heard: Callable[[], int], ping_s: float = PING_S) -> None:
        self._ping = ping
        self._heard = heard
        self._ping_s = ping_s
        self._begun = 0
        # By number, in the order of their beginning: what had been heard by then.
        self._in_flight: dict[int, int] = {}
        self._row = 0
        self._row_heard = -1
        self._first_of_row = 0
        self._doubt = asyncio.Event()

    def begin(self) -> int:
        """The number of a call that is sent now; give it back with ``end`` or ``unanswered``."""
        self._begun += 1
        self._in_flight[self._begun] = self._heard()
        return self._begun

    def end(self, call: int) -> None:
        """The call has its answer, or its failure."""
        del self._in_flight[call]

    def unanswered(self, call: int) -> None:
        """The call was given up, by its deadline or by its caller. It counts if nothing was heard until then."""
        heard = self._in_flight.pop(call)
        if heard != self._heard():
            return
        if heard != self._row_heard:
            self._row, self._row_heard, self._first_of_row = 0, heard, call
        self._row += 1
        self._first_of_row = min(self._first_of_row, call)
        if self._row >= UNANSWERED:
            self._doubt.set()

    async def lasting(self) -> None:
        """Return when the server is to be given up."""
        while True:
            await self._doubt.wait()
            without_answer = 0
            while self._silent():
                if await self._answers():
                    break
                without_answer += 1
                first = next(iter(self._in_flight), self._first_of_row)  # if older than the row, it may keep it busy
                if self._silent() and without_answer >= PINGS and first >= self._first_of_row:
                    return
            self._doubt.clear()

    def _silent(self) -> bool:
        return self._row >= UNANSWERED and self._row_heard == self._heard()

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(self._ping_s):
                await self._ping()
        except TimeoutError:
            return False
        except Gone:
            await asyncio.sleep(self._ping_s)  # the connection's own signs show it
        except (Refused, Malformed):
            pass
        self._row, self._row_heard = 0, -1
        return True
