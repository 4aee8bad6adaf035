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

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KEY_VARIABLE = "WG_KEY"

# Keys of entries, of all clients: the transport, the place of a server, and what belongs to its command or its url.
KINDS = ("type", "transport")
URLS = ("url", "serverUrl", "httpUrl")
LOCAL = ("args", "env", "environment", "env_vars", "cwd")
REMOTE = ("headers", "requestOptions", "http_headers", "env_http_headers", "bearer_token", "bearer_token_env_var")


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One MCP client. *name* is that of the command line, *title* that of the program.

    Files: *files* of the user, and *project_files* of a project folder, are read and written, the preferred one first;
    those of *also_read* are only read. ``~`` is the home folder, ``{config}`` the folder where programs of this system
    keep their settings, and ``{xdg}`` that of programs that follow the XDG rules everywhere. ``{name}`` is the name of
    the entry, if the client reads one file for each. *home* is the variable that names another folder for *files*.

    The program: *program* is its command on the PATH. *in_terminal* clients are started from a shell and have its
    variables. *searches* is set if the client loads tools on demand by itself, so that it needs all of them and no
    search at the gate (OPS-460). *next_step* is for the person.

    An entry: *place* leads to the entries in the file, *form* is ``json``, ``toml`` or ``yaml``. *start* and *reach*
    are the values of ``type``, *url* is the key of the URL (empty if the client takes programs only), *headers* leads
    to the headers, and *reference* is the reference to the key of a service (empty if there is none). *key_note* says
    where the key of that reference comes from. *timeout_unit_s* is the unit of ``timeout``, None if it is not known.
    """

    name: str
    title: str
    files: tuple[str, ...]
    next_step: str
    project_files: tuple[str, ...] = ()
    also_read: tuple[str, ...] = ()
    home: str = ""
    program: str = ""
    searches: bool = False
    place: tuple[str, ...] = ("mcpServers",)
    form: str = "json"
    start: str = ""
    reach: str = ""
    url: str = "url"
    headers: tuple[str, ...] = ("headers",)
    reference: str = ""
    key_note: str = f"set {KEY_VARIABLE} in the environment that {{title}} is started with"
    timeout_unit_s: float | None = None

    @property
    def in_terminal(self) -> bool:
        return bool(self.program)

    def user_files(self, name: str = "*", *, written: bool = False) -> list[Path]:
        """Returns the paths of the user's files, existing or not; with *written* only those that may get the entry
        *name*. None without a home folder."""
        folder = os.environ.get(self.home)
        files = self.files if written else (*self.files, *filter(_of_user, self.also_read))
        home = os.environ.get("HOME")
        if folder:
            return [Path(folder, Path(file).name) for file in files]
        if not home:
            return []
        xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        config = f"{home}/Library/Application Support" if sys.platform == "darwin" else xdg
        return [Path(file.replace("~", home, 1).format(config=config, xdg=xdg, name=name)) for file in files]

    def files_of_project(self, name: str = "*", *, written: bool = False) -> list[Path]:
        """Returns the same of the current folder; none if the client knows no projects."""
        read = () if written else (file for file in self.also_read if not _of_user(file))
        return [Path.cwd() / file.format(name=name) for file in (*self.project_files, *read)]


def _of_user(file: str) -> bool:
    return file.startswith(("~", "{"))


_CODE = "{config}/Code/User"
_CLINE = "settings/cline_mcp_settings.json"

CLIENTS: Mapping[str, KnownClient] = {
    client.name: client
    for client in (
        KnownClient(
            "claude-desktop",
            "Claude Desktop",
            ("{config}/Claude/claude_desktop_config.json",),
            "Quit Claude Desktop completely and start it again.",
            url="",
        ),
        KnownClient(
            "claude-code",
            "Claude Code",
            ("~/.claude.json",),
            "Start claude again; /mcp shows the server.",
            (".mcp.json",),
            home="CLAUDE_CONFIG_DIR",
            program="claude",
            searches=True,
            start="stdio",
            reach="http",
            reference="${WG_KEY}",
            timeout_unit_s=0.001,
        ),
        KnownClient(
            "cursor",
            "Cursor",
            ("~/.cursor/mcp.json",),
            'In Cursor run "Developer: Reload Window"; Settings, MCP shows the server.',
            (".cursor/mcp.json",),
            start="stdio",
            reference="${env:WG_KEY}",
        ),
        KnownClient(
            "vscode",
            "VS Code",
            (f"{_CODE}/mcp.json",),
            'In VS Code run "MCP: List Servers", choose {name}, then Start Server.',
            (".vscode/mcp.json",),
            # Also of its other editions.
            (
                f"{_CODE}/settings.json",
                "{config}/Code - Insiders/User/mcp.json",
                "{config}/VSCodium/User/mcp.json",
                ".vscode/settings.json",
            ),
            place=("servers",),
            start="stdio",
            reach="http",
            reference="${input:{name}-key}",
            key_note="VS Code asks for the key once, and keeps it",
        ),
        KnownClient(
            "windsurf",
            "Windsurf",
            ("~/.codeium/windsurf/mcp_config.json",),
            "In Windsurf open the MCP servers of Cascade and press Refresh.",
            url="serverUrl",
            reference="${env:WG_KEY}",
        ),
        KnownClient(
            "zed",
            "Zed",
            ("{xdg}/zed/settings.json",),
            "Zed reads the file at once; the settings of the Agent Panel show a green dot.",
            (".zed/settings.json",),
            place=("context_servers",),
            timeout_unit_s=1,
        ),
        KnownClient(
            "cline",
            "Cline",
            (f"{_CODE}/globalStorage/saoudrizwan.claude-dev/{_CLINE}", f"~/.cline/data/{_CLINE}"),
            "In Cline open MCP Servers; restart the editor if the server is not there.",
            start="stdio",
            reach="streamableHttp",
            timeout_unit_s=1,
        ),
        KnownClient(
            "continue",
            "Continue",
            ("~/.continue/mcpServers/{name}.yaml",),
            'In your editor run "Developer: Reload Window"; Continue uses tools in agent mode only.',
            (".continue/mcpServers/{name}.yaml",),
            (
                "~/.continue/config.yaml",
                "~/.continue/mcpServers/{name}.yml",
                "~/.continue/mcpServers/{name}.json",
                ".continue/mcpServers/{name}.yml",
                ".continue/mcpServers/{name}.json",
            ),
            form="yaml",
            start="stdio",
            reach="streamable-http",
            headers=("requestOptions", "headers"),
            reference="${{ secrets.WG_KEY }}",
            key_note=f"put the line {KEY_VARIABLE}=... into ~/.continue/.env",
        ),
        KnownClient(
            "codex",
            "Codex",
            ("~/.codex/config.toml",),
            "Start codex again; /mcp shows the server.",
            (".codex/config.toml",),
            home="CODEX_HOME",
            program="codex",
            place=("mcp_servers",),
            form="toml",
            headers=("http_headers",),
            reference="bearer_token_env_var",
            timeout_unit_s=1,
        ),
        KnownClient(
            "gemini",
            "Gemini CLI",
            ("~/.gemini/settings.json",),
            "Start gemini again, in a folder that it trusts; /mcp shows the server.",
            (".gemini/settings.json",),
            program="gemini",
            url="httpUrl",
            reference="${WG_KEY}",
            timeout_unit_s=0.001,
        ),
        KnownClient(
            "opencode",
            "opencode",
            ("{xdg}/opencode/opencode.json", "{xdg}/opencode/opencode.jsonc"),
            "Start opencode again; opencode mcp list shows the server.",
            ("opencode.json", "opencode.jsonc"),
            ("{xdg}/opencode/config.json", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
            program="opencode",
            searches=True,
            place=("mcp",),
            start="local",
            reach="remote",
            reference="{env:WG_KEY}",
            timeout_unit_s=0.001,
        ),
    )
}


def shown_path(path: Path) -> str:
    """Returns the path as a person writes it: relative to this folder or the home folder, if it is below."""
    home = os.environ.get("HOME")
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return f"~/{path.relative_to(home)}" if home and path.is_relative_to(home) else str(path)
