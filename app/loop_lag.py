"""Measures how late the event loop runs what is due: the time in which it did something else (OPS-38).

A loop that is late answers every client late, and a load balancer that asks for ``/healthz`` may take the service for
dead. The histogram in ``/metrics`` shows it; a long delay is logged too.
"""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("wicketgate.service")

STEP_S = 0.1
_WORTH_A_LINE_S = 1.0


async def watch_loop(observe: Callable[[float], None]) -> None:
    """Gives *observe* the seconds by which each step of a tenth of a second came late. Runs until it is cancelled."""
    loop = asyncio.get_running_loop()
    due = loop.time() + STEP_S
    while True:
        await asyncio.sleep(max(0.0, due - loop.time()))
        late_s = max(0.0, loop.time() - due)
        observe(late_s)
        if late_s >= _WORTH_A_LINE_S:
            log.warning("the event loop was busy for %.1f s: nothing else was served meanwhile", late_s)
        due = loop.time() + STEP_S
