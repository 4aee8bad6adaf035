"""The command ``wicketgate conform``: its options, its output and its exit codes."""

import asyncio
import json
import sys
from typing import Any

import click


@click.command(
    epilog="Exit codes: 0 nothing failed; 1 something failed, or the deadline passed; 2 a mistake in the command "
    "line, or no engine at URL."
)
@click.argument("url")
@click.option("--key", envvar="WICKETGATE_CONFORM_KEY", help="Bearer credential; or WICKETGATE_CONFORM_KEY.")
@click.option(
    "--prompt", default="Say hello, and nothing else.", show_default=True, help="Sent to the model some twenty times."
)
@click.option("--tool-prompt", help="A question that makes the model call a tool.")
@click.option(
    "--deadline",
    "deadline_s",
    type=click.FloatRange(min=0, min_open=True),
    default=900.0,
    show_default=True,
    help="Seconds for the whole check.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, instead of lines.")
def conform(url: str, as_json: bool, **options: Any) -> None:
    """Check any engine at URL against the chat contract, over HTTP.

    It sends some twenty requests to POST URL/engine/chat, and so to the model. It prints one line for each requirement,
    with its case or section: pass, FAIL, or ---- if it could not be observed (no key, no tool prompt, no error).

    \b
    wicketgate conform http://127.0.0.1:8080 --key "$KEY" --tool-prompt "What time is it in Tokyo?"
    """
    # Imported here because it loads an HTTP client that no other command needs.
    from app.conform.examine import CannotExamine, examine

    try:
        found = asyncio.run(examine(url, **options))
    except CannotExamine as error:
        click.echo(f"wicketgate: {error}", err=True)
        sys.exit(2)
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(found.lines()))
    sys.exit(0 if found.conforms else 1)
