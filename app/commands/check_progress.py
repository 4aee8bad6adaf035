"""The lines of ``wicketgate check`` while upstreams connect: each upstream as it comes, with its own words below.

They go to stderr. What an upstream says is shown once, however often it is started again (OPS-105, OPS-107).
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

import click
from rich.text import Text

from app.commands.console import console
from app.commands.output import TerminalFormatter, printable
from wicketgate.gateway.upstream_reports import UpstreamReport

_STILL = "still starting"

STATES = {"ready": "green", "down": "red", "connecting": "yellow", "waiting": "yellow"}
"""The state of an upstream, and its colour."""


class Progress(logging.Handler):
    """Takes the reports of upstreams and the warnings of the gate. Use it on one event loop."""

    def __init__(self, upstreams: Sequence[str]) -> None:
        super().__init__()
        self.setFormatter(TerminalFormatter())
        self.reports: dict[str, UpstreamReport] = {}
        self._upstreams = sorted(upstreams, key=len, reverse=True)  # of two names that fit, the longer one
        self._held: dict[str, list[str]] = {name: [] for name in upstreams}
        self._said: set[str] = set()
        self._reported = asyncio.Event()
        self._console = console(stderr=True)

    def report(self, report: UpstreamReport) -> None:
        """Writes a line for the upstream, and what it has said so far below."""
        self.reports[report.name] = report
        error = f": {report.error}" if report.error else ""
        count = f", {report.tools} {'tool' if report.tools == 1 else 'tools'}" if report.phase == "ready" else ""
        self._console.print(
            Text(f"{report.name}: "),
            Text(report.phase, STATES[report.phase]),
            Text(printable(f"{count}, {report.seconds:.1f} s{error}")),
            sep="",
        )
        # Why it is down stands in its line already.
        self._said.add(f"{report.name}: {report.error}")
        for line in self._held.pop(report.name, ()):
            self._say_below(line)
        self._reported.set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and _STILL not in record.getMessage():
            return
        line = self.format(record)
        name = next((name for name in self._upstreams if line.startswith((f"{name}: ", f"{name} "))), None)
        if name is None or record.levelno < logging.WARNING:
            self._say(line)
        elif name in self._held:
            self._held[name].append(line)
        else:
            self._say_below(line)

    async def all_reported(self, upstreams: Collection[str], bound_s: float) -> None:
        """Waits until each of *upstreams* was reported, for *bound_s* at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(bound_s):
                while not self.reports.keys() >= set(upstreams):
                    self._reported.clear()
                    await self._reported.wait()

    def end(self) -> None:
        """Writes what was held for upstreams that were never reported."""
        for lines in self._held.values():
            for line in lines:
                self._say_below(line)

    def _say_below(self, line: str) -> None:
        self._say(line, "    ")

    def _say(self, line: str, indent: str = "") -> None:
        if line not in self._said:
            self._said.add(line)
            click.echo("\n".join(indent + part for part in line.split("\n")), err=True)


@contextmanager
def progress(upstreams: Sequence[str]) -> Iterator[Progress]:
    """Shows the warnings of the gate as a Progress does, meanwhile."""
    log, starting = logging.getLogger("wicketgate"), logging.getLogger("wicketgate.upstream")
    lines = Progress(upstreams)
    before = log.propagate, starting.level
    log.addHandler(lines)
    log.propagate = False
    starting.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.propagate, level = before
        starting.setLevel(level)
        log.removeHandler(lines)
        lines.end()
