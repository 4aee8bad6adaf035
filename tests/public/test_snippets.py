"""The examples of the library, run as they stand in ``snippets`` but for the lines that import (LIB-9, LIB-10)."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.public.run_snippet import run
from tests.support.process import ROOT, START_BOUND_S
from tests.support.requirement import requirement
from tests.support.warm_server import warm

SNIPPETS = Path(__file__).with_name("snippets")
ISSUE_TOOL = {
    "name": "github.create_issue",
    "description": "Open an issue.",
    "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    "_meta": {"version": "1.4.0"},
}
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


def snippet(name: str, old: str = "", new: str = "") -> dict[str, Any]:
    return run(SNIPPETS / f"{name}.txt", old, new)


async def child(*args: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *args),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(SNIPPETS.with_name("stand_ins"))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(START_BOUND_S):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def served(name: str, mode: str, tools: object = None) -> AsyncIterator[Client]:
    """The official client, connected to a snippet that serves; with *tools* in place of the ellipsis, if given."""
    replaced = [] if tools is None else ["[...]", repr(tools)]
    command, *line = warm("tests.public.run_snippet", str(SNIPPETS / f"{name}.txt"), *replaced)
    server = StdioServerParameters(command=command, args=line, cwd=str(ROOT))
    async with asyncio.timeout(START_BOUND_S), Client(server, mode=mode) as client:
        yield client


@requirement("LIB-10")
def test_a_definition_becomes_an_item() -> None:
    item = snippet("tool_to_selectable")["item"]
    assert item.id.startswith("mcp:search_database#")
    assert (item.kind, item.name, item.namespace) == ("tool", "search_database", "mcp")
    assert item.output_schema["properties"]["total"] == {"type": "integer"}


@requirement("LIB-10")
def test_a_result_becomes_an_envelope() -> None:
    found = snippet("result_to_envelope")
    assert (found["envelope"].status, found["binaries"]) == ("ok", {})
    assert found["envelope"].summary == found["full_text"] == "Found 42 records matching query"
    structured = snippet("structured_content")
    data, media_type, _ = structured["binaries"]["mcp:query:structured_content"]
    assert (json.loads(data), media_type) == ({"count": 42, "status": "done"}, "application/json")
    assert structured["envelope"].facts == ("count: 42", "status: done")
    (annotation,) = snippet("annotations")["envelope"].provenance["content_annotations"]
    assert annotation == {"part_index": 0, "audience": ["human"], "priority": 0.9}


@requirement("CHAT-84", "LIB-13")
async def test_the_session_of_the_examples_is_loaded_and_becomes_a_prompt() -> None:
    code, out, err = await child("-m", "tests.public.run_snippet", str(SNIPPETS / "load_session.txt"))
    assert (code, err) == (0, "")
    assert "user_turn: Search for open invoices..." in out.splitlines()
    code, prompt, err = await child("-m", "tests.public.run_snippet", str(SNIPPETS / "end_to_end.txt"))
    assert (code, err) == (0, "")
    assert "[user]\nSearch for open invoices\n\n[tool call tc1]\ninvoices.search(status='open')" in prompt
    assert "text:mcp:mcp_tool#" in prompt
    assert "INV-2100,Coppermill" not in prompt


@requirement("CARD-30")
async def test_cards_become_the_tools_of_a_message() -> None:
    code, out, err = await child("-m", "tests.public.run_snippet", str(SNIPPETS / "prompt_caching.txt"))
    assert (code, err) == (0, "")
    assert json.loads(out)["tools"] == []
    filled = f"import wicketgate\ncatalog = Catalog([wicketgate.mcp_tool_to_selectable({ISSUE_TOOL!r})])"
    path = str(SNIPPETS / "prompt_caching.txt")
    code, out, err = await child("-m", "tests.public.run_snippet", path, "catalog = Catalog()", filled)
    assert (code, err) == (0, "")
    (tool,) = json.loads(out)["tools"]
    assert (tool["name"], tool["cache_control"]) == ("create_issue", {"type": "ephemeral"})


@MODES
@requirement("EXEC-18", "FACE-17", "LIB-9")
async def test_the_gateway_serves_as_it_stands(mode: str) -> None:
    async with served("gateway", mode) as client:
        assert client.server_info is not None
        assert client.server_info.name == "example-gateway"
        assert {tool.name for tool in (await client.list_tools()).tools} == {"tool_browse", "tool_execute", "tool_view"}
        browsed = await client.call_tool("tool_browse", {"path": "/"})
        assert (browsed.is_error, browsed.content[0].text) == (False, '{"cards":[]}')  # type: ignore[union-attr]


@MODES
@requirement("CARD-7", "EXEC-1", "LIB-9")
async def test_the_gateway_serves_the_tools_that_it_is_given(mode: str) -> None:
    async with served("gateway", mode, [ISSUE_TOOL]) as client:
        browsed = await client.call_tool("tool_browse", {"query": "open an issue"})
        tool_id = browsed.content[0].text.split()[0]  # type: ignore[union-attr]
        assert tool_id == "github:create_issue@1.4.0"
        refused = await client.call_tool("tool_execute", {"tool_id": tool_id, "args": {}})
        assert (refused.is_error, "ARGS_INVALID" in str(refused.content)) == (True, True)
        ran = await client.call_tool("tool_execute", {"tool_id": tool_id, "args": {"title": "x"}})
        assert "the stub has no handler" in str(ran.content)


@MODES
@requirement("FACE-18", "LIB-9")
async def test_the_proxy_serves_as_it_stands_and_with_tools(mode: str) -> None:
    async with served("proxy", mode) as client:
        assert client.server_info is not None
        assert client.server_info.name == "example-proxy"
        assert {tool.name for tool in (await client.list_tools()).tools} == {"tool_hydrate", "tool_execute"}
    async with served("proxy", mode, [ISSUE_TOOL]) as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert tools["github:create_issue@1.4.0"] == {"type": "object"}
        hydrated = await client.call_tool("tool_hydrate", {"tool_id": "github:create_issue@1.4.0"})
        assert (hydrated.structured_content or {})["args_schema"] == ISSUE_TOOL["inputSchema"]


@requirement("LIB-3")
async def test_the_demo_of_the_adapters_runs() -> None:
    code, out, err = await child("examples/mcp_adapter_demo.py")
    assert (code, err) == (0, "")
    assert "-> number,status" in out
    assert "has 500 rows, the last: INV-2540,open" in out
    assert "left out: u2, tc2, tr2, a2" in out
    assert out.splitlines()[-1].endswith(": 10:INV-2050,Farrier & Sons,2026-08-10,2026-09-10,757.71,open")
