"""The start and the stop of the service as people see them in a terminal: a line for each upstream as it connects, one
table, and the stop in one line (OPS-97, OPS-98).

All of it goes through the log, so that it stands in order with the lines there.
"""

import asyncio
import io
import logging
import shutil
from collections.abc import Callable

import click

from app.logs import Log
from app.printable import printable
from wicketgate.gate import VERSION, Gate
from wicketgate.gateway.upstream_reports import UpstreamReport

_STILL_CONNECTING_S = 2.0
_STILL_RUNNING_S = 0.5
_ENDING_S = 5.0
_STOPPING = "Stopping ..."
_STYLES = {"ready": "green", "down": "red", "connecting": "yellow", "waiting": "yellow"}
# What the lines here say in other words. Anything else that an upstream logs meanwhile stays.
_SAID_HERE = frozenset(
    {
        ("wicketgate.upstream", logging.INFO, "%s: connected, protocol %s"),
        ("wicketgate.upstream", logging.INFO, "%s: document read, %d operations"),
        ("wicketgate.upstream", logging.WARNING, "%s: %s"),
        ("wicketgate.catalog", logging.INFO, "catalog %s: %d tools of %d upstreams"),
    }
)


class StartLines:
    """Says how the upstreams of *gate* connect. Make it before the gate is entered, and on its loop."""

    def __init__(self, log: Log, gate: Gate) -> None:
        self._log = log
        self._gate = gate
        self._reports: dict[str, UpstreamReport] = {}
        self._told: set[str] = set()
        self._over = False
        names = list(map(printable, gate.fleet.members))
        self._name_width = max(map(len, names), default=0)
        log.leave_out(self._is_said_here)
        gate.on_upstream(self._report)
        if names:
            upstreams = "1 upstream" if len(names) == 1 else f"{len(names)} upstreams"
            log.say(f"Wicketgate {VERSION}: connecting {upstreams} ...")
            self._later = asyncio.get_running_loop().call_later(_STILL_CONNECTING_S, self._say_who_is_missing)
        else:
            log.say(f"Wicketgate {VERSION}: no upstreams are configured")

    def end(self) -> str:
        """Returns the table of all upstreams; empty if there are none. No line is left out of the log from now on, but
        of upstreams that are still awaited."""
        self._over = True
        names = list(self._gate.fleet.members)
        if not names:
            return ""
        self._later.cancel()
        from rich.console import Console

        from app.tables import table

        rows = [self._row(name) for name in names]
        text = io.StringIO()
        width = shutil.get_terminal_size().columns
        plain = not self._log.coloured
        drawn = Console(
            file=text, force_terminal=not plain, no_color=plain, highlight=False, markup=False, emoji=False, width=width
        )
        drawn.print(table(("upstream", "state", "tools", "seconds"), rows))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")

    def _row(self, name: str) -> tuple[str, str, str, str]:
        report = self._reports.get(name)
        if report is None:
            return name, "connecting", "", ""
        return name, report.phase, str(report.tools), f"{report.seconds:.1f}"

    def _report(self, report: UpstreamReport) -> None:
        self._reports[report.name] = report
        if report.name in self._told or self._is_stopping():
            return  # the log says what becomes of it
        self._told.add(report.name)
        name, state = printable(report.name).ljust(self._name_width), self._styled(report.phase)
        trouble = self._log.harmless(report.error)
        if report.phase in ("down", "waiting"):
            self._log.say(f"{name}  {state}   {trouble}")
        else:
            tools = "1 tool" if report.tools == 1 else f"{report.tools} tools"
            because = f"  ({trouble})" if trouble else ""
            self._log.say(f"{name}  {state}  {tools}  {report.seconds:.1f} s{because}")

    def _say_who_is_missing(self) -> None:
        missing = [printable(name) for name in self._gate.fleet.members if name not in self._told]
        if missing and not self._is_stopping():
            bound_s = self._gate.settings.server.start_deadline_s
            self._log.say(f"Still connecting: {', '.join(missing)} (the start waits up to {bound_s:g} s)")

    def _is_stopping(self) -> bool:
        return self._gate.drain.phase == "draining"

    def _is_said_here(self, record: logging.LogRecord) -> bool:
        if (record.name, record.levelno, record.msg) not in _SAID_HERE or not record.args:
            return False
        if record.name == "wicketgate.catalog":
            return not self._over
        return isinstance(record.args, tuple) and record.args[0] not in self._told

    def _styled(self, phase: str) -> str:
        return click.style(phase, fg=_STYLES[phase]) if self._log.coloured else phase


def say_stop(log: Log, gate: Gate) -> Callable[[], None]:
    """Says when the stop of *gate* begins, and what it waits for if that takes longer. Returns a function that ends the
    line, to be called when all has ended."""
    begun = False
    later: asyncio.TimerHandle | None = None
    said: set[str] = set()

    def begin() -> None:
        nonlocal begun
        if begun:
            return
        begun = True
        # Over the ^C that the terminal shows.
        log.begin(f"\r{_STOPPING}")
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
        parts = [f"{count} {noun}{'s' * (count > 1)}" for count, noun in ((streams, "stream"), (requests, "request"))]
        if streams or requests:
            runs = " and ".join(part for part in parts if not part.startswith("0 "))
            say("runs", f"waiting up to {gate.settings.server.drain_s:g} s for {runs}")
        elif servers := gate.lifecycle.supervised():
            noun = "server" if servers == 1 else "servers"
            say("servers", f"ending {servers} {noun}, up to {_ENDING_S:g} s")
        look_later()

    def end() -> None:
        if later is not None:
            later.cancel()
        if begun:
            log.finish(" done")

    gate.drain.follow(begin)
    return end
