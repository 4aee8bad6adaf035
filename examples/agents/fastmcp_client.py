import asyncio
import os

from fastmcp import Client


async def main() -> None:
    url = os.environ.get("WG_URL", "http://127.0.0.1:8080") + "/mcp"
    async with Client(url, auth=os.environ["WG_KEY"]) as gate:
        found = await gate.call_tool("tool_browse", {"query": "current time in a city"})
        print(found.content[0].text)


asyncio.run(main())
