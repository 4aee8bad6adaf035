"""The command line (DESIGN §2); what a command does at length stands in ``app/commands``."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from app.auth.identity import ACTOR_PATTERN, Identity, parse_permissions
from app.commands.terminal import browse, chat, execute, view
from app.conform.command import conform
from app.edges.keys import HashedKey, new_key
from app.edges.settings_file import load_settings
from app.errors import ConfigError
from app.settings import FACES, KeySettings, Settings

F = TypeVar("F", bound=Callable[..., Any])

_BACKLOG = 2048


def _with_config(command: F) -> F:
    return click.option(
        "--config",
        "config",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The configuration file (wicketgate.yaml). Without it: defaults and WICKETGATE_* variables.",
    )(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="wicketgate")
def cli() -> None:
    """Wicketgate: a gate in front of MCP tool servers. A model sees three tools and finds the rest on demand."""


@cli.command()
@_with_config
@click.option("--host", help="Address to listen on; overrides server.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on, 0 for any; overrides server.port.")
@click.option("--watch", is_flag=True, help="Apply the configuration file whenever it changes; SIGHUP always does.")
def serve(config: Path | None, host: str | None, port: int | None, watch: bool) -> None:
    """Start the service: POST /engine/chat and /mcp.

    Without auth.keys it listens on a loopback address only and prints one random key.
    """
    if watch and config is None:
        raise click.UsageError("--watch needs --config: there is no file to watch")
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    _serve(partial(load_settings, config, server=given), config if watch else None)


@cli.command()
@_with_config
@click.option("--face", type=click.Choice(FACES), help="What the client sees; without it: mcp.face.")
@click.option("--actor", default="local", show_default=True, help="Who calls.")
@click.option("--permission", "permissions", multiple=True, default=("*",), show_default=True, help="May be repeated.")
def mcp(config: Path | None, face: str | None, actor: str, permissions: tuple[str, ...]) -> None:
    """Serve one face over stdin and stdout, for MCP clients that start their servers. Logs go to stderr.

    Whoever can start this process is trusted to be --actor; auth.keys do not matter here.
    """
    from app.commands.mcp import serve_mcp

    try:
        allowed = parse_permissions(",".join(permissions))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not ACTOR_PATTERN.fullmatch(actor):
        raise click.UsageError(f"not an actor: {actor!r}")
    settings = load_settings(config)
    serve_mcp(settings, face or settings.mcp.face, Identity(actor, allowed))


@cli.command()
@_with_config
def check(config: Path | None) -> None:
    """Validate the configuration, connect to every upstream, and show what there is.

    Exits with 1 when an upstream cannot be reached or a tool had to be left out.
    """
    settings = load_settings(config)
    click.echo(f"Configuration is valid: {len(settings.upstreams)} upstreams. Connecting ...", err=True)
    sys.exit(asyncio.run(_check(settings)))


@cli.command()
@click.argument("tool")
@click.option("--actor", required=True, help="For whom.")
@click.option(
    "--permission", "permissions", multiple=True, help="What they hold; may be repeated. Default: as in auth.keys."
)
@click.option("--query", default="", help="Also tell where the tool ranks among what these words find.")
@_with_config
def explain(tool: str, actor: str, permissions: tuple[str, ...], query: str, config: Path | None) -> None:
    """Say why TOOL (an id, namespace:name, or its own name) is visible, hidden, or waits for approval.

    Connects to the upstreams, and calls nothing. Exits with 1 when the actor cannot call it.
    """
    settings = load_settings(config)
    identity = _identity(settings, actor, permissions)
    sys.exit(asyncio.run(_explain(settings, tool, identity, query)))


@cli.command("import")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write to this new file, not to stdout.")
def import_command(path: Path, write: Path | None) -> None:
    """Turn the MCP servers of a desktop or editor client (PATH, its JSON) into a configuration.

    Reads the files of Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Zed, Continue and Cline. What looks like
    a secret becomes a variable, and is not written anywhere. Exits with 1 when no server could be taken over.
    """
    from app.commands.import_servers import import_servers

    sys.exit(import_servers(path, write))


@cli.command("lock")
@_with_config
@click.option(
    "--lock",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The lock file. Without it: pins.file of the configuration, else wicketgate.lock.",
)
@click.option("--diff", is_flag=True, help="Only show how the tools differ from the lock.")
@click.option("--accept", "chosen", multiple=True, metavar="TOOL", help="upstream:tool, * allowed; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="Accept everything; suspicious tools only by --accept.")
def lock_command(config: Path | None, path: Path | None, diff: bool, chosen: tuple[str, ...], everything: bool) -> None:
    """Pin the definitions of all tools in a lock file, show what has changed since, and accept it.

    With pins.file in the configuration, a tool that is not as it was accepted does not exist for callers. Exits with 1
    when something differs that was not accepted.
    """
    from app.commands.lock import lock

    if diff and (chosen or everything):
        raise click.UsageError("--diff only shows; take it, or --accept and --all")
    settings = load_settings(config)
    path = path or Path(settings.pins.file or "wicketgate.lock")
    sys.exit(lock(settings, path, diff=diff, chosen=chosen, everything=everything))


@cli.group()
def key() -> None:
    """Make API keys."""


@key.command("new")
@click.option("--id", "key_id", default="key", show_default=True, help="Name of the key, for logs and rotation.")
@click.option("--actor", required=True, help="Who calls with it; becomes X-Actor-ID.")
@click.option(
    "--permission", "permissions", multiple=True, default=("tools:*",), show_default=True, help="May be repeated."
)
def key_new(key_id: str, actor: str, permissions: tuple[str, ...]) -> None:
    """Print a new key, once, and the lines for auth.keys that let it in. Only its hash is stored."""
    secret, digest = new_key(key_id)
    entry = {"id": key_id, "sha256": digest, "actor": actor, "permissions": list(permissions)}
    try:
        KeySettings.model_validate(entry)
    except ValidationError as error:
        faults = "; ".join(f"{fault['loc'][0]}: {fault['msg']}" for fault in error.errors())
        raise click.UsageError(f"not a usable key: {faults}") from None
    click.echo(f"Key (shown only now): {secret}", err=True)
    click.echo("Put this under auth.keys:", err=True)
    click.echo(f"- {json.dumps(entry)}")


@cli.command()
@click.option("--write", "folder", type=click.Path(file_okay=False, path_type=Path), help="Write both dialects here.")
def openapi(folder: Path | None) -> None:
    """Print the OpenAPI 3.1 document, or write the 3.1 and 3.2 documents into a folder."""
    from app.main import create_app
    from routers.openapi import openapi_31, openapi_32

    app = create_app(Settings())  # the defaults, whatever the environment says: the contract does not depend on it
    documents = {"openapi.json": openapi_31(app), "openapi-3.2.json": openapi_32(app)}
    if folder is None:
        click.echo(_pretty(documents["openapi.json"]), nl=False)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        (folder / name).write_text(_pretty(document), encoding="utf-8")


for command in (conform, browse, execute, view, chat):
    cli.add_command(command)


def main(args: list[str] | None = None) -> None:
    """The entry point. Expected trouble is one plain line on stderr and exit code 1, never a traceback."""
    try:
        cli.main(args=args, prog_name="wicketgate", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        click.echo(f"wicketgate: {error}", err=True)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)


def _serve(load: Callable[[], Settings], watched: Path | None) -> None:
    settings = load()

    from app.edges.hangup import on_hangup
    from app.edges.http_server import serve_app
    from app.edges.logs import json_logs, set_log_level
    from app.edges.reloader import Reloader
    from app.main import create_app
    from app.wire.redaction import Redactor

    listener = _bind(settings.server.host, settings.server.port)
    extra_keys, shown_key = [], ""
    if not settings.auth.keys:
        shown_key, digest = new_key("local")
        extra_keys = [HashedKey("local", digest, Identity("local", ("*",)))]
    redactor = Redactor([*settings.secrets(), shown_key])

    def follow(settings: Settings) -> None:
        redactor.learn(settings.secrets())
        set_log_level(settings.server.log_level)

    with json_logs(settings.server.log_level, redactor):
        app = create_app(settings, extra_keys=extra_keys)
        address = _address(listener)
        lifecycle = app.state.lifecycle
        app.state.applied.follow(follow)

        required = [upstream.name for upstream in settings.upstreams if upstream.required and upstream.enabled]
        missing: dict[str, str] = {}

        async def begin() -> None:
            await lifecycle.wait_ready()
            missing.update(lifecycle.missing(required))
            if missing:
                signal.raise_signal(signal.SIGTERM)
            else:
                _greet(address, shown_key)

        async def run() -> bool:
            reloader = Reloader(load, app.state.applied.apply, ready=lifecycle.wait_ready, watched=watched)
            on_hangup(reloader.request)
            greeting = asyncio.create_task(begin())
            try:
                async with reloader.running():
                    return await serve_app(
                        app,
                        listener,
                        drain_s=settings.server.drain_s,
                        stuck_reader_s=settings.engine.stuck_reader_s,
                        stopping=app.state.drain.begin,
                        drained=app.state.drain.wait,
                    )
            finally:
                greeting.cancel()

        with listener:
            served = _runner()(run())
    if missing:
        names = "; ".join(f"{name}: {why}" for name, why in missing.items())
        raise ConfigError(f"An upstream that is required is not there ({names}). Start it, or set required: false")
    if not served:
        sys.exit(1)


def _runner() -> Callable[[Any], bool]:
    """The loop of the performance guide where there is one (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _bind(host: str, port: int) -> socket.socket:
    """Listen before anything is started: a taken port is the most common trouble, and deserves a plain word."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named so that asyncio's own loop, too, sends without waiting (it looks at the number).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # binding alone does not claim the port
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port or server.port."
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _greet(address: str, shown_key: str) -> None:
    """Once requests are taken: where, and what to paste. On stderr, since stdout carries nothing but log lines."""
    lines = ["", f"Wicketgate is ready on {address}", f"  MCP clients: {address}/mcp"]
    if shown_key:
        body = {
            "messages": [{"role": "user", "content": "What time is it in Tokyo?"}],
            "metadata": {"correlation_id": "hello-1"},
        }
        lines += [
            f"  Key, for this run only: {shown_key}",
            "",
            "Try it:",
            f"  curl -N {address}/engine/chat -H 'Authorization: Bearer {shown_key}' \\",
            f"    -H 'Content-Type: application/json' -d '{json.dumps(body)}'",
        ]
    click.echo("\n".join([*lines, ""]), err=True)


def _identity(settings: Settings, actor: str, permissions: tuple[str, ...]) -> Identity:
    if permissions:
        try:
            return Identity(actor, parse_permissions(",".join(permissions)))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    for key in settings.auth.keys:
        if key.actor == actor:
            return Identity(actor, key.permissions)
    raise click.UsageError(f"auth.keys has no key of {actor}; say what they hold with --permission")


async def _explain(settings: Settings, tool: str, identity: Identity, query: str) -> int:
    from app.commands.shown import shown
    from app.gateway.explain import explain
    from app.main import create_runtime

    runtime, _, lifecycle = create_runtime(settings)
    async with lifecycle.running():
        await lifecycle.wait_ready()
        usable, lines = explain(
            runtime.catalog(), runtime.access, tool, identity, query, runtime.screened(), runtime.declared()
        )
        for line in lines:
            click.echo(shown(line))
    return 0 if usable else 1


async def _check(settings: Settings) -> int:
    """Connect, wait until every upstream has settled, print the table; the exit code."""
    from time import time

    from app.commands.screened import screened_lines
    from app.edges.audit_loader import make_auditor
    from app.edges.model_providers import make_provider
    from app.edges.plugin_loader import plugin_lines
    from app.gateway.catalog_keeper import tools_left_out
    from app.main import create_runtime

    make_provider(settings.model)  # refuses what it cannot work with
    if (auditor := make_auditor(settings.plugins, time)) is not None:  # the same
        await auditor.aclose()
    runtime, fleet, lifecycle = create_runtime(settings)
    async with lifecycle.running():
        await lifecycle.wait_ready()
        catalog, statuses = runtime.catalog(), fleet.statuses()
        by_server: dict[str, list[str]] = {name: [] for name in statuses}
        for item in catalog.items.values():
            by_server[item.server].append(item.id)
        troubles = runtime.troubles()
        for name, status in statuses.items():
            trouble = status.error or troubles.get(name, "")
            if not trouble and status.connections > 1:
                trouble = f"connected {status.connections} times; before: {status.last_error}"
            click.echo(f"{name}: {status.phase}{f' ({trouble})' if trouble else ''}")
            for tool_id in sorted(by_server[name]):
                click.echo(f"  {tool_id}")
        for upstream in settings.upstreams:
            if not upstream.enabled:
                click.echo(f"{upstream.name}: disabled")
        left_out = tools_left_out(catalog)
        for tool, reason in left_out.items():
            click.echo(f"left out: {tool}: {reason}")
        for tool_id in catalog.subscriptions:
            click.echo(f"left aside: {tool_id}: a subscription, which no tool call can carry")
        screened = runtime.screened()
        for line in screened_lines(screened):
            click.echo(line)
        for line in plugin_lines(settings.plugins):
            click.echo(line)
        held = sum(len(each.held) for each in screened.values())
        down = [name for name, status in statuses.items() if status.phase != "ready"]
        click.echo(
            f"{len(statuses) - len(down)} of {len(statuses)} upstreams connected, {len(catalog.items)} tools, "
            f"{len(left_out) + held} left out"
        )
    return 1 if down or left_out or held or troubles else 0


def _pretty(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
