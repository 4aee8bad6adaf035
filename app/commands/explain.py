"""``wicketgate explain``: why a tool is visible, hidden, or waits for approval, for somebody (S4 §5)."""

import click

from app.commands.shown import shown
from app.main import create_runtime
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.gateway.explain import explain


async def explain_tool(settings: Settings, tool: str, identity: Identity, query: str) -> int:
    """Print why; the exit code."""
    runtime, _, lifecycle = create_runtime(settings)
    async with lifecycle.running():
        await lifecycle.wait_ready()
        usable, lines = explain(
            runtime.catalog(), runtime.access, tool, identity, query, runtime.screened(), runtime.declared()
        )
        for line in lines:
            click.echo(shown(line))
    return 0 if usable else 1
