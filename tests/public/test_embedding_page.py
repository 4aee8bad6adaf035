"""The examples of docs/embedding.md run, each as a program of its own."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.support.process import ROOT, START_BOUND_S, outcome
from tests.support.requirement import requirement

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "embedding.md").read_text("utf-8"), re.DOTALL)
SERVES = "run_stdio"

EXPECTED = {
    "with_tax": [],
    "open_tickets": [],
    "create_issue": ["github.create_issue: It leaks by local"],
    "McpClientUpstream(session": ["time get_current_time ok"],
    "running_engine": ["tool-call", "tool-result"],
    "make_choice_cards": ["write", "read", "{}", "ok done"],
    "ContextManager": ["[user]", "Search for open invoices"],
    "ToolRegistry": [],
}


def block(about: str) -> str:
    (found,) = [each for each in BLOCKS if about in each and SERVES not in each]
    return str(found)


@requirement("LIB-3")
def test_every_block_is_run_here() -> None:
    assert sorted(BLOCKS) == sorted([*map(block, EXPECTED), *(each for each in BLOCKS if SERVES in each)])
    assert sum(SERVES in each for each in BLOCKS) == 1


@requirement("LIB-3")
@pytest.mark.parametrize("about", EXPECTED)
async def test_an_example_runs_and_prints_what_the_page_is_about(about: str, tmp_path: Path) -> None:
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    code, out, err = await outcome("-c", block(about), env={"PATH": search}, cwd=tmp_path)
    assert code == 0, err
    assert out.splitlines()[: len(EXPECTED[about])] == EXPECTED[about]
    if about == "with_tax":
        assert out.startswith("local:with_tax") and out.splitlines()[-1] == "12.0"
    if about == "open_tickets":
        assert re.fullmatch(r"key: wg_local_\S+\n", out)
    if about == "ContextManager":
        assert "text:invoices:search#" in out
        assert out.splitlines()[-1].endswith("INV-779,open")


@requirement("LIB-3")
async def test_the_server_of_the_page_serves(tmp_path: Path) -> None:
    (program,) = [each for each in BLOCKS if SERVES in each]
    server = StdioServerParameters(command=sys.executable, args=["-c", program], cwd=str(tmp_path))
    async with asyncio.timeout(START_BOUND_S), Client(server, mode="legacy") as client:
        browsed = await client.call_tool("tool_browse", {"path": "/clock"})
        assert browsed.content[0].text.startswith("clock:now#")  # type: ignore[union-attr]
