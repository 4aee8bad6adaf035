"""Notifications of MCP clients about changed lists and resources, in the form of each era (FACE-8).

Clients of 2026-07-28 get them on the stream of ``subscriptions/listen``, older ones on the GET stream of their session.
``announce`` never waits for a client, and repeated changes are coalesced.
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
    """The notifications of one face, sent while ``run`` runs."""

    def __init__(self, actor_of: Callable[[Ctx], str], max_streams_per_actor: int) -> None:
        self._actor_of = actor_of
        self._max_streams_per_actor = max_streams_per_actor
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus, max_subscriptions=_MAX_STREAMS)
        self._streams: Counter[str] = Counter()
        self._sessions: dict[Connection, dict[str, Callable[[], None]]] = {}
        self._pending: dict[ServerEvent, None] = {}
        self._changed = asyncio.Event()

    async def listen(self, ctx: Ctx, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """A stream of ``subscriptions/listen``, until its client leaves. The streams of an actor are bounded."""
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
        """End all streams with their last frame, so that clients see a deliberate end."""
        self._handler.close()

    async def session_opened(self, ctx: Ctx, params: t.NotificationParams) -> None:
        """Register a client of the handshake era until its session ends."""
        self._subscriptions(connection_of(ctx))

    def subscribe(self, ctx: Ctx, uri: str, release: Callable[[], None]) -> None:
        """Notify this session of changes of *uri*. *release* is called once when the subscription ends."""
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
            self._changed.set()

    async def run(self) -> None:
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                events, self._pending = self._pending, {}
                for event in events:
                    await self._bus.publish(event)
                    await asyncio.gather(*(_notify(session, event) for session in self._listeners(event)))
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


async def _notify(session: Connection, event: ServerEvent) -> None:
    """A client that does not read its stream loses the notification; it cannot delay the others."""
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
