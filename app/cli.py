"""The command line: options and help of each command. ``app/commands`` holds the longer commands."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from pydantic import ValidationError

from app.commands.groups import Group, NearChoice, TaskGroup, exit_codes, usage_hint
from app.commands.options import (
    asked_url,
    parse_identity,
    with_checked_config,
    with_config,
    with_identity,
    with_json,
    with_served_config,
)
from app.commands.output import count, printable, printable_text, terminal_log
from app.process import open_standard_streams
from wicketgate.access.identity import Identity
from wicketgate.config.settings import FACES, KeySettings, Settings
from wicketgate.config.settings_file import configuration_line, load_settings
from wicketgate.errors import ConfigError
from wicketgate.storage.keys import new_key

_SECTIONS = {
    "Start": ("init", "check", "serve", "console"),
    "Clients and servers": ("connect", "import", "add", "mcp"),
    "Logins": ("login", "logout", "connections"),
    "Try": ("browse", "execute", "view", "chat", "explain"),
    "Keep": ("approvals", "report", "lock", "words", "learned", "key"),
    "Contracts": ("conform", "openapi", "schema"),
    "This command": ("completion", "version"),
}


# Named here too (routers/openapi.py), since no other command needs the web framework.
_DOCUMENTS = ("openapi.json", "openapi-no-stream.json", "openapi-3.2.json", "console.json")

# Commands that have a module of their own, which is imported for them alone.
_MODULES = {
    "init": ".init:init",
    "schema": ".init:schema",
    "conform": "..conform.command:conform",
    "approvals": ".approvals:approvals",
    "report": ".report:report",
    "connect": ".connect:connect",
    "import": ".import_servers:import_command",
    "add": ".add:add",
    "browse": ".terminal:browse",
    "execute": ".terminal:execute",
    "view": ".terminal:view",
    "chat": ".terminal:chat",
}


@click.group(
    cls=TaskGroup,
    sections=_SECTIONS,
    modules=_MODULES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="For details: wicketgate COMMAND --help. Exit codes: 0 success; 1 refused or failed; 2 a "
    "mistake in the command line.",
)
@click.version_option(package_name="wicketgate")
def cli() -> None:
    """Wicketgate: a gate in front of MCP tool servers. A model sees three tools and finds the rest on demand."""


_MOST_ACTORS = 5


@cli.command(epilog=exit_codes({0: "stopped by a signal", 1: "it could not start, or could not stop in time"}))
@with_served_config
@click.option("--host", help="Address to listen on; overrides server.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on, 0 for any; overrides server.port.")
@click.option("--watch", is_flag=True, help="Apply the configuration file whenever it changes; SIGHUP always does.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of processes that serve the address; more than one need a storage.url that they can share.",
)
def serve(config: Path | None, host: str | None, port: int | None, watch: bool, workers: int) -> None:
    """Start the service: POST /engine/chat and /mcp.

    Without auth.keys it listens on a loopback address only and prints one random key.
    """
    if watch and config is None:
        raise click.UsageError("--watch needs --config: there is no ./wicketgate.yaml to watch")
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    from app.process import remembered_hangup, without_collections

    load = partial(load_settings, config, server=given)
    with remembered_hangup():
        settings = load()  # before the imports of the whole service, so that a mistake shows at once
        with without_collections():
            from app.commands.serve import serve_until_stopped

        sys.exit(serve_until_stopped(settings, load, config if watch else None, workers=workers))


@cli.command()
@with_config
def console(config: Path | None) -> None:
    """Print the address of the console of the configured service."""
    from app.lifespan import console_link, reachable

    server = load_settings(config).server
    if not server.console:
        raise ConfigError("server.console is false, so the service has no console")
    host = f"[{server.host}]" if ":" in server.host else server.host
    click.echo(console_link(server.public_url.rstrip("/") or reachable(f"http://{host}:{server.port}"), None))


@cli.command(epilog=exit_codes({0: "the client closed stdin", 1: "it could not start"}))
@with_served_config
@click.option("--face", type=NearChoice(FACES), help="The face that the client sees; without it: mcp.face.")
@click.option(
    "--cwd",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Work in this folder: relative paths in the configuration start there.",
)
@with_identity
def mcp(config: Path | None, face: str | None, folder: Path | None, **who: Any) -> None:
    """Serve one face over stdin and stdout, for MCP clients that start their servers.

    Logs go to stderr. Every call is made as --actor. auth.keys are ignored: the client that starts this process is
    trusted.
    """
    from app.commands.mcp import serve_mcp

    if folder is not None:
        config = config and config.absolute()
        os.chdir(folder)
    identity = parse_identity(**who)
    settings = load_settings(config)
    serve_mcp(settings, face or settings.mcp.face, identity)


@cli.command(
    epilog=exit_codes(
        {
            0: "every upstream is connected and all its tools can be used",
            1: "something is missing or was omitted; the output names it",
        }
    )
)
@with_checked_config
@click.option(
    "--model", is_flag=True, help="Also ask each configured model one tiny question, which may cost a little."
)
@click.option("--all", "everything", is_flag=True, help="Show every tool and every fault, without shortening lists.")
@with_json
def check(config: Path | None, model: bool, everything: bool, as_json: bool) -> None:
    """Connect to every upstream, and report its state, its tools and what is missing.

    Calls no tool. Reports on stderr how each upstream connects, then prints tools, a table of the upstreams, and the
    problems.
    """
    settings = load_settings(config)
    found = f"Valid: {count(len(settings.upstreams), 'upstream')}.{' Connecting ...' if settings.upstreams else ''}"
    click.echo(f"{printable(configuration_line(config, os.environ))}. {found}", err=True)
    from app.commands.check import check_all

    sys.exit(asyncio.run(check_all(settings, config, model=model, everything=everything, as_json=as_json)))


def _at_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that choose a running service in the place of this machine."""
    command = click.option("--key", envvar="WG_KEY", help="Your key for --url; or WG_KEY.")(command)
    return click.option("--url", envvar="WG_URL", help="Use your own account at this service; or WG_URL.")(command)


