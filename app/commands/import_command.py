"""The options and help of ``wicketgate import``. ``import_servers`` has the rest, loaded when the command runs."""

import sys
from pathlib import Path

import click


@click.command("import")
@click.argument("sources", nargs=-1, metavar="[CLIENT|PATH]...")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write to this new file, not to stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, and nothing else.")
def import_command(sources: tuple[str, ...], write: Path | None, as_json: bool) -> None:
    """Turn the MCP servers of desktop and editor clients into a configuration.

    Without arguments it looks where clients keep their lists, for the user and for this folder, and takes all of them.
    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed, cline, continue, codex, gemini or opencode;
    PATH is a file in the form of one of them.

    Servers and tools that are switched off stay off. What looks like a secret becomes a variable, and is not written
    anywhere. Exits with 1 when nothing was found, or no server could be taken over.
    """
    from app.commands.import_servers import import_servers

    sys.exit(import_servers(sources, write, as_json=as_json))
