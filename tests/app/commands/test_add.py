"""``wicketgate add``: a stranger's ``server.json`` becomes one entry, and only what was shown."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli import cli
from app.commands.add import _shown, with_upstream
from app.commands.registry_entry import FoundServer, NotAddable, read_server
from tests.support.debian import debian_program
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.upstreams.mcp.sandbox import Sandbox

PYPI = {"registryType": "pypi", "identifier": "mcp-server-time", "version": "2025.9.1"}
NPM = {"registryType": "npm", "identifier": "@acme/weather", "version": "1.2.0"}
OCI = {"registryType": "oci", "identifier": "docker.io/acme/weather:1.2.0"}
DIGEST = f"ghcr.io/acme/weather@sha256:{'a' * 64}"
REMOTE = {"type": "streamable-http", "url": "https://weather.example/mcp"}
SECRET = {"name": "API_KEY", "isSecret": True, "isRequired": True, "description": "The key"}


def document(*packages: Mapping[str, Any], remotes: Any = (), **more: Any) -> dict[str, Any]:
    whole = {"name": "io.github.acme/weather", "version": "1.2.0", "description": "Weather", "packages": [*packages]}
    return {**whole, "remotes": [*remotes], **more}


def having(package: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return document({**package, **more})


@requirement("OPS-582", "OPS-583")
@pytest.mark.parametrize(
    ("given", "settings"),
    [
        (document(PYPI), {"command": ["uvx", "mcp-server-time@2025.9.1"]}),
        (document(NPM), {"command": ["npx", "-y", "@acme/weather@1.2.0"]}),
        ({"server": document(NPM), "_meta": {}}, {"command": ["npx", "-y", "@acme/weather@1.2.0"]}),
        (document({"registryType": "mcpb"}, NPM), {"command": ["npx", "-y", "@acme/weather@1.2.0"]}),
        (document(OCI), {"command": ["docker", "run", "-i", "--rm", "docker.io/acme/weather:1.2.0"]}),
        (document({**OCI, "identifier": DIGEST}), {"command": ["docker", "run", "-i", "--rm", DIGEST]}),
        (
            document({**OCI, "identifier": "acme/weather", "version": "1.2.0"}),
            {"command": ["docker", "run", "-i", "--rm", "acme/weather:1.2.0"]},
        ),
        (
            having(OCI, environmentVariables=[SECRET, {"name": "UNIT", "default": "C"}, {"name": "LANG"}]),
            {
                "command": ["docker", "run", "-i", "--rm", "-e", "API_KEY", "-e", "UNIT", OCI["identifier"]],
                "env": {"API_KEY": "${MCP_WEATHER_API_KEY}", "UNIT": "C"},
            },
        ),
        (
            having(
                NPM,
                runtimeArguments=[{"type": "named", "name": "-y"}],
                packageArguments=[
                    {"type": "named", "name": "--stdio"},
                    {"type": "named", "name": "--city", "valueHint": "city", "isRequired": True},
                    {"type": "named", "name": "--depth", "valueHint": "n"},
                    {"type": "positional", "value": "{dir}/x", "variables": {"dir": {"default": "/data"}}},
                    {"type": "positional", "valueHint": "data-dir", "isRequired": True},
                ],
            ),
            {
                "command": [
                    "npx",
                    "-y",
                    "@acme/weather@1.2.0",
                    "--stdio",
                    "--city",
                    "${MCP_WEATHER_CITY}",
                    "/data/x",
                    "${MCP_WEATHER_DATA_DIR}",
                ]
            },
        ),
        (document(remotes=[REMOTE]), {"url": REMOTE["url"]}),
        (document(remotes=[{**REMOTE, "type": "sse"}]), {"url": REMOTE["url"], "transport": "sse"}),
        (
            document(
                remotes=[
                    {
                        **REMOTE,
                        "url": "https://weather.example/{tenant}/mcp",
                        "variables": {"tenant": {"isRequired": True}},
                        "headers": [
                            {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": SECRET}},
                            {"name": "X-Key", "isSecret": True},
                        ],
                    }
                ]
            ),
            {
                "url": "https://weather.example/${MCP_WEATHER_TENANT}/mcp",
                "headers": {"Authorization": "Bearer ${MCP_WEATHER_TOKEN}", "X-Key": "${MCP_WEATHER_X_KEY}"},
            },
        ),
    ],
)
def test_each_kind_becomes_an_entry_in_one_version(given: dict[str, Any], settings: dict[str, Any]) -> None:
    found = read_server(given)
    assert found.settings == {"name": "weather", **settings}
    assert set(found.variables) == {each[2:-1] for each in _references(found.settings)}


def _references(settings: dict[str, Any]) -> list[str]:
    texts = [*settings.get("command", []), *settings.get("env", {}).values(), *settings.get("headers", {}).values()]
    words = [part for text in [*texts, settings.get("url", "")] for part in text.replace("/", " ").split()]
    return [word for word in words if word.startswith("${")]


@requirement("OPS-582", "OPS-583")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "not an object"),
        ({"server": 1}, "not an object"),
        ({"version": "1"}, "no name"),
        (document(), "neither a package nor a URL"),
        (document({"registryType": "mcpb"}), "not mcpb"),
        (document({**NPM, "version": "latest"}), "could change"),
        (document({**NPM, "version": "^1.0.0"}), "could change"),
        (document({**NPM, "version": None}), "could change"),
        (document({**NPM, "version": "1"}), "could change"),
        (document({**NPM, "version": "1.x"}), "could change"),
        (document({**OCI, "identifier": "acme/weather:latest", "version": "1.0"}), "could change"),
        (document({**NPM, "registryType": ["npm"]}), "not"),
        (having(NPM, runtimeArguments=[{"name": ["-y"]}]), "of npx"),
        (having(NPM, packageArguments=[{"value": {"a": 1}}]), "neither a text nor a number"),
        (having(NPM, environmentVariables=[{"name": "npm_config_registry", "value": "x"}]), "reads too"),
        (having(NPM, environmentVariables=[{"name": "NODE_OPTIONS", "value": "x"}]), "reads too"),
        (having(NPM, environmentVariables=[{"name": "LD_PRELOAD", "isRequired": True}]), "reads too"),
        ({"server": document(NPM), "_meta": {"official": {"status": "deleted"}}}, "withdrawn"),
        (document({**OCI, "identifier": "acme/weather:latest"}), "not the name|could change"),
        (document({**OCI, "identifier": "acme/weather"}), "could change"),
        (document({**NPM, "identifier": "--eval=x"}), "not the name of a package"),
        (document({**NPM, "identifier": "a b"}), "not the name of a package"),
        (document({**NPM, "identifier": "https://evil.example/x.tgz"}), "not the name of a package"),
        (document({**PYPI, "identifier": "x @ git+https://evil.example"}), "not the name of a package"),
        (document({**OCI, "identifier": "--privileged"}), "not the name of a package"),
        (having(OCI, runtimeArguments=[{"type": "named", "name": "--privileged"}]), "--privileged of docker"),
        (having(OCI, runtimeArguments=[{"type": "named", "name": "-i", "value": "-v/:/host"}]), "of docker"),
        (having(NPM, runtimeArguments=[{"type": "positional", "value": "--node-options"}]), "of npx"),
        (having(NPM, transport={"type": "streamable-http", "url": "http://localhost:1"}), "start it by yourself"),
        (having(NPM, packageArguments=[{"type": "positional", "value": "${cmd:touch /tmp/x}"}]), r"has a \$"),
        (having(NPM, packageArguments=[{"value": "{a}", "variables": {"a": {"value": "$A"}}}]), r"has a \$"),
        (having(NPM, environmentVariables=[{"name": "A", "default": "${file:/etc/passwd}"}]), r"has a \$"),
        (having(NPM, environmentVariables=[{"name": "A=B", "value": "1"}]), "name of a variable"),
        (having(NPM, environmentVariables=[{"name": "A", "value": "a\nb"}]), "control character"),
        (having(NPM, environmentVariables=[{"name": "A"}] * 101), "at most 100"),
        (having(NPM, packageArguments=[{"type": "named", "name": "-x;y"}]), "name of an option"),
        (document(remotes=[{**REMOTE, "url": "http://weather.example/mcp"}]), "https://"),
        (document(remotes=[{**REMOTE, "url": "https://{h}/mcp", "variables": {"h": {"isSecret": True}}}]), "https://"),
        (document(remotes=[{**REMOTE, "url": "file:///etc/passwd"}]), "https://"),
        (document(remotes=[{**REMOTE, "type": "websocket"}]), "no transport"),
        (document(remotes=[{**REMOTE, "headers": [{"name": "X\r\nY", "value": "1"}]}]), "control character"),
        (document(NPM, version="\x1b[2J"), "control character"),
        (document(NPM, name="x" * 2_000), "more than 1000"),
    ],
)  # fmt: skip
def test_a_document_that_wants_more_than_it_says_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(NotAddable, match=reason):
        read_server(given)


FOUND_TIME = {"name": "weather", "command": ["uvx", "mcp-server-time@2025.9.1"]}
FOUND = FoundServer("io.github.acme/weather", "1.2.0", "", {"name": "weather", "command": ["uvx", "a@1"]}, {}, ())


@requirement("OPS-581")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "# empty\n",
        "upstreams: []\n",
        "upstreams:   # none yet\nserver: {port: 1}\n",
        "mcp: {direct: no}\nupstreams:\n  # mine\n  - {name: a, url: 'https://a.example'} # first\n\n# b\nmodel: {}\n",
        "upstreams:\n- name: a\n  url: https://a.example\n- name: b\n  url: https://b.example",
        "upstreams:\n    - name: a\n      url: https://a.example\n\n\nmcp:\n  face: gateway\n",
        "server: {port: 1}",
    ],
)  # fmt: skip
def test_the_rest_of_the_file_stays_as_it_is(text: str) -> None:
    made = with_upstream(text, FOUND, "d" * 64, Path("w.yaml"))
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(made)
    assert after.pop("upstreams") == [*(before.pop("upstreams", None) or []), FOUND.settings]
    assert after == before
    kept = [line for line in text.splitlines() if line.strip() and not line.startswith("upstreams")]
    assert [line for line in made.splitlines() if line in kept] == kept
    assert f"# io.github.acme/weather 1.2.0, server.json sha256 {'d' * 64}" in made
    with pytest.raises(ConfigError, match="has an upstream weather already"):
        with_upstream(made, FOUND, "d" * 64, Path("w.yaml"))


@requirement("OPS-581")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("upstreams: [{name: a, url: 'https://a.example'}]\n", "Insert this by hand:\n# io.github"),
        ('{"upstreams": [{"name": "a"}]}', "Insert this by hand"),
        ("upstreams: {}\n- a\n", "In w.yaml"),
        ("upstreams: 3\n", "no configuration with a list"),
        ("- 1\n", "no configuration with a list"),
    ],
)
def test_a_file_that_cannot_be_changed_in_one_place_is_left(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        with_upstream(text, FOUND, "", Path("w.yaml"))


def run(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["add", *words], input=answer)


@requirement("OPS-581", "OPS-583")
def test_it_shows_asks_and_writes_nothing_without_an_answer(folder: Path) -> None:
    (folder / "server.json").write_text(json.dumps(having(NPM, environmentVariables=[SECRET, {"name": "UNIT"}])))
    refused = run("server.json")
    assert isinstance(refused.exception, ConfigError)
    assert "--yes answers" in str(refused.exception)
    for line in (
        "Starts   npx -y @acme/weather@1.2.0",
        "Gives    API_KEY=${MCP_WEATHER_API_KEY}",
        "Without  UNIT",
        "none: it may",
    ):
        assert line in refused.stdout
    assert not (folder / "wicketgate.yaml").exists()
    done = run("server.json", "--yes", "--as", "sky", "--no-sandbox")
    assert done.exit_code == 0, done.output
    assert "  MCP_SKY_API_KEY  (secret: The key)" in done.stderr
    written = yaml.safe_load((folder / "wicketgate.yaml").read_text())
    command = ["npx", "-y", "@acme/weather@1.2.0"]
    assert written == {"upstreams": [{"name": "sky", "command": command, "env": {"API_KEY": "${MCP_SKY_API_KEY}"}}]}


@requirement("OPS-581", "OPS-582")
async def test_a_registry_is_asked_for_the_version_and_no_other_is_taken(folder: Path) -> None:
    asked: list[str] = []
    given: dict[str, Any] = {"": {"server": document(PYPI)}}

    async def answer(seen: Seen) -> Reply:
        asked.append(seen.target)
        return Reply(json.dumps(given[""]).encode(), 200 if "weather" in seen.target else 404)

    async with HttpService(answer) as service:

        async def add(*words: str) -> Result:
            return await asyncio.to_thread(run, *words, "--yes", "--registry", service.url)

        assert (await add("io.github.acme/weather@1.2.0")).exit_code == 0
        assert asked == ["/v0/servers/io.github.acme%2Fweather/versions/1.2.0"]
        assert "HTTP status 404" in str((await add("io.github.acme/nosuch")).exception)
        assert asked[-1].endswith("/versions/latest")
        other = str((await add("io.github.acme/weather@1.3.0", "--as", "b")).exception)
        assert "the registry gave io.github.acme/weather 1.2.0" in other
        given[""] = {"x": "y" * 2_000_000}
        assert "more than 1 MiB" in str((await add("io.github.acme/weather", "--as", "c")).exception)
    assert "Give its base URL" in str(run("io.github.acme/weather", "--yes").exception)
    assert len(yaml.safe_load((folder / "wicketgate.yaml").read_text())["upstreams"]) == 1


@requirement("OPS-581", "OPS-584")
async def test_what_was_added_answers_and_is_isolated_where_that_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of the program that fetches packages from an index: the package is installed here.
    tools = folder / "bin"
    tools.mkdir()
    server = shutil.which("mcp-server-time", path=str(Path(sys.executable).parent))
    (tools / "uvx").write_text(f'#!/bin/sh\nshift\nexec {server} "$@"\n')
    (tools / "uvx").chmod(0o755)
    found = debian_program("bwrap", "bubblewrap")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tools), str(found.path.parent), os.environ["PATH"]]))
    (folder / "server.json").write_text(json.dumps(having(PYPI)))
    for words, told in ((("--no-sandbox",), "none: it may do"), (("--as", "other"), "its own files, the network")):
        added = await asyncio.to_thread(run, "server.json", "--yes", *words)
        assert added.exit_code == 0, added.output
        assert told in added.stdout
    settings = Settings.load("wicketgate.yaml")
    sandboxes = [settings.sandbox_of(each) for each in settings.upstreams]
    assert sandboxes == [None, Sandbox(network=True, processes=256)]
    await asyncio.to_thread(Path("wicketgate.yaml").write_text, yaml.safe_dump({"upstreams": [FOUND_TIME]}))
    async with asyncio.timeout(BOUND_S), Gate(Settings.load("wicketgate.yaml")) as gate:
        called = await gate.runtime.execute("weather:get_current_time", {"timezone": "UTC"})
        assert "UTC" in str(called)


@requirement("OPS-583", "OPS-584")
def test_what_a_stranger_names_is_shown_where_the_sandbox_opens_it(tmp_path: Path) -> None:
    home = {"valueHint": "home", "isRequired": True}
    found = read_server(having(NPM, packageArguments=[{"value": "/root"}, home, {"value": True}]))
    assert found.settings["command"][3:] == ["/root", "${MCP_WEATHER_HOME}", "true"]
    shown = "\n".join(_shown(found, tmp_path / "wicketgate.yaml", isolated=True))
    assert "its own files, the network, to read /root, if it is a path, to read ${MCP_WEATHER_HOME}" in shown


@requirement("OPS-581")
def test_a_name_that_a_client_file_has_already_is_taken(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has an upstream weather already"):
        with_upstream("mcpServers: {weather: {command: x}}\n", read_server(document(NPM)), "0", tmp_path)
