"""``make clients``: the clients that people use, through every face, and a table of what they could do.

Exits 1 if a cell failed that ``clients.yml`` does not name, or an entry of it named none.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from conformance.columns import COLUMNS, OF_FEATURES, Row, checks
from conformance.driver import CLIENTS, Failed, driver
from conformance.environments import exit_code, modules_of, node, python_of
from conformance.judge import Check, judge, read_expected, stale
from conformance.processes import KEY, configuration, gate
from conformance.run_suite import FACES

NOTES = Path(__file__).with_name("clients.yml")


@dataclass(frozen=True, slots=True)
class Client:
    """*era* is 2025 or 2026; *stdio*: it starts the gate by itself. *leaves* are columns that it cannot do."""

    name: str
    shown: str
    environment: str
    script: str
    era: str
    stdio: bool = False
    leaves: frozenset[str] = frozenset()

    def command(self) -> list[str | Path]:
        """Raises NotInstalled."""
        script = CLIENTS / self.script
        return [node(), script] if script.suffix == ".mjs" else [python_of(self.environment), script]


_OF_PORT = frozenset({"sessions"})
_OF_LINE = frozenset({"progress", "cancel", "form", "url", "subscribe", "complete", "sessions"})
"""A command makes one request and ends, and asks nobody."""
MATRIX = (
    Client("ts1", "TypeScript sdk 1.32.2", "ts1", "ts1.mjs", "2025"),
    Client("ts2", "TypeScript client 2.4.0", "ts2", "ts2.mjs", "2025"),
    Client("ts2", "TypeScript client 2.4.0", "ts2", "ts2.mjs", "2026"),
    Client("py1", "Python 1.30.0", "py1", "py1.py", "2025"),
    Client("py2", "Python 2.3.0", "py2", "py2.py", "2025"),
    Client("py2", "Python 2.3.0", "py2", "py2.py", "2026"),
    Client("fastmcp", "FastMCP 4.1.2", "fastmcp", "fastmcp_client.py", "2025"),
    Client("fastmcp", "FastMCP 4.1.2", "fastmcp", "fastmcp_client.py", "2026"),
    Client("inspector", "inspector CLI 2.12.0", "py2", "inspector.py", "2025", leaves=_OF_LINE),
    Client("inspector", "inspector CLI 2.12.0", "py2", "inspector.py", "2026", leaves=_OF_LINE),
    Client("stdio", "Python 2.3.0, stdio", "py2", "py2.py", "2025", stdio=True, leaves=_OF_PORT),
    Client("stdio", "Python 2.3.0, stdio", "py2", "py2.py", "2026", stdio=True, leaves=_OF_PORT),
)


async def run(wanted: Sequence[str]) -> int:
    """*wanted*: patterns of rows, ``client/era/face``."""
    expected = read_expected(yaml.safe_load(NOTES.read_text())["expected"])
    verdicts = {}
    print(_line("client", "era", "face", *COLUMNS))
    with tempfile.TemporaryDirectory(prefix="clients-") as temporary:
        folder = Path(temporary)
        log = folder / "cancelled"
        config = _configuration(folder, log)
        async with AsyncExitStack() as stack:
            base = await stack.enter_async_context(gate(config))
            for client in MATRIX:
                for face in FACES:
                    target = f"{client.name}/{client.era}/{face}"
                    if not any(fnmatchcase(target, pattern) for pattern in wanted):
                        continue
                    found = await _row(client, face, base, config, log)
                    verdicts[target] = judge(target, found, expected)
                    print(
                        _line(client.shown, client.era, face, *(_cell(found.get(name)) for name in COLUMNS)), flush=True
                    )
    unexpected = [f"{target}: {what}" for target, verdict in verdicts.items() for what in verdict.unexpected]
    unneeded = stale(expected, verdicts)
    for title, lines in (("Not in the notes", unexpected), ("Stale in the notes", unneeded)):
        if lines:
            print(f"\n{title}:", *lines, sep="\n  ")
    return int(bool(unexpected or unneeded))


def _configuration(folder: Path, log: Path) -> Path:
    line = [sys.executable, "-m", "conformance.fixture", str(log)]
    servers = [{"name": "new", "command": line}, {"name": "old", "command": [*line, "--handshake"]}]
    return configuration(folder, servers)


async def _row(client: Client, face: str, base: str, config: Path, log: Path) -> dict[str, list[Check]]:
    """Checks by column; columns that the face or the client does not have are left out."""
    env = {
        "MCP_URL": f"{base}/mcp/{face}",
        "MCP_KEY": KEY,
        "MCP_ERA": client.era,
        "MCP_MODULES": str(modules_of(client.environment)) if client.script.endswith(".mjs") else "",
    }
    if client.name == "inspector":
        program = modules_of("inspector") / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        env |= {"MCP_NODE": str(node()), "MCP_PROGRAM": str(program), "MCP_HOME": str(config.parent)}
    if client.stdio:
        line = [sys.executable, "-m", "app", "mcp", "--config", str(config), "--face", face]
        env["MCP_COMMAND"] = json.dumps(line)
    found: dict[str, list[Check]] = {}
    async with driver(client.command(), env, config.with_name("stderr")) as driven:
        try:
            await driven.do("connect")
        except (Failed, TimeoutError) as error:
            return {"list": [Check("connect", "FAILURE", str(error))]}
        row = Row(driven, face, log)
        for column in COLUMNS:
            if column in client.leaves or (face != "namespaced" and column in OF_FEATURES):
                continue
            found[column] = await checks(row, column)
    return found


def _cell(found: Sequence[Check] | None) -> str:
    if found is None or all(check.status == "SKIPPED" for check in found):
        return "-"
    bad = [check.id for check in found if not check.good]
    return ",".join(bad) + "!" if bad else "ok"


_WIDTHS = (24, 5, 12)


def _line(*cells: str) -> str:
    widths = [*_WIDTHS, *(max(len(name), 8) for name in COLUMNS)]
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.run_clients", description=__doc__)
    parser.add_argument("wanted", nargs="*", default=["*"], help="patterns of rows, such as py2/*/namespaced")
    return exit_code(run(parser.parse_args().wanted))


if __name__ == "__main__":
    sys.exit(main())
