"""The end condition of the catalog: 10,000 tools behind the real process, found and followed over /mcp (OPS-19)."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.served import HEADERS, address, write_config
from tests.support.until import until

TOOLS = 10_000


async def cards(client: Client, **arguments: Any) -> list[dict[str, Any]]:
    result = await client.call_tool("tool_browse", arguments)
    assert isinstance(result.structured_content, dict)
    found: list[dict[str, Any]] = result.structured_content["cards"]
    return found


async def descend(client: Client, pick: int) -> str:
    """The tool that is reached by always taking the child at *pick*. (All paths are walked in tests/catalog.)"""
    path = "/"
    while True:
        card = (await cards(client, path=path))[pick]
        if card["kind"] == "tool":
            return str(card["id"])
        path = card["id"]


@requirement("UP-2", "OPS-19")
async def test_ten_thousand_tools_are_browsed_and_a_change_is_followed(tmp_path: Path) -> None:
    size = ("--tools", str(TOOLS), "--shown", str(TOOLS))
    async with program("bench.big_upstream", *size, stdin=asyncio.subprocess.PIPE) as upstream:
        control = (await upstream.wait_for(r"listening on (\S+)", "stdout")).group(1) + "/control"
        # A busy machine may take longer than the service waits by itself before it says that it is ready.
        big = {"name": "big", "url": control.replace("/control", "/mcp"), "connect_timeout_s": 60}
        config = write_config(tmp_path, server={"start_deadline_s": 60}, upstreams=[big])
        async with program("app", "serve", "--config", str(config), "--port", "0") as running:
            base = await address(running)
            for change, mode in enumerate(("2026-07-28", "legacy"), 1):
                async with (
                    httpx2.AsyncClient(headers=HEADERS, timeout=20) as http,
                    Client(streamable_http_client(f"{base}/mcp?result=both", http_client=http), mode=mode) as client,
                ):
                    await find(client)
                    await follow(client, base, control, f"r{change}")


async def find(client: Client) -> None:
    reached = {await descend(client, pick) for pick in (0, -1)}
    assert len(reached) == 2
    for tool_id in reached:
        words = re.sub(r"[@#].*", "", tool_id.split(":", 1)[1]).replace("_", " ")
        assert tool_id in [card["id"] for card in await cards(client, query=words, top_k=50)]


async def follow(client: Client, base: str, control: str, suffix: str) -> None:
    """The next tool that is renamed gets *suffix*."""
    async with httpx.AsyncClient(base_url=base, headers=HEADERS, trust_env=False) as status:

        async def catalog() -> dict[str, Any]:
            found: dict[str, Any] = (await status.get("/readyz")).json()["catalog"]
            return found

        before = await catalog()
        await status.post(control, content=json.dumps({"rename": True}))
        after = await until(catalog, lambda found: found != before, pause_s=0.05)
    assert (before["tools"], after["tools"]) == (TOOLS, TOOLS)
    assert any(card["name"].endswith(f"_{suffix}") for card in await cards(client, query=suffix, top_k=50))
