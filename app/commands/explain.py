"""``wicketgate explain``: why a tool is visible, hidden, or waits for approval. Calls no tool."""

import json

import click

from app.commands.check import connected, without_audit
from app.commands.output import printable
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.gateway.explain import explain
from wicketgate.ports import CallContext


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
        )
    if as_json:
        who = {"actor": identity.actor, "key": identity.key_id, "roles": list(identity.roles)}
        found = {"tool": tool, **who, "usable": usable, "reasons": [line.strip() for line in lines]}
        click.echo(json.dumps(found, indent=2))
    else:
        for line in lines:
            click.echo(printable(line))
    return 0 if usable else 1
