"""Finds the files of the clients of this machine for ``wicketgate import`` (OPS-80)."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from app.clients import CLIENTS, Client, user_files
from app.commands.import_entry import ClientServer
from app.commands.import_file import ClientConfig, find_config, parse_file
from app.commands.import_tools import from_rules
from wicketgate.errors import ConfigError

_MAX_FILES = 200

# Further files of some clients, which connect does not write: other editions, and folders with a file for each server.
_FURTHER = (
    Client("vscode", "VS Code Insiders", ("{config}/Code - Insiders/User/mcp.json",)),
    Client("vscode", "VSCodium", ("{config}/VSCodium/User/mcp.json",)),
    Client(
        "opencode",
        "opencode",
        ("~/.config/opencode/opencode.jsonc", "~/.config/opencode/config.json"),
        ("opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
    ),
    Client(
        "continue",
        "Continue",
        ("~/.continue/mcpServers/*.yaml", "~/.continue/mcpServers/*.yml", "~/.continue/mcpServers/*.json"),
        (".continue/mcpServers/*.yaml", ".continue/mcpServers/*.yml", ".continue/mcpServers/*.json"),
    ),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The places to look in: *platform* as in ``sys.platform``, the folder of the project, and the environment."""

    platform: str
    project: Path
    environ: Mapping[str, str]

    def places(self, names: Collection[str]) -> Iterator[tuple[Client, Path]]:
        """Yields the files that the clients *names* may have, those of the user first. A name may hold ``*``."""
        clients = [client for client in (*CLIENTS.values(), *_FURTHER) if client.name in names]
        for client in clients:
            yield from ((client, path) for path in self._user_files(client))
        for client in clients:
            yield from ((client, self.project / file) for file in client.project_files)

    def files(self, names: Collection[str]) -> Iterator[tuple[Client, Path]]:
        """Yields those that are there, each once."""
        seen: set[Path] = set()
        for client, place in self.places(names):
            paths = sorted(place.parent.glob(place.name)) if "*" in place.name else [place]
            for path in paths[:_MAX_FILES]:
                try:
                    known = path.resolve()
                    there = path.is_file() and known not in seen
                except (OSError, RuntimeError):  # no right to look, or a link to itself
                    continue
                if there and len(seen) < _MAX_FILES:
                    seen.add(known)
                    yield client, path

    def shown(self, path: Path) -> str:
        """The path as a person writes it: from the project or the home folder, if it is below."""
        if path.is_relative_to(self.project):
            return str(path.relative_to(self.project))
        home = self._home()
        return f"~/{path.relative_to(home)}" if home and path.is_relative_to(home) else str(path)

    def owner(self, path: Path) -> str:
        """Returns the name of the client that has this file, or one of the same name in another folder."""
        tail = path.absolute().parts[-2:]
        for client, place in self.places(CLIENTS):
            file = place.name
            if path.absolute() == place or tail == place.parts[-2:] or (path.name == file and file not in _COMMON):
                return client.name
        return ""

    def read(self, client: str, path: Path) -> ClientConfig:
        """Reads a file, with what other files of the client switch off in it. Raises ConfigError."""
        config = find_config(path, client)
        if client != "claude-code" or not config.servers:
            return config
        disabled, rules = self._claude_switches(path)
        return replace(config, servers=tuple(_switched(server, disabled, rules) for server in config.servers))

    def _user_files(self, client: Client) -> tuple[Path, ...]:
        try:
            return user_files(client, self.platform, self.environ)
        except KeyError:  # no home folder
            return ()

    def _home(self) -> Path | None:
        named = self.environ.get("HOME") or self.environ.get("USERPROFILE")
        return Path(named) if named else None

    def _claude_home(self) -> Path | None:
        named, home = self.environ.get("CLAUDE_CONFIG_DIR"), self._home()
        return Path(named) if named else home and home / ".claude"

    def _claude_switches(self, path: Path) -> tuple[frozenset[str], dict[str, bool]]:
        """Names of servers that the settings of Claude Code switch off, and its rules on tools."""
        home = self._claude_home()
        folders = dict.fromkeys((path.parent / ".claude", *([home] if home else [])))
        disabled: list[object] = []
        denied: list[object] = []
        for file in (folder / name for folder in folders for name in _CLAUDE_SETTINGS):
            root = _parsed(file)
            permissions = root.get("permissions")
            disabled += _list(root.get("disabledMcpjsonServers"))
            denied += _list(permissions.get("deny") if isinstance(permissions, Mapping) else None)
        # What the user answered when asked about the servers of this folder.
        if path.name == ".mcp.json":
            own = (_parsed(file).get("projects") for file in self._user_files(CLIENTS["claude-code"]))
            projects = next(own, None)
            project = projects.get(str(path.parent.absolute())) if isinstance(projects, Mapping) else None
            if isinstance(project, Mapping):
                disabled += _list(project.get("disabledMcpjsonServers")) + _list(project.get("disabledMcpServers"))
        names = frozenset(name for name in disabled if isinstance(name, str))
        return names, {rule: False for rule in denied if isinstance(rule, str) and rule.startswith("mcp__")}


_COMMON = frozenset({"settings.json", "mcp.json", "config.json", "config.yaml", "config.toml"})
_CLAUDE_SETTINGS = ("settings.json", "settings.local.json")


def client_named(word: str) -> str | None:
    """Returns the name of the client that *word* names, None for a path. Raises ConfigError for a name of none."""
    if word in CLIENTS:
        return word
    if word and (Path(word).exists() or re.search(r"[/\\.]", word)):
        return None
    close = get_close_matches(word.lower(), CLIENTS, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"the clients are {', '.join(CLIENTS)}"
    raise ConfigError(f"{word!r} is neither a file nor a client known here: {hint}")


def _switched(server: ClientServer, disabled: Collection[str], rules: Mapping[str, bool]) -> ClientServer:
    notes: list[str] = []
    # Tools are mcp__server__tool; mcp__server alone is all of them.
    prefix = "mcp__" + re.sub(r"[^a-zA-Z0-9_-]", "_", server.name)
    tools = from_rules({("*" if rule == prefix else rule): on for rule, on in rules.items()}, f"{prefix}_", notes)
    off = server.disabled or tools is None or server.name in disabled
    return replace(server, disabled=off, tools=tools or server.tools, notes=(*server.notes, *notes))


def _parsed(path: Path) -> Mapping[str, object]:
    """The file's members; none if it is not there or not readable: its owner looks after it."""
    try:
        root = parse_file(path, []) if path.is_file() else None
    except (ConfigError, OSError):
        return {}
    return root if isinstance(root, Mapping) else {}


def _list(value: object) -> list[object]:
    return value[:1000] if isinstance(value, list) else []
