"""The MCP clients of a person's machine, and where each keeps the list of its servers.

``wicketgate import`` reads these files, ``wicketgate connect`` writes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Client:
    """*name* is that of the command line, *title* that of the program.

    *files* are the files of the user, the one that is written first, *project_files* those of a project folder. In
    *files* ``~`` stands for the home folder, ``{config}`` for the folder where programs of this system keep their
    settings, and ``{xdg}`` for the one where those keep them that follow the XDG rules everywhere.
    *folders* are there if the client was installed or started once. *block_file* is set if the client reads a file of
    its own for each entry: the name of that file in its folder, and in a project. *in_terminal* clients are started
    from a shell and have its variables. *program* is the command that a shell finds on the PATH. *searches* is set if
    the client loads tools on demand by itself, so that it needs all of them and no search at the gate (OPS-460).
    """

    name: str
    title: str
    files: tuple[str, ...]
    project_files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    block_file: str = ""
    in_terminal: bool = False
    program: str = ""
    searches: bool = False


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            "claude-desktop",
            "Claude Desktop",
            ("{config}/Claude/claude_desktop_config.json",),
            folders=("{config}/Claude",),
        ),
        Client(
            "claude-code",
            "Claude Code",
            ("~/.claude.json",),
            (".mcp.json",),
            folders=("~/.claude",),
            in_terminal=True,
            program="claude",
            searches=True,
        ),
        Client("cursor", "Cursor", ("~/.cursor/mcp.json",), (".cursor/mcp.json",), folders=("~/.cursor",)),
        Client(
            "vscode",
            "VS Code",
            ("{config}/Code/User/mcp.json", "{config}/Code/User/settings.json"),
            (".vscode/mcp.json", ".vscode/settings.json"),
            folders=("{config}/Code",),
        ),
        Client("windsurf", "Windsurf", ("~/.codeium/windsurf/mcp_config.json",), folders=("~/.codeium/windsurf",)),
        Client("zed", "Zed", ("{xdg}/zed/settings.json",), (".zed/settings.json",), folders=("{xdg}/zed",)),
        Client(
            "cline",
            "Cline",
            (
                "{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ),
            folders=("{config}/Code/User/globalStorage/saoudrizwan.claude-dev", "~/.cline"),
        ),
        Client(
            "continue",
            "Continue",
            ("~/.continue/config.yaml", "~/.continue/config.json"),
            folders=("~/.continue",),
            block_file=".continue/mcpServers/{name}.yaml",
        ),
        Client(
            "codex",
            "Codex",
            ("~/.codex/config.toml",),
            (".codex/config.toml",),
            folders=("~/.codex",),
            in_terminal=True,
            program="codex",
        ),
        Client(
            "gemini",
            "Gemini CLI",
            ("~/.gemini/settings.json",),
            (".gemini/settings.json",),
            folders=("~/.gemini",),
            in_terminal=True,
            program="gemini",
        ),
        Client(
            "opencode",
            "opencode",
            ("{xdg}/opencode/opencode.json", "{xdg}/opencode/opencode.jsonc"),
            ("opencode.json", "opencode.jsonc"),
            folders=("{xdg}/opencode",),
            in_terminal=True,
            program="opencode",
            searches=True,
        ),
    )
}


def user_files(client: Client, platform: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the paths of the client's own files, existing or not. *platform* is as in ``sys.platform``.

    Raises KeyError if the environment names no home folder.
    """
    if client.name == "codex" and environ.get("CODEX_HOME"):
        return (Path(environ["CODEX_HOME"], "config.toml"),)
    if client.name == "claude-code" and environ.get("CLAUDE_CONFIG_DIR"):
        return (Path(environ["CLAUDE_CONFIG_DIR"], ".claude.json"),)
    return tuple(_place(file, platform, environ) for file in client.files)


def user_folders(client: Client, platform: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the folders that show that the client is here. Raises KeyError as ``user_files`` does."""
    own = tuple(file.parent for file in user_files(client, platform, environ)[:1]) if client.name == "codex" else ()
    return own or tuple(_place(folder, platform, environ) for folder in client.folders)


def written_files(client: Client, name: str, platform: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the files of the user that may get the entry *name*, the preferred one first."""
    if client.block_file:
        return (_place(f"~/{client.block_file.format(name=name)}", platform, environ),)
    files = user_files(client, platform, environ)
    return files[:1] if client.name == "vscode" else files  # settings.json is read, but no place for it any more


def written_project_files(client: Client, name: str) -> tuple[str, ...]:
    """Returns the same of a project folder; empty if the client knows no projects."""
    if client.block_file:
        return (client.block_file.format(name=name),)
    return client.project_files[:1] if client.name == "vscode" else client.project_files


def find_files(platform: str, project: Path, environ: Mapping[str, str]) -> Iterator[tuple[Client, Path]]:
    """Yields the files that are there, those of the folder *project* after those of the user."""
    for client in CLIENTS.values():
        yield from ((client, path) for path in user_files(client, platform, environ) if path.is_file())
    for client in CLIENTS.values():
        yield from ((client, project / file) for file in client.project_files if (project / file).is_file())


def _place(file: str, platform: str, environ: Mapping[str, str]) -> Path:
    home = environ["USERPROFILE"] if platform == "win32" and "USERPROFILE" in environ else environ["HOME"]
    xdg = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    if platform == "win32" and file.startswith("{xdg}/zed"):
        file = file.replace("{xdg}/zed", "{config}/Zed")
    file = file.replace("{config}", _settings_folder(platform, home, environ)).replace("{xdg}", xdg)
    return Path(file.replace("~", home, 1) if file.startswith("~") else file)


def _settings_folder(platform: str, home: str, environ: Mapping[str, str]) -> str:
    match platform:
        case "darwin":
            return f"{home}/Library/Application Support"
        case "win32":
            return environ.get("APPDATA") or f"{home}/AppData/Roaming"
    return environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
