"""FastMCP's client."""

import asyncio
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as t
from common import ANSWER, ERA, HEADERS, URL, plain, serve
from fastmcp import Client
from fastmcp.client.auth import OAuth
from fastmcp.client.transports import StreamableHttpTransport
from key_value.aio.stores.memory import MemoryStore
from login import LOGIN, visit


class Driver:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._asked: list[str] = []
        self._client: Any

    async def connect(self, order: dict[str, Any]) -> Any:
        auth = await _login(order) if LOGIN else None
        return await self._stack.enter_async_context(
            Client(
                StreamableHttpTransport(URL, headers=HEADERS)
                if auth is None
                else StreamableHttpTransport(URL, auth=auth),
                mode="legacy" if ERA == "2025" else "auto",
                elicitation_handler=self._elicit,
            )
        )

    async def do(self, order: dict[str, Any]) -> Any:
        self._asked.clear()
        match order["do"]:
            case "connect":
                self._client = await self.connect(order)
                return str(self._client.session.protocol_version)
            case "list":
                return await self._client.list_tools_mcp()
            case "call":
                steps: list[float] = []

                async def progress(value: float, total: float | None, message: str | None) -> None:
                    steps.append(value)

                result = await self._client.call_tool_mcp(order["name"], order["arguments"], progress_handler=progress)
                return {"result": plain(result), "progress": len(steps), "asked": self._asked[:]}
            case "cancel":
                begun = asyncio.Event()

                async def first(*_: Any) -> None:
                    begun.set()

                call = asyncio.create_task(
                    self._client.call_tool_mcp(order["name"], order["arguments"], progress_handler=first)
                )
                await begun.wait()
                call.cancel()
                await asyncio.wait([call])
            case "resources":
                return await self._client.list_resources_mcp()
            case "templates":
                return await self._client.list_resource_templates_mcp()
            case "read":
                return await self._client.read_resource_mcp(order["uri"])
            case "prompts":
                return await self._client.list_prompts_mcp()
            case "prompt":
                return await self._client.get_prompt_mcp(order["name"], order["arguments"])
            case "complete":
                ref = t.PromptReference(type="ref/prompt", name=order["name"])
                return await self._client.complete_mcp(ref, {"name": order["argument"], "value": order["value"]})
            case "sessions":
                return await asyncio.gather(*(self._alone() for _ in range(order["count"])))
            case unknown:
                raise NotImplementedError(unknown)

    async def _alone(self) -> int:
        async with AsyncExitStack() as stack:
            return len(await (await Driver(stack).connect({})).list_tools())

    async def _elicit(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        self._asked.append(params.mode)
        return t.ElicitResult(action="accept", content=ANSWER if params.mode == "form" else None)


_kept = MemoryStore()


async def _login(order: dict[str, Any]) -> OAuth:
    """The library's own login: it opens a browser and listens for the answer."""
    auth = OAuth(
        URL,
        client_name=LOGIN["name"],
        token_storage=_kept,
        callback_port=LOGIN["port"],
        callback_host="127.0.0.1",
        client_metadata_url=LOGIN["document"] or None,
    )
    if "access_token" in order:
        tokens = await auth.token_storage_adapter.get_tokens()
        await auth.token_storage_adapter.set_tokens(tokens.model_copy(update={"access_token": order["access_token"]}))
    return auth


def _open(url: str, *_: object) -> bool:
    threading.Thread(target=_answer, args=(url,), daemon=True).start()
    return True


def _answer(url: str) -> None:
    to = visit(url)
    for _ in range(100):
        try:
            urllib.request.urlopen(to, timeout=10).close()
            return
        except urllib.error.URLError:
            time.sleep(0.05)


webbrowser.open = _open


async def main() -> None:
    async with AsyncExitStack() as stack:
        await serve(Driver(stack).do)


asyncio.run(main())
