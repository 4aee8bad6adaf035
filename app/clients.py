"""The MCP clients of a person's machine: where each keeps the list of its servers, and how it spells an entry.

``wicketgate import`` reads these files, ``wicketgate connect`` writes them. Where the spellings were found, in November
2026:

- Claude Code 2.1, Codex 0.169 and opencode 1.18 were given entries over stdio, and connected or listed them; Claude
  Code and Gemini CLI 0.61 connected over HTTP, with the key by reference.
- Claude Desktop: guides of servers; all agree that the file takes programs only.
- Cursor and Windsurf: guides of servers that work with them (userjot.com/docs/mcp-cursor and mcp-windsurf), which agree
  with one another on the keys and on ``${env:NAME}``. The vendors' own pages were not available.
- VS Code: microsoft/vscode, src/vs/workbench/contrib/mcp/common/mcpConfiguration.ts, and
  code.visualstudio.com/docs/copilot/reference/mcp-configuration.
- Zed: zed.dev/docs/ai/mcp. Its headers know no variables (zed-industries/zed issue 60459).
- Cline: cline/cline, src/services/mcp/schemas.ts: a url without ``streamableHttp`` is the older SSE transport. No
  variables in headers were found there.
- Continue: continuedev/continue, packages/config-yaml/src/schemas/mcp/index.ts; secrets come from .env files (issue
  5902); files of their own below the home folder: core/config/yaml/loadYaml.ts, ``includeGlobal``.
- Codex: openai/codex, codex-rs/config/src/mcp_types.rs: ``bearer_token`` is refused.
- Gemini CLI: google-gemini/gemini-cli, docs/tools/mcp-server.md: ``url`` alone is the older SSE transport.
- opencode: opencode.ai/docs/mcp-servers and /docs/migrate-v1: version 2 reads ``mcp.NAME`` of version 1 too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wicketgate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One MCP client. *name* is that of the command line, *title* that of the program.

    Files: *files* are those of the user, the preferred one first, and *project_files* those of a project folder. ``~``
    is the home folder, ``{config}`` the folder where programs of this system keep their settings, and ``{xdg}`` that of
    programs that follow the XDG rules everywhere. *read_only* is the name of a file that is read and not written.
    *folders* exist once the client was installed or started. *block_file* is set if the client reads one file for each
    entry: the name of that file in the user's folder, and in a project.

    The program: *program* is its command on the PATH. *in_terminal* clients are started from a shell and have its
    variables; *hands_on* clients pass variables on that an entry names. *searches* is set if the client loads tools on
    demand by itself, so that it needs all of them and no search at the gate (OPS-460). *next_step* is for the person.

    An entry: *place* leads to the entries in the file, *form* is ``json``, ``toml`` or ``yaml``. *start* and *reach*
    are the values of ``type``, *url* is the key of the URL (empty if the client takes programs only), and *reference*
    the reference to the key of a service (empty if there is none).
    """

    name: str
    title: str
    files: tuple[str, ...]
    project_files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    next_step: str = ""
    read_only: str = ""
    block_file: str = ""
    program: str = ""
    hands_on: bool = False
    searches: bool = False
    place: tuple[str, ...] = ("mcpServers",)
    form: str = "json"
    start: str = ""
    reach: str = ""
    url: str = "url"
    reference: str = ""

    @property
    def in_terminal(self) -> bool:
        return bool(self.program)


_CODE = "{config}/Code/User"
_CLINE = f"{_CODE}/globalStorage/saoudrizwan.claude-dev"

