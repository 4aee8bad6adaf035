import asyncio
import os

from agents import Agent, Runner, set_default_openai_api
from agents.mcp import MCPServerStreamableHttp

set_default_openai_api("chat_completions")


async def main() -> None:
    params = {
        "url": os.environ.get("WG_URL", "http://127.0.0.1:8080") + "/mcp",
        "headers": {"Authorization": f"Bearer {os.environ['WG_KEY']}"},
    }
    async with MCPServerStreamableHttp(params=params) as gate:
        agent = Agent(name="assistant", model=os.environ.get("MODEL", "gpt-5-mini"), mcp_servers=[gate])
        answer = await Runner.run(agent, "What time is it in Tokyo?")
        print(answer.final_output)


asyncio.run(main())
