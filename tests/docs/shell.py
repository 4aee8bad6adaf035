"""Commands of the documentation, run by bash in a folder that has what their page is about."""

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from app.cli import cli
from tests.docs.pages import Block, blocks
from tests.support.process import ROOT

BOUND_S = 90.0

_CONNECT = r"wicketgate connect [\w-]+(?: --url \S+)?(?: --key \"\$WG_KEY\")?$"
NOT_RUN = {
    "wicketgate add": "tests/app/commands/test_add.py adds documents and registries",
    "wicketgate approvals show 5f0c": "the id is an example: each call has its own",
    "wicketgate approvals approve 5f0c": "the id is an example: each call has its own",
    r"make ": "the targets are what runs these tests, or take minutes; tests/e2e/test_demo.py runs the demo",
    _CONNECT: "test_connect.py runs each in the process",
    r"(WICKETGATE_CONFIG=\S+ )?uvicorn ": "tests/e2e/test_asgi_start.py starts the service so",
    r"sh deploy/secrets\.sh": "tests/deploy/test_compose.py runs it in a folder of its own",
    r"wicketgate words": "needs a model; tests/app/commands/test_words.py runs it against a scripted one",
    r"(docker compose|kubectl) ": "wants a daemon or a cluster; tests/deploy reads and tries the files that it names",
    r"wicketgate (login|logout|connections)\b": "tests/app/commands/test_login_command.py runs them against an issuer",
    r"pip install ": "tests/examples/test_plugin_package.py loads the package without an index",
}
"""Commands that are parsed and not run here, by how their line begins, with the reason."""


def lines_of(block: Block) -> list[str]:
    """The lines, with continued ones joined."""
    return block.text.replace("\\\n", " ").splitlines()


def reason_not_run(block: Block, line: str) -> str | None:
    """The key of the reason in NOT_RUN, or None where the line is run."""
    bare = re.sub(r"\s+#.*$", "", line).strip()
    found = next((begin for begin in NOT_RUN if re.match(begin, bare)), None)
    # test_connect.py reads that page alone.
    return None if found == _CONNECT and not block.page.endswith("mcp-clients.md") else found


def script_of(page: str, but: str = r"(?!)") -> str:
    """All blocks of the page in order, without what is not run; each begins with its place on stdout."""
    parts = []
    for block in blocks("sh"):
        if block.page == page:
            run = [line for line in lines_of(block) if reason_not_run(block, line) is None and not re.match(but, line)]
            parts += [f"echo '=== {block}'", *run]
    return "\n".join(parts)


async def bash(script: str, folder: Path, env: Mapping[str, str], *programs: Path) -> str:
    """Runs the script and returns what it wrote to both streams; a command that fails ends it, and is a failure.

    Programs are looked for in *programs* first.
    """
    environment = {
        **{name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ},
        "PATH": os.pathsep.join([*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "NO_PROXY": "*",
        **env,
    }
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(BOUND_S):
            out, _ = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    text = out.decode()
    assert process.returncode == 0, f"{text[-3000:]}\nexit code {process.returncode}"
    return text


def parse(line: str) -> None:
    """Raises where the line is none that the shell, the command line or the Makefile knows."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    if not words:
        return
    program, *arguments = words
    if program == "wicketgate":
        _parse_command(cli, "wicketgate", arguments)
    elif program == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in arguments if "=" not in word} <= targets, line
    elif program in ("sh", "docker", "kubectl"):
        assert all((ROOT / word).exists() for word in arguments if "/" in word), line


def _parse_command(command: click.Command, name: str, arguments: list[str]) -> None:
    context = command.make_context(name, list(arguments), resilient_parsing=False)
    if isinstance(command, click.Group):
        found, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None
        _parse_command(inner, found or "", rest)
