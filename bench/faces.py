"""The tokens that a model reads of each face, through the official client, with the demo's servers behind the gate.

``python -m bench.faces`` starts ``examples.demo``, lists the tools, browses once and makes one small call at each face,
and prints a table. Text is what a client reads that takes ``content``, JSON what one reads that takes
``structuredContent``.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from bench.catalogs import ROOT
from bench.table import NONE, Table, markdown
from wicketgate.tokens import shipped_token_counter

QUERY = "find a customer by name"
TOOL = ("shop", "search_customers")
ARGUMENTS = {"words": "Ada"}

_START_S = 60.0
_READY, _KEY = "Wicketgate is ready on ", "Key, for this run only: "
_count = shipped_token_counter().count


async def main() -> None:
    async with _demo() as (url, key):
        rows = [
            *[await _three(url, key, form) for form in ("text", "json")],
            await _all_tools(url, key),
            await _transparent(url, key),
        ]
    notes = [f"browse: {QUERY!r}; call: `{':'.join(TOOL)}` with {json.dumps(ARGUMENTS)}"]
    head = ("face", "tools", "list", "browse", "schema", "call, text", "call, JSON")
    print(markdown(Table("Tokens that a model reads", head, rows, notes)))


@asynccontextmanager
async def _demo() -> AsyncIterator[tuple[str, str]]:
    """Runs the demo; gives its URL and key. It ends by a signal, so that its own children end too."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.demo", "--port", "0"),
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        found: dict[str, str] = {}
        async with asyncio.timeout(_START_S):
            while len(found) < 2:
                if not (line := (await process.stderr.readline()).decode()):
                    raise RuntimeError("the demo has ended")
                found |= {mark: line.partition(mark)[2].strip() for mark in (_READY, _KEY) if mark in line}
        yield found[_READY], found[_KEY]
    finally:
        process.terminate()
        await process.communicate()


async def _three(url: str, key: str, form: str) -> Sequence[str]:
    async with _connected(f"{url}/mcp?result={form}", key) as client:
        browse = await client.call_tool("tool_browse", {"query": QUERY})
        call = await client.call_tool("tool_execute", {"tool_id": ":".join(TOOL), "args": ARGUMENTS})
        shown = _text(browse) if form == "text" else _json(browse)
        return (f"`/mcp?result={form}`", *await _listed(client), str(_count(shown)), NONE, *_read(call))


async def _all_tools(url: str, key: str) -> Sequence[str]:
    async with _connected(f"{url}/mcp?tools=all", key) as client:
        call = await client.call_tool("__".join(TOOL), ARGUMENTS)
        return ("`/mcp?tools=all`", *await _listed(client), NONE, NONE, *_read(call))


async def _transparent(url: str, key: str) -> Sequence[str]:
    async with _connected(f"{url}/mcp/transparent", key) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        tool_id = next(name for name in names if name.startswith(":".join(TOOL)))
        schema = await client.call_tool("tool_hydrate", {"tool_id": tool_id})
        call = await client.call_tool("tool_execute", {"tool_id": tool_id, "args": ARGUMENTS})
        return ("`/mcp/transparent`", *await _listed(client), NONE, str(_count(_text(schema))), *_read(call))


@asynccontextmanager
async def _connected(url: str, key: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=40) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def _listed(client: Client) -> tuple[str, str]:
    """The number of tools, and the tokens of their definitions as clients hand them to models."""
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if (cursor := page.next_cursor) is None:
            break
    definitions = [
        _compact({"name": tool.name, "description": tool.description, "parameters": tool.input_schema})
        for tool in tools
    ]
    return str(len(tools)), f"{sum(map(_count, definitions)):,}"


def _read(result: CallToolResult) -> tuple[str, str]:
    if result.is_error:
        raise RuntimeError(_text(result))
    return str(_count(_text(result))), str(_count(_json(result))) if result.structured_content else NONE


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def _json(result: CallToolResult) -> str:
    return _compact(result.structured_content or {})


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


if __name__ == "__main__":
    asyncio.run(main())
