"""``wicketgate check`` and ``explain``: connect, call no tool, and report what there is (OPS-105 to OPS-110).

The lines of check while upstreams connect go to stderr: each upstream as it comes, with its own words below. What an
upstream says is shown once, however often it is started again.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import click
from rich.text import Text

from app.commands.check_findings import STATES, Findings, find, show
from app.commands.check_model import ModelTrial, try_models
from app.commands.output import TerminalFormatter, console, count, printable
from app.process import search_python_folders
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstream_logins import login_client
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.gate import Gate
from wicketgate.gateway.explain import explain
from wicketgate.gateway.upstream_reports import UpstreamReport
from wicketgate.login.steps import LoginFailure
from wicketgate.ports import CallContext

_REPORTED_S = 10.0

Listener = Callable[[UpstreamReport], None]


@asynccontextmanager
async def connected(settings: Settings, listener: Listener | None = None) -> AsyncIterator[Gate]:
    """Opens a gate and waits until each upstream has connected or failed, as long as its own timeout allows."""
    search_python_folders(settings)
    async with Gate(settings, waits=False, checks_ring=False) as gate:
        if listener is not None:
            gate.lifecycle.reports.listen(listener)
        await gate.wait_settled()
        yield gate


def without_audit(settings: Settings) -> Settings:
    """Leaves the audit sinks out, for a gate that calls no tool.

    Making a gate writes to each sink as a test, and a user who only looks at tools may lack the right to write.
    """
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update={"auditing": {}})})


async def check_all(settings: Settings, config: Path | None, *, model: bool, everything: bool, as_json: bool) -> int:
    """Connects, prints what was found, and returns the exit code. With *everything* no list is shortened.

    Raises ConfigError for settings that the model, the plugins or the audit sinks cannot work with.
    """
    with progress([upstream.name for upstream in settings.upstreams]) as lines:
        asking = asyncio.create_task(try_models(settings) if model else _no_trials())
        try:
            findings = await _look(settings, lines)
            findings = findings.with_models(await asking)
        finally:
            # Nothing is left to the end of the loop, which would break it off in the middle of its cleaning up.
            asking.cancel()
            await asyncio.wait([asking])
    if as_json:
        click.echo(json.dumps({"config": str(config) if config else None, **findings.as_dict()}, indent=2))
    else:
        show(findings, everything=everything)
    return 1 if findings.faults else 0


async def _look(settings: Settings, lines: "CheckProgress") -> Findings:
    async with connected(settings, lines.report) as gate:
        await lines.all_reported(gate.fleet.statuses(), _REPORTED_S)
        await gate.runtime.declared_offers()  # read now, so that what is held of them is known
        await gate.keys.issuers.reach()
        waiting = [name for name, status in gate.fleet.statuses().items() if status.phase == "waiting"]
        return await find(settings, gate, lines.reports, await _without_answer(settings, waiting))


async def _without_answer(settings: Settings, names: Sequence[str]) -> Mapping[str, str]:
    """Asks the servers that wait for a first account whether they are there at all. Returns why one is not."""
    outgoing = outgoing_rules(settings)

    async def trouble(upstream: UpstreamSettings) -> str:
        try:
            client = login_client(upstream, outgoing)
            refusal = await client.refusal()
            if refusal is not None and upstream.connects_users:
                await client.find(refusal)
        except LoginFailure as failure:
            return failure.detail
        return ""

    asked = [each for each in settings.upstreams if each.name in names and each.url]
    answers = await asyncio.gather(*map(trouble, asked))
    return {upstream.name: answer for upstream, answer in zip(asked, answers, strict=True) if answer}


async def _no_trials() -> Sequence[ModelTrial]:
    return ()


async def explain_tool(settings: Settings, tool: str, identity: Identity, query: str, *, as_json: bool) -> int:
    """Prints the reasons, for *identity*. Returns the exit code."""
    async with connected(without_audit(settings)) as gate:
        runtime = gate.runtime
        usable, lines = explain(
            runtime.catalog(),
            runtime.access,
            tool,
            identity,
            query,
            runtime.screened(),
            runtime.declared(),
            runtime.learning.words(CallContext(identity, "-", "-")),
            runtime.flow_label,
        )
    if as_json:
        who = {"actor": identity.actor, "key": identity.key_id, "roles": list(identity.roles)}
        found = {"tool": tool, **who, "usable": usable, "reasons": [line.strip() for line in lines]}
        click.echo(json.dumps(found, indent=2))
    else:
        for line in lines:
            click.echo(printable(line))
    return 0 if usable else 1


_STILL = "still starting"


class CheckProgress(logging.Handler):
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
        tools = f", {count(report.tools, 'tool')}" if report.phase == "ready" else ""
        self._console.print(
            Text(f"{report.name}: "),
            Text(report.phase, STATES[report.phase]),
            Text(printable(f"{tools}, {report.seconds:.1f} s{error}")),
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
def progress(upstreams: Sequence[str]) -> Iterator[CheckProgress]:
    """Shows the warnings of the gate until the block ends."""
    log, starting = logging.getLogger("wicketgate"), logging.getLogger("wicketgate.upstream")
    lines = CheckProgress(upstreams)
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
