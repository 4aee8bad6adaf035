"""``wicketgate init``: asks little, and writes a configuration that works (OPS-69).

Everything is asked and made before anything is written, so that an end in the middle leaves no file behind.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from app.clients import CLIENTS, shown_path
from app.commands.import_entry import ClientServer
from app.commands.import_files import client_files, client_named, client_places, configs_here, read_client_config
from app.commands.import_servers import as_yaml, take_over, variables_to_set, write_new
from app.commands.output import bounded_line, count, printable
from wicketgate.config.settings_file import find_config
from wicketgate.errors import ConfigError

_FILE_VARIABLE = "WICKETGATE_CONFIG"
_USUAL_FILE = Path("wicketgate.yaml")
_MAX_NOTES = 20
_SCHEMA_FILE = "wicketgate.schema.json"
_OPENAI, _ANTHROPIC, _SCRIPTED = "openai-chat", "anthropic-messages", "scripted"

_MODELS: Mapping[str, str] = {
    _OPENAI: """\
model:
  provider: openai-chat          # any server that speaks chat completions
  base_url: ${OPENAI_BASE_URL:-https://api.openai.com/v1}
  model: ${OPENAI_MODEL:-gpt-5-mini}
  api_key: ${OPENAI_API_KEY}
""",
    _ANTHROPIC: """\
model:
  provider: anthropic-messages
  base_url: ${ANTHROPIC_BASE_URL:-https://api.anthropic.com}
  model: ${ANTHROPIC_MODEL:-claude-sonnet-4-5}
  api_key: ${ANTHROPIC_API_KEY}
""",
    _SCRIPTED: """\
# The model behind POST /engine/chat; MCP clients bring their own. "scripted" is a small stand-in that needs no account.
# For a real one, put one of these lines in its place:
# model: {provider: openai-chat, base_url: "https://api.openai.com/v1", model: gpt-5-mini, api_key: "${OPENAI_API_KEY}"}
# model: {provider: anthropic-messages, base_url: "https://api.anthropic.com", model: claude-sonnet-4-5, api_key: "${ANTHROPIC_API_KEY}"}
model: {provider: scripted}
""",  # noqa: E501
}
_TITLES = {
    _OPENAI: "OpenAI, or any server that speaks chat completions (OPENAI_API_KEY)",
    _ANTHROPIC: "Anthropic (ANTHROPIC_API_KEY)",
    _SCRIPTED: "none for now: a small scripted stand-in; MCP clients bring their own model",
}
_KEY_VARIABLES = {_OPENAI: "OPENAI_API_KEY", _ANTHROPIC: "ANTHROPIC_API_KEY", _SCRIPTED: ""}

_MORE = """\
  # - {name: files, command: [npx, -y, "@modelcontextprotocol/server-filesystem", /data]}
  # - {name: github, url: "https://example.com/mcp", headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}}
  # - {name: orders, openapi: ./orders.yaml, base_url: "https://orders.example.com/v1"}
"""


@dataclass(frozen=True, slots=True)
class _Servers:
    """*text* is the end of the file, from ``upstreams:`` on. *variables* are those to set, with their descriptions."""

    text: str
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Found:
    """A client whose *files* hold *servers*."""

    name: str
    title: str
    files: list[str]
    servers: list[ClientServer]

    @property
    def count(self) -> int:
        """The number of servers that can be taken over."""
        return sum(each.settings is not None for each in take_over(self.servers)[0])


@click.command("init")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.  [default: the one that WICKETGATE_CONFIG names, otherwise ./wicketgate.yaml]",
)
@click.option(
    "--from", "source", metavar="CLIENT|FILE", help="Import the servers of this MCP client, or from its file."
)
@click.option("--yes", is_flag=True, help="Ask nothing, and use the defaults, as without a terminal.")
def init(config: Path | None, source: str | None, yes: bool) -> None:
    """Write a configuration to start from: servers, a model, and a key of your own, which is shown once.

    In a terminal it asks which servers and which model. Otherwise the file has an example server, and the model whose
    key is set, OPENAI_API_KEY or ANTHROPIC_API_KEY. It never overwrites a file.

    \b
    wicketgate init                  asks which servers and which model
    wicketgate init --from cursor    imports the servers of Cursor
    """
    path = config or Path(os.environ.get(_FILE_VARIABLE) or _USUAL_FILE)
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path} exists already, and init never writes over a file: edit it, or name a new one with --config"
        )
    _check_folder(path)
    asks = not yes and in_terminal()
    try:
        servers = _from(source) if source is not None else _choose_servers(asks=asks)
        model = _choose_model(_default_model(os.environ)) if asks else _default_model(os.environ)
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nNothing was written.", err=True)
        raise
    secret, key = _new_key()
    write_new(path, _text(key, model, servers), ", and init never writes over a file")
    with_schema = _write_schema(path.with_name(_SCHEMA_FILE))
    for line in _report(path, servers, model, secret, with_schema=with_schema):
        click.echo(printable(line))


def _check_folder(path: Path) -> None:
    """Raises ConfigError if the folder takes no file, so that nobody answers questions in vain."""
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"Cannot write {path}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"Cannot write {path}: you may not write to the folder {folder}")


def in_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _from(source: str) -> _Servers:
    """Raises ConfigError."""
    name = client_named(source)
    if name is None:
        path = Path(source).expanduser()
        return _taken_over(read_client_config(path).servers, path.name)
    found = next((each for each in _clients_here() if each.name == name), None)
    if found is None:
        places = ", ".join(str(path) for _, path in client_places({name}))
        raise ConfigError(f"{CLIENTS[name].title} has no servers here: looked at {places}")
    return _taken_over(found.servers, found.title)


def _choose_servers(*, asks: bool) -> _Servers:
    found = [each for each in _clients_here() if each.count]
    if not found or not asks:
        example = _example(os.environ)
        added = [f"{name} is put in as an example" for name in example.names]
        if found:
            said = [*added, "wicketgate import shows the servers that MCP clients have here"]
        else:
            said = ["No MCP client with servers to import was found here", *added]
        return replace(example, notes=(f"{'; '.join(said)}.", *example.notes))
    click.echo("Which servers should the gate serve?")
    click.echo("  1  an example that tells the time")
    for number, each in enumerate(found, 2):
        servers = f"{count(each.count, 'server')} ({', '.join(each.files)})"
        click.echo(printable(f"  {number}  those of {each.title}: {servers}"))
    if len(found) > 1:
        click.echo(f"  {len(found) + 2}  those of all these clients")
    last = len(found) + (2 if len(found) > 1 else 1)
    chosen = click.prompt("Number", type=click.IntRange(1, last), default=last)
    if chosen == 1:
        return _example(os.environ)
    if chosen == len(found) + 2:
        return _taken_over([server for each in found for server in each.servers], "the MCP clients of this machine")
    each = found[chosen - 2]
    return _taken_over(each.servers, each.title)


def _clients_here() -> list[_Found]:
    """Returns the clients whose files hold servers. A file that cannot be read is passed over."""
    found: dict[str, _Found] = {}
    for config in configs_here():
        if config.servers:
            each = found.setdefault(config.client, _Found(config.client, CLIENTS[config.client].title, [], []))
            each.files.append(shown_path(config.path))
            each.servers.extend(config.servers)
    return list(found.values())


def _taken_over(servers: Sequence[ClientServer], source: str) -> _Servers:
    """Raises ConfigError."""
    imported, variables = take_over(servers)
    taken = [server.name for server in imported if server.settings is not None]
    if not taken:
        raise ConfigError(f"{source} has no server that can be imported; wicketgate import shows the reasons")
    left = [f"not imported: {each.name}: {'; '.join(each.notes)}" for each in imported if each.settings is None]
    for each in imported:
        left += [f"of {each.name}: {'; '.join(each.notes)}"] if each.notes and each.settings is not None else []
    lines = [bounded_line(line) for line in left[:_MAX_NOTES]]
    if len(left) > _MAX_NOTES:
        lines.append(f"and notes on {count(len(left) - _MAX_NOTES, 'server')} more: wicketgate import shows them")
    return _Servers(as_yaml(imported, source), tuple(taken), tuple(lines), variables)


def _example(environ: Mapping[str, str]) -> _Servers:
    """Returns the time server, if this machine has it or can fetch it; otherwise only comments."""
    # The gate finds what is installed beside it though that is not on the PATH, and a bare name outlives a move.
    beside = Path(sys.executable).with_name("mcp-server-time")
    if shutil.which("mcp-server-time", path=environ.get("PATH")) or beside.is_file():
        command, about = ["mcp-server-time"], "tells the time"
    elif shutil.which("uvx", path=environ.get("PATH")):
        command, about = ["uvx", "mcp-server-time"], "tells the time; the first start fetches it"
    else:
        return _Servers(
            "upstreams:\n  # Sources of tools, such as\n"
            "  # - {name: time, command: [uvx, mcp-server-time, --local-timezone=UTC]}\n" + _MORE,
            (),
            ("No example server: neither mcp-server-time nor uvx is on the PATH. Add servers under upstreams:",),
        )
    words = ", ".join(map(_word, [*command, "--local-timezone=UTC"]))
    return _Servers(
        f"upstreams:\n  - {{name: time, command: [{words}]}}   # {about}\n  # More sources of tools, such as\n{_MORE}",
        ("time",),
    )


def _word(text: str) -> str:
    """Returns *text* as a word of YAML."""
    return text if re.fullmatch(r"(?:--|/|[A-Za-z])[\w./=-]*", text, re.ASCII) else json.dumps(text)


def _default_model(environ: Mapping[str, str]) -> str:
    return next((name for name, variable in _KEY_VARIABLES.items() if environ.get(variable)), _SCRIPTED)


def _choose_model(default: str) -> str:
    names = list(_MODELS)
    click.echo("Which model should answer chats (POST /engine/chat)?")
    for number, name in enumerate(names, 1):
        click.echo(f"  {number}  {_TITLES[name]}")
    chosen: int = click.prompt("Number", type=click.IntRange(1, len(names)), default=names.index(default) + 1)
    return names[chosen - 1]


def _new_key() -> tuple[str, str]:
    """Returns a key, and its entry for ``auth.keys``."""
    from wicketgate.storage.keys import new_key

    secret, digest = new_key("first")
    return secret, json.dumps({"id": "first", "sha256": digest, "actor": "me", "permissions": ["*"]})


def _text(key: str, model: str, servers: _Servers) -> str:
    return (
        f"# yaml-language-server: $schema={_SCHEMA_FILE}\n"
        "# Every key has a default; unknown keys stop the start. ${VAR} and ${VAR:-default} are environment variables."
        "\n\nauth:\n"
        "  keys:    # only hashes; wicketgate key new makes more keys, with fewer permissions if you like\n"
        f"    - {key}\n\n"
        f"{_MODELS[model]}\n"
        f"{servers.text}"
    )


def _write_schema(path: Path) -> bool:
    """Writes the schema beside the configuration, over an earlier one too. Returns False if that cannot be done.

    Editors read it there without a network, for every user of the folder and wherever this program is installed.
    """
    from wicketgate.config.schema import TITLE

    try:
        if os.path.lexists(path) and not path.is_file():
            return False  # such as a pipe, which would not end
        if path.exists() and TITLE not in path.read_text(encoding="utf-8", errors="replace")[:200]:
            return False
        path.write_text(schema_text(), encoding="utf-8")
    except OSError:
        return False
    return True


def _report(path: Path, servers: _Servers, model: str, secret: str, *, with_schema: bool) -> Iterator[str]:
    held = f"{count(len(servers.names), 'server')} ({', '.join(servers.names)})" if servers.names else "no servers yet"
    yield f"Wrote {path}: {held}, model {model}, one key."
    if with_schema:
        yield f"Wrote {path.with_name(_SCHEMA_FILE)}: with it editors complete and check that file."
    yield from servers.notes
    yield ""
    yield f"Your key, shown only now: {secret}"
    wanted = {**servers.variables}
    if (variable := _KEY_VARIABLES[model]) and variable not in os.environ:
        wanted[variable] = "of the model"
    if lines := list(variables_to_set(wanted)):
        yield from ("", *lines)
    option = "" if find_config(os.environ) == path else f" --config {path}"
    client = next((client.name for client, _ in client_files()), "CLIENT")
    steps = (
        (f"wicketgate check{option}", "connects to each server and lists its tools"),
        (f"wicketgate serve{option}", "starts the gate on http://127.0.0.1:8080"),
        (f"wicketgate connect {client}", "shows what an MCP client needs to reach it"),
    )
    yield ""
    yield "Next:"
    width = max(len(command) for command, _ in steps)
    yield from (f"  {command:{width}}   {what}" for command, what in steps)


@click.command("schema")
def schema() -> None:
    """Print the JSON Schema of the configuration file.

    An editor with YAML support completes and checks the file if its first line is

    \b
    # yaml-language-server: $schema=wicketgate.schema.json
    """
    click.echo(schema_text(), nl=False)


def schema_text() -> str:
    from wicketgate.config.schema import file_schema

    return json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"