@cli.command(
    epilog=exit_codes({0: "logged in", 1: "refused, or the browser did not return; the output has the reason"})
)
@click.argument("upstream")
@click.option("--no-browser", is_flag=True, help="Only print the address of the page; open it yourself.")
@click.option("--scope", default="", help="Scopes to ask for, separated by spaces; replaces oauth.scope.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Port of 127.0.0.1 for the browser's return, if the client is registered with one.",
)
@_at_service
@with_config
def login(
    upstream: str, no_browser: bool, scope: str, port: int, url: str | None, key: str | None, config: Path | None
) -> None:
    """Log in at UPSTREAM in a browser, once for all callers of this gate.

    The login is stored on this machine, sealed, and refreshed by the gate as long as its issuer allows. A running gate
    uses it within seconds. With --url you log in at a running gate, which stores the login: your own account, or the
    login that all callers share, if UPSTREAM has one (it needs an operator's key, ops:write).
    """
    if at := asked_url(url):
        if scope or port:
            raise click.UsageError("--scope and --port are for logins of this machine; the service decides them")
        from app.commands.login import log_in_at

        return asyncio.run(log_in_at(at, key, upstream, browser=not no_browser))
    from app.commands.login import log_in

    scopes = tuple(scope.split())
    asyncio.run(log_in(load_settings(config), upstream, browser=not no_browser, scopes=scopes, port=port))


@cli.command(epilog=exit_codes({0: "the login has ended", 1: "its issuer could not be reached"}))
@click.argument("upstream")
@_at_service
@with_config
def logout(upstream: str, url: str | None, key: str | None, config: Path | None) -> None:
    """End the login at UPSTREAM, here and at its issuer. With --url: end your own account at a running gate, or the
    login that all callers share there."""
    if at := asked_url(url):
        from app.commands.login import log_out_at

        return asyncio.run(log_out_at(at, key, upstream))
    from app.commands.login import log_out

    asyncio.run(log_out(load_settings(config), upstream))


