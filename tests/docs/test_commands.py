"""Every command of the documentation runs, page by page, or is parsed where it cannot run here, with the reason."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.docs.forked import client
from tests.docs.pages import blocks, pages
from tests.docs.shell import NOT_RUN, bash, lines_of, parse, reason_not_run, script_of
from tests.support.ports import free_port
from tests.support.process import ROOT, program
from tests.support.requirement import requirement
from wicketgate.storage.keys import new_key

PROGRAMS = ("wicketgate", "curl", "docker", "kubectl", "npx", "uvicorn", "pip", "uvx", "python")

TOOLS = """
from wicketgate import ToolRegistry

shop = ToolRegistry()
github = ToolRegistry()
files = ToolRegistry()
clock = ToolRegistry()

@shop.tool(read_only=True)
def search_customers(words: str) -> list[dict[str, str]]:
    \"\"\"Find customers by words.\"\"\"
    return [{"id": "cust_0001", "name": words}]

@github.tool(read_only=True)
def list_commits(repository: str) -> list[str]:
    \"\"\"List the commits of a repository.\"\"\"
    return []

@github.tool
def create_issue(title: str) -> str:
    \"\"\"Open an issue.\"\"\"
    return title

@files.tool(read_only=True)
def read(path: str) -> str:
    \"\"\"Read a file.\"\"\"
    return path

@clock.tool(read_only=True)
def get_current_time(timezone: str) -> str:
    \"\"\"Get the current time in a timezone.\"\"\"
    return f"12:00 in {timezone}"
"""

CONFIG = """
model: {{provider: scripted}}
storage: {{url: "sqlite:///gate.db"}}
auth: {{keys: [{keys}]}}
access:
  - {{match: "time:get_current_time", when: "actor == 'approver'", approval: always}}
upstreams:
  - {{name: shop, python: "docs_tools:shop"}}
  - {{name: github, python: "docs_tools:github"}}
  - {{name: files, python: "docs_tools:files"}}
"""

CLOCK = "  - {name: time, command: [mcp-server-time, --local-timezone=UTC]}\n"
# In the place of a server that takes two seconds to start, for pages that start a gate with each command.
QUICK_CLOCK = '  - {name: time, python: "docs_tools:clock"}\n'

# What is in the folder besides the gate's configuration, and runs before the first block.
BEFORE = {
    "docs/guide/start.md": "rm wicketgate.yaml",
    "docs/guide/mcp-clients.md": "mkdir .cursor",
    "docs/guide/mcp-servers.md": """
        rm wicketgate.yaml; mkdir -p .cursor .codex backup
        echo '{"mcpServers": {"clock": {"command": "mcp-server-time"}}}' | tee .cursor/mcp.json > backup/mcp.json
        printf '[mcp_servers.clock]\\ncommand = "mcp-server-time"\\n' > .codex/config.toml
    """,
    "docs/moving.md": """
        rm wicketgate.yaml
        echo '{"mcpServers": {"clock": {"command": "mcp-server-time"}}}' > servers.json
        echo '{"mcp_servers": {"clock": {"command": "mcp-server-time"}}}' > litellm.yaml
    """,
}
# Lines that are run in another way: tools change before the difference is asked for, and its exit code is shown.
CHANGED = {
    "docs/guide/pins.md": (
        r"^(wicketgate lock --diff)\b.*$",
        r"sed -i 's/n issue\./& now./; s/a file\./& now./' docs_tools.py; \1 || echo \"exit code $?\"",
    ),
    "docs/operations/storage.md": (r"^(wicketgate learned reset --actor ann)\b.*$", r"echo y | \1"),
}
# Pages whose commands need the server `time` in the gate of the folder.
WITH_CLOCK = {"docs/guide/terminal.md"}
# Texts that have to be somewhere in what the page's commands write.
SHOWN = {
    "docs/guide/approvals.md": ["approval_required apr_", '"finish_reason":"approval_required"'],
    "docs/guide/chat.md": ["event: done", "id: "],
    "docs/guide/mcp-clients.md": ["cust_", "wicketgate connect"],
    "docs/guide/pins.md": ["github:create_issue", "exit code 1"],
    "docs/guide/terminal.md": ["12:00 in Asia/Tokyo", "shop:search_customers", "cust_0001", "me holds the permission"],
    "docs/operations/audit.md": ["hmac:"],
    "docs/operations/configuration.md": ["wicketgate_key_last_used"],
}
README = "README.md"
RUN = [page for page in pages() if page != README and "\n" in script_of(page)]


class Service:
    def __init__(self, url: str, keys: dict[str, str], pid: int, config: str) -> None:
        self.url, self.keys, self.pid, self.config = url, keys, pid, config


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("gate")
    keys, entries = {}, []
    for actor in ("me", "approver", "operator"):
        keys[actor], digest = new_key(actor)
        permissions = ["tools:*", "ops:read"] if actor == "operator" else ["tools:*"]
        entries.append(json.dumps({"id": actor, "sha256": digest, "actor": actor, "permissions": permissions}))
    (folder / "docs_tools.py").write_text(TOOLS)
    config = CONFIG.format(keys=", ".join(entries))
    (folder / "wicketgate.yaml").write_text(config + CLOCK)
    async with program("app", "serve", "--port", "0", cwd=folder) as running:
        found = await running.wait_for(r"ready on (http://\S+)")
        yield Service(found[1], keys, running.process.pid, config)


@pytest.fixture(scope="module")
async def quick(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A folder for PATH with a wicketgate that starts quickly."""
    folder = tmp_path_factory.mktemp("bin")
    path = folder / "socket"
    script = folder / "wicketgate"
    script.write_text(client(path))
    script.chmod(0o755)
    async with program("tests.docs.forked", str(path)) as running:
        await running.wait_for("listening", "stdout")
        yield folder


