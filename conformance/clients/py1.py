"""``mcp`` 1.30: the session of the handshake era."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from common import ANSWER, HEADERS, URL, plain, serve
from login import provider
from mcp import ClientSession
from mcp import types as t
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl


class Driver:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._asked: list[str] = []
        self._updated: asyncio.Queue[str] = asyncio.Queue()
        self._session: ClientSession

    async def connect(self, order: dict[str, Any]) -> t.InitializeResult:
        auth = provider(order)
        headers = HEADERS if auth is None else {}
        read, write, _ = await self._stack.enter_async_context(streamablehttp_client(URL, headers=headers, auth=auth))
        self._session = await self._stack.enter_async_context(
            ClientSession(read, write, elicitation_callback=self._elicit, message_handler=self._message)
        )
        return await self._session.initialize()

    async def do(self, order: dict[str, Any]) -> Any:
        self._asked.clear()
        match order["do"]:
            case "connect":
                return (await self.connect(order)).protocolVersion
            case "list":
                return await self._session.list_tools()
            case "call":
                steps: list[float] = []

                async def progress(value: float, total: float | None, message: str | None) -> None:
                    steps.append(value)

                result = await self._session.call_tool(order["name"], order["arguments"], progress_callback=progress)
                return {"result": plain(result), "progress": len(steps), "asked": self._asked[:]}
            case "cancel":
                await self._cancel(order)
            case "resources":
                return await self._session.list_resources()
            case "templates":
                return await self._session.list_resource_templates()
            case "read":
                return await self._session.read_resource(AnyUrl(order["uri"]))
            case "updated":
                await self._session.subscribe_resource(AnyUrl(order["uri"]))
                await self._session.call_tool(order["name"], order["arguments"])
                return await self._updated.get()
            case "prompts":
                return await self._session.list_prompts()
            case "prompt":
                return await self._session.get_prompt(order["name"], order["arguments"])
            case "complete":
                ref = t.PromptReference(type="ref/prompt", name=order["name"])
                return await self._session.complete(ref, {"name": order["argument"], "value": order["value"]})
            case "sessions":
                return await asyncio.gather(*(self._alone() for _ in range(order["count"])))
            case unknown:
                raise NotImplementedError(unknown)

    async def _cancel(self, order: dict[str, Any]) -> None:
        """This client sends no cancellation by itself, so the notification is sent by hand."""
        begun = asyncio.Event()

        async def first(*_: Any) -> None:
            begun.set()

        number = self._session._request_id
        call = asyncio.create_task(self._session.call_tool(order["name"], order["arguments"], progress_callback=first))
        await begun.wait()
        params = t.CancelledNotificationParams(requestId=number)
        await self._session.send_notification(
            t.ClientNotification(t.CancelledNotification(method="notifications/cancelled", params=params))
        )
        call.cancel()
        await asyncio.wait([call])

    async def _alone(self) -> int:
        async with AsyncExitStack() as stack:
            driver = Driver(stack)
            await driver.connect({})
            return len((await driver._session.list_tools()).tools)

    async def _elicit(self, context: Any, params: Any) -> t.ElicitResult:
        self._asked.append(params.mode)
        return t.ElicitResult(action="accept", content=ANSWER if params.mode == "form" else None)

    async def _message(self, message: Any) -> None:
        inner = getattr(message, "root", None)
        if isinstance(inner, t.ResourceUpdatedNotification):
            await self._updated.put(str(inner.params.uri))


async def main() -> None:
    async with AsyncExitStack() as stack:
        await serve(Driver(stack).do)


asyncio.run(main())
