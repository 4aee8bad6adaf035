"""``mcp`` 2.3: the high-level client, in either era, over HTTP or stdio."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx2
from common import ANSWER, COMMAND, ERA, HEADERS, URL, plain, serve
from login import provider
from mcp import Client, StdioServerParameters
from mcp import types as t
from mcp.client.streamable_http import streamable_http_client


class Driver:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._asked: list[str] = []
        self._updated: asyncio.Queue[str] = asyncio.Queue()
        self._client: Client

    async def connect(self, order: dict[str, Any]) -> Client:
        if COMMAND:
            server: Any = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])
        else:
            timeout = httpx2.Timeout(30, read=300)
            auth = provider(order)
            headers = HEADERS if auth is None else {}
            http = await self._stack.enter_async_context(
                httpx2.AsyncClient(headers=headers, auth=auth, timeout=timeout, trust_env=False)
            )
            server = streamable_http_client(URL, http_client=http)
        client = Client(
            server,
            mode="legacy" if ERA == "2025" else "auto",
            elicitation_callback=self._elicit,
            message_handler=self._message,
            cache=None,
        )
        return await self._stack.enter_async_context(client)

    async def do(self, order: dict[str, Any]) -> Any:
        self._asked.clear()
        match order["do"]:
            case "connect":
                self._client = await self.connect(order)
                return self._client.protocol_version
            case "list":
                return await self._client.list_tools()
            case "call":
                steps: list[float] = []

                async def progress(value: float, total: float | None, message: str | None) -> None:
                    steps.append(value)

                result = await self._client.call_tool(order["name"], order["arguments"], progress_callback=progress)
                return {"result": plain(result), "progress": len(steps), "asked": self._asked[:]}
            case "cancel":
                begun = asyncio.Event()

                async def first(*_: Any) -> None:
                    begun.set()

                call = asyncio.create_task(
                    self._client.call_tool(order["name"], order["arguments"], progress_callback=first)
                )
                await begun.wait()
                call.cancel()
                await asyncio.wait([call])
            case "resources":
                return await self._client.list_resources()
            case "templates":
                return await self._client.list_resource_templates()
            case "read":
                return await self._client.read_resource(order["uri"])
            case "updated":
                return await self._updated_after(order)
            case "prompts":
                return await self._client.list_prompts()
            case "prompt":
                return await self._client.get_prompt(order["name"], order["arguments"])
            case "complete":
                ref = t.PromptReference(type="ref/prompt", name=order["name"])
                return await self._client.complete(ref, {"name": order["argument"], "value": order["value"]})
            case "sessions":
                return await asyncio.gather(*(self.connect_alone() for _ in range(order["count"])))
            case unknown:
                raise NotImplementedError(unknown)

    async def connect_alone(self) -> int:
        async with AsyncExitStack() as stack:
            driver = Driver(stack)
            return len((await (await driver.connect({})).list_tools()).tools)

    async def _updated_after(self, order: dict[str, Any]) -> str:
        if ERA == "2025":
            await self._client.session.subscribe_resource(order["uri"])
            await self._client.call_tool(order["name"], order["arguments"])
            return await self._updated.get()
        async with self._client.listen(resource_subscriptions=[order["uri"]]) as events:
            await self._client.call_tool(order["name"], order["arguments"])
            async for event in events:
                return str(event.uri)
        raise RuntimeError("the stream ended")

    async def _elicit(self, context: Any, params: Any) -> t.ElicitResult:
        self._asked.append(params.mode)
        return t.ElicitResult(action="accept", content=ANSWER if params.mode == "form" else None)

    async def _message(self, message: Any) -> None:
        if isinstance(message, t.ResourceUpdatedNotification):
            await self._updated.put(str(message.params.uri))


async def main() -> None:
    async with AsyncExitStack() as stack:
        await serve(Driver(stack).do)


asyncio.run(main())