@requirement("OPS-133")
@pytest.mark.parametrize("page", RUN)
async def test_the_commands_of_a_page_run(page: str, service: Service, quick: Path, tmp_path: Path) -> None:
    (tmp_path / "docs_tools.py").write_text(TOOLS)
    (tmp_path / "wicketgate.yaml").write_text(service.config + (QUICK_CLOCK if page in WITH_CLOCK else ""))
    approver = page.endswith("approvals.md")
    env = {
        "URL": service.url,
        "KEY": service.keys["approver" if approver else "me"],
        "OPS_KEY": service.keys["operator"],
        "AUDIT_KEY": "a" * 32,
        "PID": str(service.pid),
    }
    script = script_of(page, but="wicketgate serve")
    if page in CHANGED:
        script, number = re.subn(*CHANGED[page], script, flags=re.MULTILINE)
        assert number == 1
    shown = await bash(f"{BEFORE.get(page, '')}\n{script}", tmp_path, env, quick)
    assert [text for text in SHOWN.get(page, []) if text not in shown] == [], shown


@requirement("OPS-133", "LIB-43")
async def test_the_client_in_python_prints_an_answer(service: Service, tmp_path: Path) -> None:
    (block,) = [block for block in blocks("python") if block.page == "docs/guide/sdks.md"]
    (tmp_path / "chat.py").write_text(block.text)
    env = {"WG_URL": service.url, "WG_KEY": service.keys["me"], "PYTHONPATH": str(ROOT / "clients" / "python")}
    assert "Asia/Tokyo" in await bash("python chat.py", tmp_path, env)


@requirement("OPS-133")
def test_every_command_is_run_or_parsed_and_each_reason_is_needed() -> None:
    needed = set()
    for block in blocks("sh"):
        for line in lines_of(block):
            if begin := reason_not_run(block, line):
                needed.add(begin)
                parse(line)
    assert set(NOT_RUN) == needed


@requirement("OPS-133")
def test_no_command_stands_in_a_block_that_is_not_run() -> None:
    """A block without a language would not be run: commands stand in blocks of sh only."""
    begins = re.compile(rf"^(\$ )?(\w+=\S+ )*(\.venv/bin/)?({'|'.join(PROGRAMS)}) ", re.MULTILINE)
    assert [str(block) for block in blocks("", "bash", "shell", "console", "text") if begins.search(block.text)] == []


# Starts a line of the README in the background and waits for the line that says it is ready.
START = """
start() {
  mkfifo "$TMP/$1.pipe"; bash -c "$3" > "$TMP/$1.pipe" 2>&1 & exec 9< "$TMP/$1.pipe"
  while IFS= read -r line <&9; do
    echo "$line"
    case $line in *"$2"*) cat <&9 > "$TMP/$1.log" 2>&1 & return 0;; esac
  done
  return 1
}
"""


# What the README leaves running, as its line begins, and how it is started here.
IN_BACKGROUND = {
    '(cd "$CLONE" && exec python -m examples.orders) &': (
        'start orders "ready on" "cd \'$CLONE\' && exec python -m examples.orders --port 9000"'
    ),
    "wicketgate serve --watch": (
        'start gate "ready on" "exec env WICKETGATE_SERVER__PORT=8080 wicketgate serve --watch"'
    ),
    "wicketgate init": 'wicketgate init | tee "$TMP/init"; grep -o "wg_first_[^ ]*" "$TMP/init" > "$TMP/key"',
}


def readme_script(ports: dict[str, str]) -> str:
    """The README as one terminal would do it: what runs on stands in the background, and the key is the one shown."""
    script = script_of(README).replace("wg_first_...", '"$(cat "$TMP/key")"')
    lines = []
    for line in script.splitlines():
        lines.append(next((other for begin, other in IN_BACKGROUND.items() if line.startswith(begin)), line))
    assert sum(line in IN_BACKGROUND.values() for line in lines) == len(IN_BACKGROUND)
    script = "\n".join(lines)
    for port, other in ports.items():
        script = script.replace(port, other)
    return START + script


@requirement("OPS-134")
async def test_the_readme_leads_from_a_clone_to_a_client(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in (".git", "examples", "app", "wicketgate"):
        (clone / name).symlink_to(ROOT / name)
    (tmp_path / ".config" / "Claude").mkdir(parents=True)
    ports = {"8080": str(free_port()), "9000": str(free_port())}
    shown = await bash(f"cd clone\n{readme_script(ports)}", tmp_path, {"TMP": str(tmp_path)})
    for text in ("orders:listOrders", "git:git_log", "3 of 3 upstreams connected", "customer Ada", "Asia/Tokyo"):
        assert text in shown, f"{text}: {shown}"
    written = json.loads((tmp_path / ".config" / "Claude" / "claude_desktop_config.json").read_text())
    entry = written["mcpServers"]["wicketgate"]
    assert shutil.which(entry["command"])
    assert entry["args"] == ["mcp", "--config", str(tmp_path / "gate" / "wicketgate.yaml")]
    # The block of the README is the one that is printed.
    (block,) = [block for block in blocks("json") if block.page == README]
    printed = re.search(r"^\{\n  \"mcpServers\".*?^\}$", shown, re.MULTILINE | re.DOTALL)
    assert printed is not None
    assert shape(json.loads(block.text)) == shape(json.loads(printed[0]))
    assert "event: done" in shown


def shape(value: object) -> object:
    """The JSON with its paths shortened to the last part."""
    return json.loads(re.sub(r'"/[^"]*/([^"/]+)"', r'"/\1"', json.dumps(value)))