@cli.command(epilog=exit_codes({0: "printed"}))
@with_json
@_at_service
@with_config
def connections(as_json: bool, url: str | None, key: str | None, config: Path | None) -> None:
    """Print the logins of this machine, for each upstream that needs one. With --url: print your own accounts there."""
    if at := asked_url(url):
        from app.commands.login import show_connections_at

        return asyncio.run(show_connections_at(at, key, as_json=as_json))
    from app.commands.login import show_connections

    asyncio.run(show_connections(load_settings(config), as_json=as_json))


@cli.command(epilog=exit_codes({0: "the actor can call it", 1: "it cannot, or there is no such tool"}))
@click.argument("tool")
@click.option("--key", "key_id", help="The id of the caller's key in auth.keys.")
@click.option("--actor", help="The actor of the caller.  [default: the actor of auth.keys, if there is only one]")
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    help="A permission of the actor; may be repeated. Default: as in auth.keys.",
)
@click.option("--role", "roles", multiple=True, help="A role of the actor; may be repeated. Default: as in auth.keys.")
@click.option("--query", default="", help="Also report the rank of the tool among those that these words find.")
@with_json
@with_config
def explain(tool: str, query: str, as_json: bool, config: Path | None, **who: Any) -> None:
    """Explain why TOOL is visible, hidden, or waits for approval.

    TOOL is an id, namespace:name, or the tool's own name. Connects to the upstreams, and calls nothing.
    """
    settings = load_settings(config)
    identity = _identity(settings, **who)
    from app.commands.check import explain_tool

    sys.exit(asyncio.run(explain_tool(settings, tool, identity, query, as_json=as_json)))


