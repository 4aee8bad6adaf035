import asyncio
import os

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient

GATE = {
    "transport": "streamable_http",
    "url": os.environ.get("WG_URL", "http://127.0.0.1:8080") + "/mcp",
    "headers": {"Authorization": f"Bearer {os.environ['WG_KEY']}"},
}


async def main() -> None:
    tools = await MultiServerMCPClient({"gate": GATE}).get_tools()
    agent = create_agent(os.environ.get("MODEL", "openai:gpt-5-mini"), tools)
    answer = await agent.ainvoke({"messages": [("user", "What time is it in Tokyo?")]})
    print(answer["messages"][-1].content)


asyncio.run(main())
