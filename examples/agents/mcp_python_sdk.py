import asyncio
import os

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    url = os.environ.get("WG_URL", "http://127.0.0.1:8080") + "/mcp"
    headers = {"Authorization": f"Bearer {os.environ['WG_KEY']}"}
    async with (
        httpx.AsyncClient(headers=headers) as http,
        streamable_http_client(url, http_client=http) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        found = await session.call_tool("tool_browse", {"query": "current time in a city"})
        print(found.content[0].text)


asyncio.run(main())