@cli.command(
    "lock",
    epilog=exit_codes({0: "every tool is as accepted", 1: "a tool differs, or a server listed no tools"}),
)
@with_config
@click.option(
    "--lock",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The lock file. Without it: pins.file of the configuration, otherwise wicketgate.lock.",
)
@click.option("--diff", is_flag=True, help="Only show how the tools differ from the lock.")
@click.option("--accept", "chosen", multiple=True, metavar="TOOL", help="upstream:tool, * allowed; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="Accept everything; suspicious tools only by --accept.")
@with_json
def lock_command(
    config: Path | None, path: Path | None, diff: bool, chosen: tuple[str, ...], everything: bool, as_json: bool
) -> None:
    """Pin the definitions of all tools, show later changes, and accept them.

    The first run writes the lock file. With pins.file in the configuration, a tool that differs from its pin does not
    exist for callers.

    \b
    wicketgate lock --diff
    wicketgate lock --accept 'shop:*'
    """
    from app.commands.lock import lock

    if diff and (chosen or everything):
        raise click.UsageError("--diff only shows differences; give it, or --accept and --all")
    settings = load_settings(config)
    path = path or Path(settings.pins.file or "wicketgate.lock")
    sys.exit(lock(settings, path, diff=diff, chosen=chosen, everything=everything, as_json=as_json))


@cli.command("words", epilog=exit_codes({0: "every tool has words", 1: "a tool has none, or a server listed no tools"}))
@with_config
@click.option("--model", metavar="NAME", help="Ask this model of the provider; without it: model.model.")
@click.option("--diff", is_flag=True, help="Only show which tools lack words; asks no model.")
def words_command(config: Path | None, model: str | None, diff: bool) -> None:
    """Let the model write everyday words for each tool, so that queries with these words find it.

    Asks once for each new or changed definition, up to 20 in a request, and writes each answer to the file
    browse.words_file, otherwise to wicketgate.words. The gate uses the words if browse.words_file names the file.
    """
    from app.commands.words import words

    sys.exit(asyncio.run(words(load_settings(config), diff=diff, model=model)))


@cli.group(cls=Group)
def learned() -> None:
    """List and delete the learned words of tools.

    Words are learned if browse.learn is on, and stored in storage.url.
    """


_of_actor = click.option("--actor", help="Only what this actor's executions taught.")
_of_tool = click.option("--tool", metavar="ID", help="Only this tool, by its id, with the hash or without.")


@learned.command("list")
@with_config
@_of_actor
@_of_tool
@with_json
def learned_list(config: Path | None, actor: str | None, tool: str | None, as_json: bool) -> None:
    """List the learned words of each tool, by actor, with the number of executions that had them.

    Counts halve every 30 days. You can run this while the service runs.
    """
    settings = load_settings(config)
    from app.commands.learned import list_learned

    list_learned(settings, actor, tool, as_json=as_json)


@learned.command("reset", epilog=exit_codes({0: "forgotten, or nothing was stored", 1: "not confirmed, or failed"}))
@with_config
@_of_actor
@_of_tool
@click.option("--yes", "sure", is_flag=True, help="Do not ask.")
def learned_reset(config: Path | None, actor: str | None, tool: str | None, sure: bool) -> None:
    """Delete learned words. A running service on the same store stops using them within seconds."""
    settings = load_settings(config)
    from app.commands.learned import reset_learned

    sys.exit(reset_learned(settings, actor, tool, sure=sure))


@cli.group(cls=Group)
def key() -> None:
    """Make API keys."""


@key.command("new")
@click.option("--id", "key_id", default="key", show_default=True, help="Name of the key, for logs and rotation.")
@click.option("--actor", required=True, help="The actor of calls with this key; becomes X-Actor-ID.")
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    default=("tools:*",),
    show_default=True,
    help="A permission of the actor; may be repeated.",
)
@click.option(
    "--role", "roles", multiple=True, help="A role of the actor; rules ask for it by role:NAME. May be repeated."
)
@click.option("--not-before", metavar="TIME", help="The key is valid from this time on: 2027-01-31T00:00:00Z.")
@click.option("--expires-at", metavar="TIME", help="The key is valid until this time: 2027-01-31T00:00:00Z.")
@click.option("--expires-in", metavar="DURATION", help="The key is valid for this long: 90d, 12h or 30m.")
@with_json
def key_new(
    key_id: str,
    actor: str,
    permissions: tuple[str, ...],
    roles: tuple[str, ...],
    not_before: str | None,
    expires_at: str | None,
    expires_in: str | None,
    as_json: bool,
) -> None:
    """Print a new key, once, and its entry for auth.keys, which holds only its hash."""
    if expires_in is not None:
        if expires_at is not None:
            raise click.UsageError("give --expires-at or --expires-in, not both")
        expires_at = _after(expires_in)
    secret, digest = new_key(key_id)
    entry: dict[str, object] = {"id": key_id, "sha256": digest, "actor": actor, "permissions": list(permissions)}
    entry |= {"roles": list(roles)} if roles else {}
    entry |= {name: at for name, at in (("not_before", not_before), ("expires_at", expires_at)) if at is not None}
    try:
        KeySettings.model_validate(entry)
    except ValidationError as error:
        faults = "; ".join(": ".join([*map(str, fault["loc"]), _fault(fault)]) for fault in error.errors())
        raise click.UsageError(f"not a usable key: {faults}") from None
    if as_json:
        click.echo(json.dumps({"key": secret, "entry": entry}))
        return
    click.echo(f"Key (shown only now): {secret}", err=True)
    click.echo("Put this under auth.keys:", err=True)
    click.echo(f"- {json.dumps(entry)}")


@cli.command()
@click.argument("name", type=NearChoice(_DOCUMENTS), default=_DOCUMENTS[0])
@click.option("--write", "folder", type=click.Path(file_okay=False, path_type=Path), help="Write all documents here.")
def openapi(name: str, folder: Path | None) -> None:
    """Print an OpenAPI document of the service, or write all of them into a folder.

    NAME is openapi.json (3.1, the default), openapi-3.2.json, openapi-no-stream.json (3.1 without the chat, for
    generators that cannot stream) or console.json.
    """
    from app.main import create_app
    from routers.openapi import DOCUMENTS

    app = create_app(Settings())  # the defaults: the contract does not depend on file and environment
    if folder is None:
        click.echo(_pretty(DOCUMENTS[name](app)), nl=False)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for file, build in DOCUMENTS.items():
        (folder / file).write_text(_pretty(build(app)), encoding="utf-8")


