"""``wicketgate check``: everything that the configuration names, tried, and told line by line (DESIGN §2)."""

from collections.abc import Iterator, Mapping
from time import time

import click

from app.commands.screened import screened_lines
from app.main import create_runtime
from wicketgate.catalog.catalog import Catalog
from wicketgate.config.arrangement import outgoing_rules
from wicketgate.config.audit_loader import make_auditor
from wicketgate.config.plugin_loader import plugin_lines
from wicketgate.config.providers import make_provider
from wicketgate.config.settings import Settings
from wicketgate.gateway.catalog_keeper import tools_left_out
from wicketgate.ports import UpstreamStatus


async def check_all(settings: Settings) -> int:
    """Connect, wait until every upstream has settled, print what there is; the exit code."""
    make_provider(settings.model, outgoing_rules(settings))  # refuses what it cannot work with
    if (auditor := make_auditor(settings.plugins, time)) is not None:  # the same
        await auditor.aclose()
    runtime, fleet, lifecycle = create_runtime(settings)
    async with lifecycle.running():
        await lifecycle.wait_ready()
        catalog, statuses, screened = runtime.catalog(), fleet.statuses(), runtime.screened()
        troubles, left_out = runtime.troubles(), tools_left_out(catalog)
        for line in (
            *_upstream_lines(catalog, statuses, troubles),
            *(f"{upstream.name}: disabled" for upstream in settings.upstreams if not upstream.enabled),
            *(f"left out: {tool}: {reason}" for tool, reason in left_out.items()),
            *(f"left aside: {tool}: a subscription, which no tool call can carry" for tool in catalog.subscriptions),
            *screened_lines(screened),
            *plugin_lines(settings.plugins),
        ):
            click.echo(line)
        held = sum(len(each.held) for each in screened.values())
        down = [name for name, status in statuses.items() if status.phase != "ready"]
        click.echo(
            f"{len(statuses) - len(down)} of {len(statuses)} upstreams connected, {len(catalog.items)} tools, "
            f"{len(left_out) + held} left out"
        )
    return 1 if down or left_out or held or troubles else 0


def _upstream_lines(
    catalog: Catalog, statuses: Mapping[str, UpstreamStatus], troubles: Mapping[str, str]
) -> Iterator[str]:
    """Each upstream with what troubles it, and its tools below."""
    for name, status in statuses.items():
        trouble = status.error or troubles.get(name, "")
        if not trouble and status.connections > 1:
            trouble = f"connected {status.connections} times; before: {status.last_error}"
        yield f"{name}: {status.phase}{f' ({trouble})' if trouble else ''}"
        yield from (f"  {item.id}" for _, item in sorted(catalog.items.items()) if item.server == name)
