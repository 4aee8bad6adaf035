"""A connector that runs, for as long as a test needs it."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

from wicketgate.access.identity import Identity
from wicketgate.ports import SILENT, CallContext, Caller, InputAnswers
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

BOUND_S = 30.0
UNRULY = [sys.executable, "-m", "tests.support.unruly_server"]


def context(caller: Caller = SILENT, session: str = "session", answers: InputAnswers | None = None) -> CallContext:
    return CallContext(Identity("owner_1", ("*",)), "trace-1", session, caller, answers)


def unruly(*options: str, name: str = "unruly", **transport: Any) -> McpServerUpstream:
    connect = partial(stdio_transport, name, [*UNRULY, *options], {}, None, **transport)
    return McpServerUpstream(name, connect, connect_timeout_s=15, jitter=random.random)


def over(connect: Connect, mode: Mode = "auto") -> McpServerUpstream:
    return McpServerUpstream("unruly", connect, connect_timeout_s=15, jitter=lambda: 0, mode=mode)


class Connector(Protocol):
    """An upstream, or a member of the fleet."""

    async def supervise(self, changed: Callable[[str], None]) -> None: ...


@asynccontextmanager
async def connected(upstream: Connector) -> AsyncIterator["asyncio.Queue[str]"]:
    """Entered when it is connected; the queue gets its name each time it has something new after that."""
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.TaskGroup() as tasks:
        supervising = tasks.create_task(upstream.supervise(changes.put_nowait))
        await next_change(changes)
        yield changes
        supervising.cancel()


async def next_change(changes: "asyncio.Queue[str]") -> None:
    async with asyncio.timeout(BOUND_S):
        await changes.get()


async def value(
    upstream: McpServerUpstream, tool: str, arguments: Mapping[str, Any] | None = None, of: CallContext | None = None
) -> Any:
    """The answer of the unruly server's tool."""
    result = await upstream.call_tool(tool, arguments or {}, of or context(), 10)
    return result["structuredContent"]["value"]


async def cancellations(upstream: McpServerUpstream) -> list[Any]:
    """The ids that the server was told to cancel so far, and by which tool each was asked for."""
    seen = await value(upstream, "seen")
    names = {message["id"]: message["params"]["name"] for message in seen if message.get("method") == "tools/call"}
    ids = [m["params"]["requestId"] for m in seen if m.get("method") == "notifications/cancelled"]
    return [names[request_id] for request_id in ids]