@cli.command()
@click.argument("shell", type=NearChoice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and files.

    \b
    bash: eval "$(wicketgate completion bash)"         in ~/.bashrc
    zsh:  eval "$(wicketgate completion zsh)"          in ~/.zshrc, after compinit
    fish: wicketgate completion fish | source          in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, "wicketgate", "_WICKETGATE_COMPLETE").source())


@cli.command("version")
@with_json
def version_command(as_json: bool) -> None:
    """Print the versions to include in a bug report."""
    from importlib.metadata import version
    from platform import platform, python_version

    found = {"wicketgate": version("wicketgate"), "python": python_version(), "platform": platform()}
    click.echo(json.dumps(found) if as_json else "\n".join(f"{name} {value}" for name, value in found.items()))


def main(args: list[str] | None = None) -> None:
    """The entry point. An expected failure is one plain line on stderr and exit code 1, never a traceback."""
    open_standard_streams()
    try:
        with terminal_log():
            cli.main(args=args, prog_name="wicketgate", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if hint := usage_hint(error):
            click.echo(hint, err=True)
        sys.exit(error.exit_code)
    except ConfigError as error:
        click.echo(printable_text(f"wicketgate: {error}"), err=True)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:
        _end_unread()


def _end_unread() -> NoReturn:
    """Such as ``| head``: nobody reads on, and the interpreter must not try to write the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


_FORMS = {
    "id": "must be lower-case letters, digits and hyphens, at most 32, no hyphen first",
    "actor": "must be letters, digits and ._@:/-, at most 128, a letter or digit first",
}


def _fault(fault: Mapping[str, Any]) -> str:
    form = _FORMS.get(str(fault["loc"][0])) if fault["type"] == "string_pattern_mismatch" and fault["loc"] else None
    return form or str(fault["msg"]).removeprefix("Value error, ")


_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60}


def _after(duration: str) -> str:
    """Returns the time that is *duration* from now, as in ISO 8601, in whole seconds."""
    match = re.fullmatch(r"(\d{1,5})([dhm])", duration)
    if match is None or int(match[1]) == 0:
        raise click.UsageError(f"not a duration: {duration!r}. Write 90d, 12h or 30m")
    end = datetime.now(UTC) + timedelta(seconds=int(match[1]) * _UNITS_S[match[2]])
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


def _only_actor(settings: Settings) -> str:
    """Returns the actor of all keys, and says so. Raises click.UsageError if there is none, or more than one."""
    actors = list(dict.fromkeys(key.actor for key in settings.auth.keys))
    if not actors:
        raise click.UsageError("auth.keys is empty, so no actor is known; give --actor NAME --permission '*'")
    if len(actors) > 1:
        shown = ", ".join(actors[:_MOST_ACTORS]) + (", ..." if len(actors) > _MOST_ACTORS else "")
        raise click.UsageError(f"auth.keys has keys of {shown}; say for whom with --actor, or with --key ID")
    click.echo(f"For {actors[0]}, the only actor of auth.keys; --actor names another.", err=True)
    return actors[0]


def _identity(
    settings: Settings, key_id: str | None, actor: str | None, permissions: tuple[str, ...], roles: tuple[str, ...]
) -> Identity:
    """Returns the identity of a key as the gate has it, with *permissions* and *roles* in place of its own if given."""
    if key_id is None:
        actor = actor or _only_actor(settings)
    given = (key.hashed().identity for key in settings.auth.keys)
    keys = [each for each in given if key_id in (None, each.key_id) and actor in (None, each.actor)]
    if not keys and (key_id is not None or not permissions):
        which = f"with the id {key_id}" if key_id is not None else f"of {actor}; give its permissions with --permission"
        raise click.UsageError(f"auth.keys has no key {which}")
    if len(set(keys)) > 1:
        click.echo(f"For {keys[0].key_id}, the first key of {actor}; --key names another.", err=True)
    first = keys[0] if keys else Identity(actor or "")
    asked = parse_identity(first.actor, permissions or first.permissions, roles or first.roles)
    return replace(asked, key_id=first.key_id)


def _pretty(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
