"""The demo of ``make run``: the shop, the gateway in front of it, and nothing left running after (OPS-16)."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from app.commands.output import printable_text, terminal_log
from app.lifespan import chat_lines, console_link, reachable
from app.local_key import LocalKey
from app.port.listener import CannotListen
from examples.traffic import trickle
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.ports import LOCAL_CALL

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "examples" / "demo.yaml"
QUESTIONS = (
    "What time is it in Tokyo?",
    "show the last 3 commits of this repository",
    "list the orders of customer cust_0007",
)
_SERVERS = {
    "time": "clocks of the world (mcp-server-time)",
    "git": "the history of this repository (mcp-server-git)",
    "shop": "a make-believe shop (examples/shop)",
}
_STOP_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="port of the gateway on 127.0.0.1")
    parser.add_argument(
        "--traffic", action="store_true", help="ask questions all the time, so that there is something to see"
    )
    options = parser.parse_args()
    port = options.port
    os.chdir(ROOT)
    # Not resolved: the interpreter of a virtual environment is a link, and the servers lie beside the link.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if can_isolate():
        os.environ["WICKETGATE_SANDBOX__READ"] = json.dumps([str(ROOT)])
    try:
        with terminal_log(), shop() as url:
            os.environ["SHOP_URL"] = url
            sys.exit(_serve(port, with_traffic if options.traffic else greeting))
    except CannotListen as error:
        click.echo(f"demo: {error.problem}. Choose another: make run PORT={8081 if port != 8081 else 8082}", err=True)
        sys.exit(1)
    except ConfigError as error:
        click.echo(printable_text(f"demo: {error}"), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _serve(port: int, greets: Callable[[Gate, str, LocalKey | None], str]) -> int:
    load = partial(load_settings, CONFIG, server={"port": port})
    settings = load()
    from app.commands.serve import serve_until_stopped

    return serve_until_stopped(settings, load, None, greets)


def can_isolate() -> bool:
    """Returns whether this machine can run servers in a sandbox: bubblewrap is there, and may make namespaces."""
    program = shutil.which("bwrap")
    tried = [program or "", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return program is not None and subprocess.run(tried, capture_output=True, timeout=_STOP_S).returncode == 0


def with_traffic(gate: Gate, address: str, local: LocalKey | None) -> str:
    """As ``greeting``; questions begin to be asked too (OPS-266)."""
    if local is None:
        return greeting(gate, address, local)
    trickle(reachable(address), local.secret)
    return greeting(gate, address, local) + "Questions are asked all the time, as you wished.\n"


def greeting(gate: Gate, address: str, local: LocalKey | None) -> str:
    """Returns what the demo is, what it costs a model, and what to try. All numbers are those of the running gate."""
    url = reachable(address)
    tools = Counter(item.server for item in gate.runtime.catalog().tools.values())
    shown, all_tools = tool_tokens(gate)
    program = os.path.relpath(Path(sys.executable).parent / "wicketgate")
    lines = [
        "",
        "Wicketgate stands between a model and its tool servers. Behind this one are",
        *(f"  {name:<5} {_number(tools[name]):<10}  {_SERVERS.get(name, '')}" for name in gate.fleet.members),
        f"The model is shown 3 tools ({shown:,} tokens) instead of {tools.total()} ({all_tools:,} tokens),",
        "and finds the others when it needs them.",
        "The first two run in a sandbox: they read no file but their own and this repository, and have no network."
        if gate.settings.sandbox
        else "The first two run without a sandbox, because bubblewrap is missing or may not be used here.",
        "",
        f"Wicketgate is ready on {address}",
        f"  Console: {console_link(url, local)}",
        f"  MCP clients: {url}/mcp",
    ]
    if local is not None:
        lines += [
            f"  Key, for this run only: {local.secret}",
            "",
            "Ask it something. The model here is a small script: no account, and no wit.",
            *(f"  {question}" for question in QUESTIONS),
            *chat_lines(url, local, QUESTIONS[0]),
            "or in words only:",
            f'  WG_URL={url} WG_KEY={local.secret} {program} chat "{QUESTIONS[2]}"',
        ]
    lines += [
        "",
        f"Next: {program} init (a gate of your own), {program} connect (your editor). Ctrl-C ends the demo.",
        "",
    ]
    return "\n".join(lines)


def _number(tools: int) -> str:
    return f"{tools:>3} tools" if tools else "not there yet"


def tool_tokens(gate: Gate) -> tuple[int, int]:
    """Returns the tokens of the definitions that the model is shown, and of those of all tools.

    Counted by the tokenizer; ``usage.naive_tool_tokens`` of a chat is an estimate of the same, by characters.
    """
    shown = [(tool.name, tool.description, tool.input_schema) for tool in gate.surface.tools(LOCAL_CALL)]
    behind = [(item.name, item.description, item.args_schema) for item in gate.runtime.catalog().tools.values()]
    return _tokens(gate, shown), _tokens(gate, behind)


def _tokens(gate: Gate, tools: list[tuple[str, str, Mapping[str, Any]]]) -> int:
    fields = ("name", "description", "parameters")
    definitions = (json.dumps(dict(zip(fields, tool, strict=True)), separators=(",", ":")) for tool in tools)
    return sum(map(gate.runtime.tokens.count, definitions))


@contextmanager
def shop() -> Iterator[str]:
    """The address of a running shop. It also stops by itself when this process dies, since its stdin then closes."""
    # Its own session: Ctrl-C in the terminal is for the gateway, which still needs the shop to finish.
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.shop", "--port", "0", "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            sys.exit("demo: the shop did not start")
        yield line.split()[-1]
    finally:
        process.stdin.close()
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    main()
