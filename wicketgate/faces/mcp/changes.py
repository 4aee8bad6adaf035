"""Notifications of MCP clients about changed lists and resources, in the form of each era (FACE-8).

Clients of 2026-07-28 get them on the stream of ``subscriptions/listen``, older ones on the GET stream of their session.
``announce`` never waits for a client, and repeated changes are coalesced.
"""

import asyncio
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
from mcp import types as t
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from wicketgate.access.shares import ShareRefused, Shares, too_many_text
from wicketgate.faces.mcp.request import COUNTED, RpcError, check_small, within_exchange
from wicketgate.faces.mcp.sdk_caller import connection_of
from wicketgate.faces.mcp.server import MAX_STREAMS

Ctx = ServerRequestContext[Any, Any]
May = Callable[[], bool]

_SLOW_S = 1.0
_MAX_PENDING = 10_000


@dataclass(frozen=True, slots=True)
class _Subscription:
    """*may* is true while the client may know of the resource."""

    release: Callable[[], None]
    may: May


_listener: ContextVar[str | None] = ContextVar("listener", default=None)
"""The actor whose stream is being opened, because the SDK subscribes without naming one."""


class _Bus(InMemorySubscriptionBus):
    """Events for all streams, or for those of one actor."""

    def __init__(self) -> None:
        super().__init__()
        self._to: str | None = None

    async def publish_to(self, event: ServerEvent, actor: str | None) -> None:
        """*actor* None: to all. One at a time; the listeners are called before anything else runs."""
        self._to = actor
        await self.publish(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        own = _listener.get()

        def deliver(event: ServerEvent) -> None:
            if self._to is None or self._to == own:
                listener(event)

        return super().subscribe(deliver)


class Announcer:
    """The notifications of one face, sent while ``run`` runs."""

    def __init__(self, actor_of: Callable[[Ctx], str], streams: Shares) -> None:
        self._actor_of = actor_of
        self._bus = _Bus()
        self._handler = ListenHandler(self._bus, max_subscriptions=MAX_STREAMS)
        self._streams = streams
        self._sessions: dict[Connection, dict[str, _Subscription]] = {}
        self._listening: dict[anyio.CancelScope, May] = {}
        self._actors: dict[Connection, str] = {}
        self._pending: dict[tuple[ServerEvent, str | None], None] = {}
        self._changed = asyncio.Event()

    async def listen(
        self, ctx: Ctx, params: t.SubscriptionsListenRequestParams, may: May = lambda: True
    ) -> t.SubscriptionsListenResult:
        """A stream of ``subscriptions/listen``, until its client leaves, its key is not good any more (FACE-41), or a
        ``recheck`` finds *may* false. The streams are shared among actors."""
        check_small(ctx)
        actor = self._actor_of(ctx)
        try:
            lease = await self._streams.take(actor)
        except ShareRefused as full:
            raise RpcError(t.INTERNAL_ERROR, too_many_text("open streams", full.scope)) from None
        try:
            return await self._listen(ctx, params, may, actor)
        finally:
            self._streams.give_back(lease)

    async def _listen(
        self, ctx: Ctx, params: t.SubscriptionsListenRequestParams, may: May, actor: str
    ) -> t.SubscriptionsListenResult:
        if ctx.request is not None:
            ctx.request.scope[COUNTED]()
        _listener.set(actor)
        try:
            with anyio.CancelScope() as scope, within_exchange(ctx):
                self._listening[scope] = may
                return await self._handler(ctx, params)
            # The last frame: the client may listen again, and learns what it may still hear of.
            return t.SubscriptionsListenResult.model_validate({"_meta": {SUBSCRIPTION_ID_META_KEY: ctx.request_id}})
        finally:
            self._listening.pop(scope, None)

    def recheck(self) -> None:
        """Call it when access rules have changed: what clients may no longer know of is not announced to them."""
        for subscriptions in self._sessions.values():
            for uri in [uri for uri, each in subscriptions.items() if not each.may()]:
                subscriptions.pop(uri).release()
        for scope in [scope for scope, may in self._listening.items() if not may()]:
            scope.cancel()

    def close(self) -> None:
        """End all streams with their last frame, so that clients see a deliberate end."""
        self._handler.close()

    async def session_opened(self, ctx: Ctx, params: t.NotificationParams) -> None:
        """Register a client of the handshake era until its session ends."""
        self.follow(connection_of(ctx), self._actor_of(ctx))

    def follow(self, connection: Connection, actor: str) -> None:
        """Notify this client of the handshake era, which is *actor*'s, until its connection ends here."""
        self._subscriptions(connection)
        self._actors[connection] = actor

    def subscribed(self, connection: Connection) -> Collection[str]:
        """The addresses of which this session is notified."""
        return list(self._subscriptions(connection))

    def subscribe(self, connection: Connection, uri: str, release: Callable[[], None], may: May) -> None:
        """Notify this session of changes of *uri*. *release* is called once when the subscription ends, which a
        ``recheck`` does when it finds *may* false."""
        subscriptions = self._subscriptions(connection)
        if uri in subscriptions:
            release()
        else:
            subscriptions[uri] = _Subscription(release, may)

    def unsubscribe(self, connection: Connection, uri: str) -> None:
        if subscription := self._subscriptions(connection).pop(uri, None):
            subscription.release()

    def announce(self, event: ServerEvent, actor: str | None = None) -> None:
        """Notify all, or the clients of one *actor*. Returns at once; called on the event loop."""
        if len(self._pending) < _MAX_PENDING:
            self._pending[event, actor] = None
            self._changed.set()

    async def run(self) -> None:
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                events, self._pending = self._pending, {}
                for event, actor in events:
                    await self._bus.publish_to(event, actor)
                    await asyncio.gather(*(_notify(session, event) for session in self._listeners(event, actor)))
        finally:
            self.close()

    def _subscriptions(self, connection: Connection) -> dict[str, _Subscription]:
        known = self._sessions.get(connection)
        if known is None:
            known = self._sessions[connection] = {}
            connection.exit_stack.callback(self._forget, connection)
        return known

    def _listeners(self, event: ServerEvent, actor: str | None) -> list[Connection]:
        sessions = [each for each in self._sessions if actor is None or self._actors.get(each) == actor]
        if isinstance(event, ResourceUpdated):
            return [session for session in sessions if event.uri in self._sessions[session]]
        return sessions

    def _forget(self, connection: Connection) -> None:
        self._actors.pop(connection, None)
        for subscription in self._sessions.pop(connection, {}).values():
            subscription.release()


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
