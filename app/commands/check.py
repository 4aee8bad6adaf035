"""``wicketgate check``: connect, call no tool, and report upstreams, tools and models (OPS-105 to OPS-110)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click

from app.commands.check_findings import Findings, find, show
from app.commands.check_model import ModelTrial, try_models
from app.commands.check_progress import Progress, progress
from app.process import search_python_folders
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstream_logins import login_client
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.gate import Gate
from wicketgate.gateway.upstream_reports import UpstreamReport
from wicketgate.login.failures import LoginFailure

_REPORTED_S = 10.0

Listener = Callable[[UpstreamReport], None]


@asynccontextmanager
async def connected(settings: Settings, listener: Listener | None = None) -> AsyncIterator[Gate]:
    """Opens a gate and waits until each upstream has connected or failed, as long as its own timeout allows."""
    search_python_folders(settings)
    async with Gate(settings) as gate:
        if listener is not None:
            gate.on_upstream(listener)
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


async def _look(settings: Settings, lines: Progress) -> Findings:
    async with connected(settings, lines.report) as gate:
        await lines.all_reported(gate.fleet.statuses(), _REPORTED_S)
        await gate.runtime.declared_offers()  # read now, so that what is held of them is known
        await gate.issuers.reach()
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
