"""``wicketgate add``: one server of the MCP registry becomes an upstream, after a person has seen what it runs
(OPS-581 to OPS-584)."""

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import httpx

from app.commands.client_files import ClientFile, read_client_file, read_text, replace_client_file
from app.commands.import_servers import variables_to_set, yaml_lines
from app.commands.options import with_config
from app.commands.output import bounded_line, printable
from app.commands.registry_entry import FoundServer, NotAddable, read_server
from wicketgate.config.settings.base import is_web_url
from wicketgate.errors import ConfigError
from wicketgate.net import HttpClient, Outgoing, fetch
from wicketgate.net.outgoing import trouble_of
from wicketgate.yaml_text import NotYaml, read_yaml

_MAX_BYTES = 1024 * 1024
_WITHIN_S = 20.0
_USUAL_FILE = Path("wicketgate.yaml")
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(?:@([A-Za-z0-9][A-Za-z0-9.+_-]*))?")


@click.command()
@click.argument("server", metavar="NAME[@VERSION]|PATH|URL")
@click.option(
    "--registry",
    metavar="URL",
    envvar="MCP_REGISTRY",
    show_envvar=True,
    help="The base URL of a registry with the official API, which knows NAME.",
)
@click.option("--as", "name", metavar="NAME", help="The name of the upstream. Without it: the last part of its name.")
@click.option("--remote", is_flag=True, help="Use the server at a URL, if there is a package too.")
@click.option("--no-sandbox", is_flag=True, help="Start it without a sandbox.")
@click.option("--yes", is_flag=True, help="Add it without a question.")
@with_config
def add(
    server: str, registry: str | None, name: str | None, remote: bool, no_sandbox: bool, yes: bool, config: Path | None
) -> None:
    """Add one server of the MCP registry to the configuration.

    SERVER is a name like io.github.acme/weather, with --registry; or the path or URL of a server.json. The command
    shows what would be started or called, which values it wants and what it may reach, and asks before it writes. The
    entry is pinned to one version. Values are never written: the entry refers to variables.
    """
    path = config or _USUAL_FILE
    content = _content(server, registry)
    try:
        found = read_server(json.loads(content), name=name or "", remote=remote)
        wanted = _NAME.fullmatch(server)
        if (
            wanted
            and not Path(server).exists()
            and (wanted[1], wanted[2] or found.version)
            != (
                found.origin,
                found.version,
            )
        ):
            raise NotAddable(f"the registry gave {found.origin} {found.version}")
    except (ValueError, RecursionError):
        raise ConfigError(f"{server}: not a JSON document") from None
    except NotAddable as reason:
        raise ConfigError(f"{server} cannot be added: {bounded_line(str(reason))}") from None
    local, isolated = "command" in found.settings, False
    if local and not no_sandbox and found.settings["command"][0] != "docker" and shutil.which("bwrap"):
        found.settings["sandbox"], isolated = {"network": "all"}, True
    file = read_client_file(path)
    text = with_upstream(file.plain, found, hashlib.sha256(content).hexdigest(), path)
    for line in _shown(found, path, isolated=isolated):
        click.echo(line)
    if not yes and not sys.stdin.isatty():
        raise ConfigError("Nothing was written: the command asks first, and there is no terminal. --yes answers")
    if not yes and not click.confirm("Add it?"):
        raise ConfigError("Nothing was written")
    _write(file, text, found, path)


def _content(server: str, registry: str | None) -> bytes:
    """The document, as it was found. Raises ConfigError."""
    if is_web_url(server):
        return asyncio.run(_fetched(server))
    named = _NAME.fullmatch(server)
    if Path(server).exists() or not named:
        return read_text(Path(server)).encode()
    if not registry or not is_web_url(registry):
        raise ConfigError(f"Which registry knows {server}? Give its base URL: --registry URL, or set MCP_REGISTRY")
    place = f"/v0/servers/{quote(named[1], safe='')}/versions/{quote(named[2] or 'latest', safe='')}"
    return asyncio.run(_fetched(registry.rstrip("/") + place))


async def _fetched(url: str) -> bytes:
    async with HttpClient(Outgoing.from_environment(os.environ, "")) as http:
        try:
            async with asyncio.timeout(_WITHIN_S):
                reply = await fetch(http, "GET", url, {"Accept": "application/json"}, max_bytes=_MAX_BYTES)
        except TimeoutError:
            raise ConfigError(f"No answer within {_WITHIN_S:g} s from {printable(url)}") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ConfigError(trouble_of(error).told(printable(url), "the URL")) from None
    if reply.status != 200 or reply.cut:
        why = f"more than {_MAX_BYTES // 1024 // 1024} MiB" if reply.cut else f"HTTP status {reply.status}"
        raise ConfigError(f"{printable(url)} gave no document: {why}")
    return reply.body


