import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

gate = MCPToolset(
    os.environ.get("WG_URL", "http://127.0.0.1:8080") + "/mcp",
    headers={"Authorization": f"Bearer {os.environ['WG_KEY']}"},
)
agent = Agent(os.environ.get("MODEL", "openai-chat:gpt-5-mini"), toolsets=[gate])


async def main() -> None:
    answer = await agent.run("What time is it in Tokyo?")
    print(answer.output)


asyncio.run(main())
