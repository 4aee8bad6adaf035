"""``wicketgate check`` and ``wicketgate explain``: connect, call no tool, and report upstreams and tools."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import click

from app.commands.output import printable, screened_lines
from app.process import search_python_folders
from wicketgate.access.identity import Identity
from wicketgate.catalog.catalog import Catalog
from wicketgate.config.plugins import plugin_lines
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate
from wicketgate.gateway.explain import explain
from wicketgate.ports import CallContext, UpstreamStatus


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Gate]:
    """Opens a gate and waits until each upstream has connected or failed, as long as its own timeout allows."""
    search_python_folders(settings)
    async with Gate(settings) as gate:
        await gate.wait_settled()
        yield gate


def without_audit(settings: Settings) -> Settings:
    """Leaves the audit sinks out, for a gate that calls no tool.

    Making a gate writes to each sink as a test, and a user who only looks at tools may lack the right to write.
    """
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update={"auditing": {}})})


async def check_all(settings: Settings) -> int:
    """Connects, prints upstreams, tools and plugins, and returns the exit code.

    Raises ConfigError for settings that the model, the plugins or the audit sinks cannot work with.
    """
    async with connected(settings) as gate:
        runtime = gate.runtime
        await runtime.declared_offers()  # read now, so that what is held of them is known
        catalog, statuses, screened = runtime.catalog(), gate.fleet.statuses(), runtime.screened()
        troubles = runtime.troubles()
        for line in (
            *_upstream_lines(catalog, statuses, troubles),
            *(f"{upstream.name}: disabled" for upstream in settings.upstreams if not upstream.enabled),
            *(printable(f"left out: {each.server}[{each.index}]: {each.reason}") for each in catalog.skipped),
            *(printable(f"not browsed: {tool}: {reason}") for tool, reason in catalog.quarantine.items()),
            *(f"left aside: {tool}: a subscription, which no tool call can carry" for tool in catalog.subscriptions),
            *screened_lines(screened),
            *(printable(f"no tool matches: {pattern}") for pattern in runtime.unmatched()),
            *_key_lines(settings, gate),
            *plugin_lines(settings.plugins),
            *(f"warning: {note}" for note in gate.key_notes()),
        ):
            click.echo(line)
        held = sum(len(each.held) for each in screened.values())
        down = [name for name, status in statuses.items() if status.phase != "ready"]
        click.echo(_summary(catalog, connected=len(statuses) - len(down), upstreams=len(statuses), held=held))
        refused = [name for name in troubles if name not in down]
        if refused:
            click.echo(f"not in use: the tools that {', '.join(refused)} lists now")
    return 1 if down or catalog.skipped or catalog.quarantine or held or troubles else 0


def _summary(catalog: Catalog, *, connected: int, upstreams: int, held: int) -> str:
    counts = [
        f"{connected} of {upstreams} upstreams connected",
        f"{len(catalog.tools)} tools",
        f"{len(catalog.skipped) + held} left out",
        *([f"{len(catalog.quarantine)} not browsed"] if catalog.quarantine else []),
        *([f"{len(catalog.subscriptions)} left aside"] if catalog.subscriptions else []),
    ]
    return ", ".join(counts)


async def explain_tool(settings: Settings, tool: str, identity: Identity, query: str) -> int:
    """Prints why *tool* is visible to *identity*, hidden, or waits for approval. Returns the exit code."""
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
        )
        for line in lines:
            click.echo(printable(line))
    return 0 if usable else 1


def _key_lines(settings: Settings, gate: Gate) -> Iterator[str]:
    """Yields the number of tools that exist for each key."""
    tools = gate.runtime.catalog().tools
    for key in settings.auth.keys:
        visible = gate.runtime.visible(CallContext(Identity(key.actor, key.permissions, key.id), "-", "-"))
        shown = len(tools) if visible is None else sum(map(visible, tools))
        yield f"key: {key.id} ({key.actor}): {shown} of {len(tools)} tools"


def _upstream_lines(
    catalog: Catalog, statuses: Mapping[str, UpstreamStatus], troubles: Mapping[str, str]
) -> Iterator[str]:
    """Yields each upstream with its failure, if any, and its tools below."""
    for name, status in statuses.items():
        trouble = status.report or troubles.get(name, "")
        if not trouble and status.connections > 1:
            trouble = f"connected {status.connections} times; before: {status.last_error}"
        yield f"{name}: {status.phase}{f' ({trouble})' if trouble else ''}"
        yield from (f"  {item.id}" for item in catalog.tools.values() if item.server == name)