def _shown(found: FoundServer, path: Path, *, isolated: bool) -> Iterator[str]:
    settings = found.settings
    yield bounded_line(f"{found.origin} {found.version}: {found.description or 'no description'}")
    if "command" in settings:
        yield f"  Starts   {printable(shlex.join(settings['command']))}"
        opened = [word for word in settings["command"] if word.startswith(("/", "${"))]
        reach = ", ".join(("its own files", "the network", *(f"to read {word}, if it is a path" for word in opened)))
        yield f"  Sandbox  {printable(reach) if isolated else 'none: it may do what you may do'}"
    else:
        yield f"  Calls    {printable(settings['url'])}"
    for key, value in {**settings.get("env", {}), **settings.get("headers", {})}.items():
        yield f"  Gives    {printable(f'{key}={value}')}"
    for name in found.skipped:
        yield f"  Without  {printable(name)}, which is optional"
    yield f"  Writes   upstreams.{settings['name']} in {printable(str(path))}"


def with_upstream(text: str, found: FoundServer, digest: str, path: Path) -> str:
    """Puts the upstream behind those in *text*, and changes nothing else. Raises ConfigError."""
    before = _read(text, path)
    names = [each.get("name") for each in before["upstreams"] if isinstance(each, Mapping)]
    if found.settings["name"] in (*names, *(before.get("mcpServers") or ())):
        raise ConfigError(f"{path} has an upstream {found.settings['name']} already; --as gives this one another name")
    lines = [
        f"# {bounded_line(found.origin)} {found.version}, server.json sha256 {digest}",
        *yaml_lines([found.settings]),
    ]
    # Behind the last line of the list, indented as its entries are.
    head = re.search(r"^upstreams:[ \t]*(?:\[[ \t]*\][ \t]*)?(?:#.*)?$", text, re.MULTILINE)
    if head is None:
        body, start = text + ("\n" if text and not text.endswith("\n") else "") + "upstreams:\n", -1
        end, indent = len(body), "  "
    else:
        body = text[: head.start()] + re.sub(r":[ \t]*\[[ \t]*\]", ":", head[0]) + text[head.end() :]
        start = body.index("\n", head.start()) + 1 if "\n" in body[head.start() :] else len(body)
        inner = re.match(r"(?:(?:[ \t]+.*|-[ \t].*|#.*|)\n)*(?:[ \t]+.*\Z|-[ \t].*\Z)?", body[start:])
        kept = inner[0].rstrip() if inner else ""
        end = start + len(kept)
        entry = re.search(r"^([ \t]*)- ", kept, re.MULTILINE)
        indent = entry[1] if entry else "  "
    opening = body[:end] if not body[:end] or body[:end].endswith("\n") else body[:end] + "\n"
    rest = body[end:].lstrip("\n") if body[end:].strip() else ""
    text = opening + "".join(f"{indent}{line}\n" for line in lines) + ("\n" + rest if rest else "")
    wanted = {**before, "upstreams": [*before["upstreams"], found.settings]}
    try:
        same = _read(text, path) == wanted
    except ConfigError:
        same = False
    if not same:
        raise ConfigError(f"{path} cannot be changed in one place. Insert this by hand:\n" + "\n".join(lines))
    return text


def _read(text: str, path: Path) -> dict[str, Any]:
    try:
        found = read_yaml(text, strict=True) or {}
    except NotYaml as error:
        raise ConfigError(f"In {path}, {error}") from None
    listed = found.get("upstreams") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(listed or [], list):
        raise ConfigError(f"{path} is no configuration with a list of upstreams")
    return {**found, "upstreams": listed or []}


def _write(file: ClientFile, text: str, found: FoundServer, path: Path) -> None:
    copy = replace_client_file(file, text, secret=False)
    click.echo(f"Added {found.settings['name']} to {printable(str(path))}", err=True)
    if copy is not None:
        click.echo(f"The old file: {printable(str(copy))}", err=True)
    for line in variables_to_set(found.variables):
        click.echo(line, err=True)
    click.echo(
        f"Then: wicketgate check --config {shlex.quote(str(path))}, and wicketgate lock pins its tools", err=True
    )
