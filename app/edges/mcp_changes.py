"""The word to MCP clients that something they were shown has changed: to each era in its way (DESIGN §3 "MCP eras").

Clients of 2026-07-28 hear it on the stream they opened with ``subscriptions/listen``, older ones on the GET stream of
their session. Whoever announces never waits for whoever hears; what is announced twice before it went out goes once.
"""

import asyncio
from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from app.edges.mcp_caller import connection_of

Ctx = ServerRequestContext[Any, Any]

_SLOW_S = 1.0
_MAX_PENDING = 10_000


class Announcer:
    """Of one face. ``run`` must be running for anything to be told."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._sessions: set[ServerSession] = set()
        self._pending: dict[ServerEvent, None] = {}
        self._news = asyncio.Event()

    async def session_opened(self, ctx: Ctx, params: t.NotificationParams) -> None:
        """A client of the handshake era is ready; forgotten when its session ends."""
        session = ctx.session
        if session not in self._sessions:
            self._sessions.add(session)
            connection_of(ctx).exit_stack.callback(self._sessions.discard, session)

    def announce(self, event: ServerEvent) -> None:
        """Returns at once; called on the event loop."""
        if len(self._pending) < _MAX_PENDING:
            self._pending[event] = None
            self._news.set()

    async def run(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                events, self._pending = self._pending, {}
                for event in events:
                    await self._bus.publish(event)
                    await asyncio.gather(*(_tell(session, event) for session in list(self._sessions)))
        finally:
            self.listen.close()


async def _tell(session: ServerSession, event: ServerEvent) -> None:
    """A client that does not read its stream misses the news; it cannot hold up the others."""
    with anyio.move_on_after(_SLOW_S):
        match event:
            case ToolsListChanged():
                await session.send_tool_list_changed()
            case PromptsListChanged():
                await session.send_prompt_list_changed()
            case ResourcesListChanged():
                await session.send_resource_list_changed()
            case ResourceUpdated(uri=uri):
                await session.send_resource_updated(uri)
