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
    *files* ``~`` stands for the home folder, and ``{config}`` for the folder where programs of this system keep their
    settings.
    """

    name: str
    title: str
    files: tuple[str, ...]
    project_files: tuple[str, ...] = ()


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("claude-desktop", "Claude Desktop", ("{config}/Claude/claude_desktop_config.json",)),
        Client("claude-code", "Claude Code", ("~/.claude.json",), (".mcp.json",)),
        Client("cursor", "Cursor", ("~/.cursor/mcp.json",), (".cursor/mcp.json",)),
        Client(
            "vscode",
            "VS Code",
            ("{config}/Code/User/mcp.json", "{config}/Code/User/settings.json"),
            (".vscode/mcp.json", ".vscode/settings.json"),
        ),
        Client("windsurf", "Windsurf", ("~/.codeium/windsurf/mcp_config.json",)),
        Client("zed", "Zed", ("~/.config/zed/settings.json",), (".zed/settings.json",)),
        Client(
            "cline",
            "Cline",
            ("{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",),
        ),
        Client("continue", "Continue", ("~/.continue/config.yaml", "~/.continue/config.json")),
        Client("codex", "Codex", ("~/.codex/config.toml",), (".codex/config.toml",)),
        Client("gemini", "Gemini CLI", ("~/.gemini/settings.json",), (".gemini/settings.json",)),
        Client("opencode", "opencode", ("~/.config/opencode/opencode.json",), ("opencode.json",)),
    )
}


def user_files(client: Client, platform: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the paths of the client's own files, existing or not. *platform* is as in ``sys.platform``.

    Raises KeyError if the environment names no home folder.
    """
    home = environ["USERPROFILE"] if platform == "win32" and "USERPROFILE" in environ else environ["HOME"]
    if client.name == "codex" and environ.get("CODEX_HOME"):
        return (Path(environ["CODEX_HOME"], "config.toml"),)
    return tuple(
        Path(file.replace("{config}", _settings_folder(platform, home, environ)).replace("~", home, 1))
        for file in client.files
    )


def find_files(platform: str, project: Path, environ: Mapping[str, str]) -> Iterator[tuple[Client, Path]]:
    """Yields the files that are there, those of the folder *project* after those of the user."""
    for client in CLIENTS.values():
        yield from ((client, path) for path in user_files(client, platform, environ) if path.is_file())
    for client in CLIENTS.values():
        yield from ((client, project / file) for file in client.project_files if (project / file).is_file())


def _settings_folder(platform: str, home: str, environ: Mapping[str, str]) -> str:
    match platform:
        case "darwin":
            return f"{home}/Library/Application Support"
        case "win32":
            return environ.get("APPDATA") or f"{home}/AppData/Roaming"
    return environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
