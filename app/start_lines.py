"""The start and the stop of the service as people see them in a terminal, beside the lines of the log (OPS-97, OPS-98).

All of it goes through the log, so that it stands in order with the lines there.
"""

import asyncio
from collections.abc import Callable

from app.logs import Log
from app.printable import count, printable
from wicketgate.gate import VERSION, Gate

_STILL_CONNECTING_S = 2.0
_STILL_RUNNING_S = 0.5
_ENDING_S = 5.0


def say_start(log: Log, gate: Gate) -> Callable[[], None]:
    """Logs that the upstreams of *gate* are being connected, and later which ones are still missing. Returns a function
    that cancels the second line."""
    connecting = f"connecting {count(len(gate.fleet.members), 'upstream')} ..."
    log.say(f"Wicketgate {VERSION}: {connecting if gate.fleet.members else 'no upstreams are configured'}")

    def say_who_is_missing() -> None:
        statuses = gate.fleet.statuses().items()
        missing = [printable(name) for name, status in statuses if status.phase == "connecting"]
        if missing and gate.drain.phase != "draining":
            bound_s = gate.settings.server.start_deadline_s
            log.say(f"Still connecting: {', '.join(missing)} (the start waits up to {bound_s:g} s)")

    return asyncio.get_running_loop().call_later(_STILL_CONNECTING_S, say_who_is_missing).cancel


def say_stop(log: Log, gate: Gate) -> Callable[[], None]:
    """Says when the stop of *gate* begins, and what it waits for if that takes longer. Returns a function to be called
    when all has ended."""
    begun = False
    later: asyncio.TimerHandle | None = None
    said: set[str] = set()

    def begin() -> None:
        nonlocal begun
        if begun:
            return
        begun = True
        # Over the ^C that the terminal shows.
        log.say("\rStopping ...")
        look_later()

    def look_later() -> None:
        nonlocal later
        later = asyncio.get_running_loop().call_later(_STILL_RUNNING_S, say_what_runs)

    def say(what: str, line: str) -> None:
        if what not in said:
            said.add(what)
            log.say(f"{line}; Ctrl-C again ends at once")

    def say_what_runs() -> None:
        streams, requests = gate.drain.running()
        if streams or requests:
            running = ((streams, "stream"), (requests, "request"))
            runs = " and ".join(count(number, noun) for number, noun in running if number)
            say("runs", f"waiting up to {gate.settings.server.drain_s:g} s for {runs}")
        elif servers := gate.lifecycle.supervised():
            say("servers", f"ending {count(servers, 'server')}, up to {_ENDING_S:g} s")
        look_later()

    def end() -> None:
        if later is not None:
            later.cancel()
        if begun:
            log.say("Stopped")

    gate.drain.follow(begin)
    return end