CLIENTS: Mapping[str, KnownClient] = {
    client.name: client
    for client in (
        KnownClient(
            "claude-desktop",
            "Claude Desktop",
            ("{config}/Claude/claude_desktop_config.json",),
            folders=("{config}/Claude",),
            next_step="Quit Claude Desktop completely and start it again.",
            url="",
        ),
        KnownClient(
            "claude-code",
            "Claude Code",
            ("~/.claude.json",),
            (".mcp.json",),
            ("~/.claude",),
            "Start claude again; /mcp shows the server.",
            program="claude",
            searches=True,
            start="stdio",
            reach="http",
            reference="${WG_KEY}",
        ),
        KnownClient(
            "cursor",
            "Cursor",
            ("~/.cursor/mcp.json",),
            (".cursor/mcp.json",),
            ("~/.cursor",),
            'In Cursor run "Developer: Reload Window"; Settings, MCP shows the server.',
            start="stdio",
            reference="${env:WG_KEY}",
        ),
        KnownClient(
            "vscode",
            "VS Code",
            (f"{_CODE}/mcp.json", f"{_CODE}/settings.json"),
            (".vscode/mcp.json", ".vscode/settings.json"),
            ("{config}/Code",),
            'In VS Code run "MCP: List Servers", choose {name}, then Start Server.',
            read_only="settings.json",
            place=("servers",),
            start="stdio",
            reach="http",
            reference="${input:NAME-key}",
        ),
        KnownClient(
            "windsurf",
            "Windsurf",
            ("~/.codeium/windsurf/mcp_config.json",),
            folders=("~/.codeium/windsurf",),
            next_step="In Windsurf open the MCP servers of Cascade and press Refresh.",
            url="serverUrl",
            reference="${env:WG_KEY}",
        ),
        KnownClient(
            "zed",
            "Zed",
            ("{xdg}/zed/settings.json",),
            (".zed/settings.json",),
            ("{xdg}/zed",),
            "Zed reads the file at once; the settings of the Agent Panel show a green dot.",
            place=("context_servers",),
        ),
        KnownClient(
            "cline",
            "Cline",
            (f"{_CLINE}/settings/cline_mcp_settings.json", "~/.cline/data/settings/cline_mcp_settings.json"),
            folders=(_CLINE, "~/.cline"),
            next_step="In Cline open MCP Servers; restart the editor if the server is not there.",
            start="stdio",
            reach="streamableHttp",
        ),
        KnownClient(
            "continue",
            "Continue",
            ("~/.continue/config.yaml", "~/.continue/config.json"),
            folders=("~/.continue",),
            next_step='In your editor run "Developer: Reload Window"; Continue uses tools in agent mode only.',
            block_file=".continue/mcpServers/{name}.yaml",
            form="yaml",
            start="stdio",
            reach="streamable-http",
            reference="${{ secrets.WG_KEY }}",
        ),
        KnownClient(
            "codex",
            "Codex",
            ("~/.codex/config.toml",),
            (".codex/config.toml",),
            ("~/.codex",),
            "Start codex again; /mcp shows the server.",
            program="codex",
            hands_on=True,
            place=("mcp_servers",),
            form="toml",
            reference="bearer_token_env_var",
        ),
        KnownClient(
            "gemini",
            "Gemini CLI",
            ("~/.gemini/settings.json",),
            (".gemini/settings.json",),
            ("~/.gemini",),
            "Start gemini again, in a folder that it trusts; /mcp shows the server.",
            program="gemini",
            hands_on=True,
            url="httpUrl",
            reference="${WG_KEY}",
        ),
        KnownClient(
            "opencode",
            "opencode",
            ("{xdg}/opencode/opencode.json", "{xdg}/opencode/opencode.jsonc"),
            ("opencode.json", "opencode.jsonc"),
            ("{xdg}/opencode",),
            "Start opencode again; opencode mcp list shows the server.",
            program="opencode",
            searches=True,
            place=("mcp",),
            start="local",
            reach="remote",
            reference="{env:WG_KEY}",
        ),
    )
}

_HOME_VARIABLES = {"codex": ("CODEX_HOME", "config.toml"), "claude-code": ("CLAUDE_CONFIG_DIR", ".claude.json")}


def user_files(client: KnownClient, platform: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the paths of the client's own files, existing or not. *platform* is as in ``sys.platform``.

    Raises ConfigError if the environment names no home folder.
    """
    variable, file = _HOME_VARIABLES.get(client.name, ("", ""))
    if environ.get(variable):
        return (Path(environ[variable], file),)
    return tuple(_place(file, platform, environ) for file in client.files)


def user_folders(client: KnownClient, platform: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the folders that show that the client is installed. Raises ConfigError as ``user_files`` does."""
    if client.name == "codex":
        return (user_files(client, platform, environ)[0].parent,)
    return tuple(_place(folder, platform, environ) for folder in client.folders)


def written_files(client: KnownClient, name: str, platform: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the files of the user that may get the entry *name*, the preferred one first."""
    if client.block_file:
        return (_place(f"~/{client.block_file.format(name=name)}", platform, environ),)
    return tuple(file for file in user_files(client, platform, environ) if file.name != client.read_only)


def written_project_files(client: KnownClient, name: str) -> tuple[str, ...]:
    """Returns the same of a project folder; empty if the client knows no projects."""
    if client.block_file:
        return (client.block_file.format(name=name),)
    return tuple(file for file in client.project_files if Path(file).name != client.read_only)


def _place(file: str, platform: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("USERPROFILE") if platform == "win32" and "USERPROFILE" in environ else environ.get("HOME")
    if home is None:
        raise ConfigError("The environment names no home folder (HOME); name the file with --path")
    xdg = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    settings = xdg
    if platform == "darwin":
        settings = f"{home}/Library/Application Support"
    elif platform == "win32":
        settings = environ.get("APPDATA") or f"{home}/AppData/Roaming"
        file = file.replace("{xdg}/zed", "{config}/Zed")
    file = file.replace("{config}", settings).replace("{xdg}", xdg)
    return Path(file.replace("~", home, 1) if file.startswith("~") else file)
