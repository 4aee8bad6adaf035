"""``wicketgate report``: what a running service has used, and what it cost (OPS-555)."""

import asyncio
import csv
import json
import sys
from typing import Any, get_args

import click

from app.commands.groups import exit_codes
from app.commands.options import with_json
from app.commands.output import printable
from wicketgate.gateway.spending import By

_COLUMNS = ("turns", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")


@click.command(epilog=exit_codes({1: "the service could not be reached or refused it"}))
@click.option("--by", type=click.Choice(get_args(By)), default="actor", show_default=True, help="What to add up by.")
@click.option("--actor", help="Only of this actor.")
@click.option("--since", metavar="DAY", help="The first day, UTC: 2027-01-31. Without it: the last 30 days.")
@click.option("--url", envvar="WG_URL", required=True, help="The service; or WG_URL.")
@click.option("--key", envvar="WG_KEY", help="A key with ops:read; or WG_KEY.")
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV.")
@with_json
def report(
    by: str, actor: str | None, since: str | None, url: str, key: str | None, as_csv: bool, as_json: bool
) -> None:
    """Show turns of models, calls of tools, tokens and cost.

    The sums are those of all processes of the service. Tokens are counted by the providers. Costs are in the currency
    of model.prices and spending.tools, by the prices of their time.
    """
    query = {name: value for name, value in {"by": by, "actor": actor, "since": since}.items() if value}
    found = asyncio.run(_asked(url, key, query))
    if as_json:
        click.echo(printable(json.dumps(found)))
    elif as_csv:
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow((by, *_COLUMNS))
        rows.writerows([_cell(row["name"]), *(row[column] for column in _COLUMNS)] for row in found["rows"])
    else:
        _print(by, found)


async def _asked(url: str, key: str | None, query: dict[str, Any]) -> Any:
    from app.commands.gate_client import open_remote

    async with open_remote(url, key) as gate:
        return await gate.ask("GET", "/console/api/spending", **query)


def _print(by: str, found: Any) -> None:
    if not found["rows"]:
        click.echo(f"Nothing was used since {printable(found['since'])}.", err=True)
        return
    from rich.console import Console

    from app.tables import table

    head = (by.capitalize(), *(column.replace("_", " ").capitalize() for column in _COLUMNS))
    rows = [
        (row["name"], *(f"{row[column]:,}" for column in _COLUMNS[:-1]), f"{row['cost']:,.4f}") for row in found["rows"]
    ]
    Console(width=None if sys.stdout.isatty() else 160).print(table(head, rows))
    total = sum(day["cost"] for day in found["days"])
    told = (
        f"{total:,.4f} in all since {found['since']}" if found["priced"] else "no prices are configured: model.prices"
    )
    click.echo(printable(told), err=True)


def _cell(text: str) -> str:
    """A spreadsheet would take these beginnings for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
