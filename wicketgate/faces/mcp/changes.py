"""The word to MCP clients that something they were shown has changed: to each era in its way (DESIGN §3 "MCP eras").

Clients of 2026-07-28 hear it on the stream they opened with ``subscriptions/listen``, older ones on the GET stream of
their session. Whoever announces never waits for whoever hears; what is announced twice before it went out goes once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
from mcp import types as t
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from wicketgate.faces.mcp.caller import connection_of

Ctx = ServerRequestContext[Any, Any]

_SLOW_S = 1.0
_MAX_PENDING = 10_000
_MAX_STREAMS = 4_096


class Announcer:
    """Of one face. ``run`` must be running for anything to be told."""

    def __init__(self, actor_of: Callable[[Ctx], str], max_streams_per_actor: int) -> None:
        self._actor_of = actor_of
        self._max_streams_per_actor = max_streams_per_actor
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus, max_subscriptions=_MAX_STREAMS)
        self._streams: Counter[str] = Counter()
        self._sessions: dict[Connection, dict[str, Callable[[], None]]] = {}
        self._pending: dict[ServerEvent, None] = {}
        self._news = asyncio.Event()

    async def listen(self, ctx: Ctx, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """A stream of ``subscriptions/listen``, until its client leaves. No actor can take them all."""
        actor = self._actor_of(ctx)
        if self._streams[actor] >= self._max_streams_per_actor:
            raise MCPError(t.INTERNAL_ERROR, "Too many open streams of this actor")
        self._streams[actor] += 1
        try:
            return await self._handler(ctx, params)
        finally:
            self._streams[actor] -= 1
            if not self._streams[actor]:
                del self._streams[actor]

    def close(self) -> None:
        """End all streams with their last frame, which tells their clients that it was meant."""
        self._handler.close()

    async def session_opened(self, ctx: Ctx, params: t.NotificationParams) -> None:
        """A client of the handshake era is ready; forgotten when its session ends."""
        self._subscriptions(connection_of(ctx))

    def subscribe(self, ctx: Ctx, uri: str, release: Callable[[], None]) -> None:
        """This session hears of changes of *uri*; *release* is called once when it no longer does."""
        subscriptions = self._subscriptions(connection_of(ctx))
        if uri in subscriptions:
            release()
        else:
            subscriptions[uri] = release

    def unsubscribe(self, ctx: Ctx, uri: str) -> None:
        if release := self._subscriptions(connection_of(ctx)).pop(uri, None):
            release()

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
                    await asyncio.gather(*(_tell(session, event) for session in self._listeners(event)))
        finally:
            self.close()

    def _subscriptions(self, connection: Connection) -> dict[str, Callable[[], None]]:
        known = self._sessions.get(connection)
        if known is None:
            known = self._sessions[connection] = {}
            connection.exit_stack.callback(self._forget, connection)
        return known

    def _listeners(self, event: ServerEvent) -> list[Connection]:
        if isinstance(event, ResourceUpdated):
            return [session for session, uris in self._sessions.items() if event.uri in uris]
        return list(self._sessions)

    def _forget(self, connection: Connection) -> None:
        for release in self._sessions.pop(connection, {}).values():
            release()


async def _tell(session: Connection, event: ServerEvent) -> None:
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
