"""The features of one MCP server beside its tools, over the session that its upstream keeps (S2, gatekit B).

A server of the handshake era tells of changes by itself, and of resources that were subscribed to; one of 2026-07-28
on a stream that is opened for just what is wanted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
from mcp import Client
from mcp import types as t
from mcp.client.subscriptions import SubscriptionLost
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wicketgate.errors import GatewayError, UpstreamError, UpstreamRefused
from wicketgate.fleet.features import FeatureChange, FeatureKind, FeatureSupport, ListChanged, ResourceChanged
from wicketgate.ports import CallContext

log = logging.getLogger("wicketgate.upstream")

_LISTS: Mapping[FeatureKind, tuple[str, str]] = {
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}
_METHOD_NOT_FOUND = -32601
_MAX_PAGES = 100
_MAX_ITEMS = 10_000
_MAX_INSTRUCTIONS = 2_000
_AGAIN_S = 5.0


class Ask(Protocol):
    async def __call__(
        self, method: str, params: Mapping[str, Any], context: CallContext | None, timeout_s: float
    ) -> Mapping[str, Any]:
        """Any request over the session of the moment. Raises as ``Upstream.call_tool``."""
        ...


class McpFeatures:
    """Implements Features. The upstream enters ``serve`` with each session, and hands on what it hears."""

    def __init__(self, name: str, ask: Ask, list_timeout_s: float) -> None:
        self._name = name
        self._ask = ask
        self._list_timeout_s = list_timeout_s
        self._support: FeatureSupport | None = None
        self._wanted: frozenset[str] = frozenset()
        self._wanting = asyncio.Event()
        self._watchers: list[Callable[[FeatureChange], None]] = []

    @property
    def support(self) -> FeatureSupport | None:
        return self._support

    async def list_all(self, kind: FeatureKind) -> Sequence[Any]:
        method, key = _LISTS[kind]
        items: list[Any] = []
        cursor: str | None = None
        seen: set[str] = set()
        try:
            async with asyncio.timeout(self._list_timeout_s):
                for _ in range(_MAX_PAGES):
                    params = {} if cursor is None else {"cursor": cursor}
                    page = await self._ask(method, params, None, self._list_timeout_s)
                    given = page.get(key)
                    if not isinstance(given, list):
                        raise UpstreamError(f"{self._name} gave something else than a list of its {kind}.")
                    items += given
                    cursor = page.get("nextCursor")
                    if not isinstance(cursor, str) or not cursor or cursor in seen or len(items) > _MAX_ITEMS:
                        break
                    seen.add(cursor)
        except TimeoutError:
            raise UpstreamError(f"{self._name} did not give all its {kind} in time.") from None
        except UpstreamRefused as refused:
            if refused.upstream_code == _METHOD_NOT_FOUND:
                return []
            raise
        return items

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        return await self._ask(method, params, context, timeout_s)

    def follow(self, uris: frozenset[str]) -> None:
        if uris != self._wanted:
            self._wanted = uris
            self._wanting.set()

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self._watchers.append(heard)

    async def serve(self, client: Client) -> None:
        """For as long as a session lasts: what the server can do is known, and what is followed is told of."""
        self._support = _support_of(client)
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        try:
            self._tell(ListChanged("resources"), ListChanged("prompts"))
            if not modern:
                await self._subscribe()
            elif _announces(client):
                await self._listen(client)
        finally:
            self._support = None

    def heard(self, message: object) -> None:
        """A notification of a server of the handshake era."""
        match message:
            case t.ResourceListChangedNotification():
                self._tell(ListChanged("resources"))
            case t.PromptListChangedNotification():
                self._tell(ListChanged("prompts"))
            case t.ResourceUpdatedNotification(params=params):
                self._tell(ResourceChanged(str(params.uri)))

    async def _subscribe(self) -> None:
        assert self._support is not None
        subscribed: frozenset[str] = frozenset()
        while self._support.subscriptions:
            self._wanting.clear()
            wanted = self._wanted
            for uri in wanted - subscribed:
                await self._told("resources/subscribe", uri)
            for uri in subscribed - wanted:
                await self._told("resources/unsubscribe", uri)
            subscribed = wanted
            await self._wanting.wait()

    async def _told(self, method: str, uri: str) -> None:
        try:
            await self._ask(method, {"uri": uri}, None, self._list_timeout_s)
        except GatewayError as error:
            log.warning("%s: %s failed: %s", self._name, method, error)

    async def _listen(self, client: Client) -> None:
        """A stream for what is wanted now; another one when that changes, or when it ended."""
        while True:
            self._wanting.clear()
            async with anyio.create_task_group() as streams:
                streams.start_soon(self._hear, client, self._wanted)
                await self._wanting.wait()
                streams.cancel_scope.cancel()

    async def _hear(self, client: Client, uris: frozenset[str]) -> None:
        while True:
            try:
                async with client.listen(
                    prompts_list_changed=True, resources_list_changed=True, resource_subscriptions=sorted(uris)
                ) as subscription:
                    async for event in subscription:
                        match event:
                            case ResourcesListChanged():
                                self._tell(ListChanged("resources"))
                            case PromptsListChanged():
                                self._tell(ListChanged("prompts"))
                            case ResourceUpdated(uri=uri):
                                self._tell(ResourceChanged(uri))
            except (MCPError, SubscriptionLost, TimeoutError):
                pass  # the upstream itself finds out whether the connection is gone
            await anyio.sleep(_AGAIN_S)

    def _tell(self, *changes: FeatureChange) -> None:
        for heard in self._watchers:
            for change in changes:
                heard(change)


def _support_of(client: Client) -> FeatureSupport:
    can = client.server_capabilities
    return FeatureSupport(
        resources=can.resources is not None,
        prompts=can.prompts is not None,
        completions=can.completions is not None,
        subscriptions=can.resources is not None and bool(can.resources.subscribe),
        instructions=(client.instructions or "")[:_MAX_INSTRUCTIONS],
    )


def _announces(client: Client) -> bool:
    can = client.server_capabilities
    lists = any(one is not None and one.list_changed for one in (can.resources, can.prompts))
    return lists or (can.resources is not None and bool(can.resources.subscribe))
