"""The features of one MCP server beside its tools: resources, prompts, completions, and their changes (ROUTE-11).

A server of the handshake era announces changes by itself, and those of resources that were subscribed to; one of
2026-07-28 does so on a stream that is opened for what is wanted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from wicketgate.catalog.skills import SKILLS
from wicketgate.errors import GatewayError, UpstreamError, UpstreamRefused
from wicketgate.fleet.features import (
    FeatureChange,
    FeatureKind,
    FeatureList,
    FeatureSupport,
    ListChanged,
    ResourceChanged,
)
from wicketgate.login.user_credentials import GrantName
from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.call import Gone, Malformed, Refused
from wicketgate.upstreams.mcp.client import McpClient, read_pages
from wicketgate.upstreams.mcp.eras import Agreement
from wicketgate.upstreams.mcp.exchange import LIST_CHANGED, RESOURCE_UPDATED, Background

log = logging.getLogger("wicketgate.upstream")

_LISTS: Mapping[FeatureKind, tuple[str, str]] = {
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
    "skills": ("skills/list", "skills"),
}
_MAX_PAGES = 100
_MAX_ITEMS = 10_000
_AGAIN_S = 5.0


Ask = Callable[[str, Mapping[str, Any], CallContext | None], Awaitable[Mapping[str, Any]]]
"""Sends any request over the session of the moment, without a deadline. Raises as ``Upstream.call_tool``."""


class McpFeatures:
    """Implements Features, the same for everybody. The upstream runs ``serve`` with each session, and passes
    announcements to ``heard``."""

    accounts = None

    def __init__(self, name: str, ask: Ask, list_timeout_s: float, *, instructions: bool = False) -> None:
        """*instructions*: the server's words for a model are taken."""
        self._name = name
        self._instructions = instructions
        self._ask = ask
        self._list_timeout_s = list_timeout_s
        self.support: FeatureSupport | None = None
        self._wanted: frozenset[str] = frozenset()
        self._wanting = asyncio.Event()
        self._watchers: list[Callable[[FeatureChange], None]] = []
        self._skills_changed: Callable[[], None] = lambda: None
        self._wake: Callable[[], None] = lambda: None

    @property
    def follows(self) -> bool:
        """True if a client wants to hear of a resource."""
        return bool(self._wanted)

    async def list_all(self, kind: FeatureKind, account: GrantName | None = None) -> FeatureList:
        method, key = _LISTS[kind]
        fresh: list[int] = []

        async def page(cursor: str | None) -> Mapping[str, Any]:
            result = await self._ask(method, {} if cursor is None else {"cursor": cursor}, None)
            ttl_ms = result.get("ttlMs")
            fresh.append(ttl_ms if type(ttl_ms) is int else 0)
            return result

        try:
            async with asyncio.timeout(self._list_timeout_s):
                items, _ = await read_pages(page, key, _MAX_ITEMS, _MAX_PAGES)
                return FeatureList(items, min(fresh))
        except Malformed:
            raise UpstreamError(f"{self._name} did not return a list of its {kind}.") from None
        except TimeoutError:
            raise UpstreamError(f"{self._name} did not give all its {kind} in time.") from None
        except UpstreamRefused as refused:
            if refused.upstream_code == METHOD_NOT_FOUND:
                return FeatureList(())
            raise

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        return await self._ask(method, params, context)

    def follow(self, uris: frozenset[str], actor: str = "") -> None:
        if uris != self._wanted:
            self._wanted = uris
            self._wanting.set()
            self._wake()

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self._watchers.append(heard)

    def begin(
        self, agreement: Agreement, skills_changed: Callable[[], None], wake: Callable[[], None] = lambda: None
    ) -> None:
        """Show what a server supports that is connected now. *skills_changed* is called when its skills may be others,
        of which resources tell, *wake* when what is followed has changed."""
        self._wake = wake
        self.support = _support_of(agreement, instructions=self._instructions)
        self._skills_changed = skills_changed if self.support.skills else lambda: None

    async def serve(self, client: McpClient) -> None:
        """For as long as a session lasts: follow the changes of its server."""
        agreement = client.agreement
        self._notify(ListChanged("resources"), ListChanged("prompts"))
        if not agreement.modern:
            await self._subscribe()
        elif _announces(agreement):
            await self._listen(client)

    def heard(self, method: str, params: object) -> None:
        """Take one notification of the server; any but a change of a feature is passed over."""
        match LIST_CHANGED.get(method), params:
            case ("resources" | "prompts") as changed, _:
                self._notify(ListChanged(changed))
                if changed == "resources":
                    self._skills_changed()
            case _, {"uri": str(uri)} if method == RESOURCE_UPDATED:
                self._notify(ResourceChanged(uri))

    async def _subscribe(self) -> None:
        assert self.support is not None
        subscribed: frozenset[str] = frozenset()
        while self.support.subscriptions:
            # Cleared before the wish is read: one that changes in the meantime is seen in the next round.
            self._wanting.clear()
            wanted = self._wanted
            for uri in wanted - subscribed:
                await self._request_for("resources/subscribe", uri)
            for uri in subscribed - wanted:
                await self._request_for("resources/unsubscribe", uri)
            subscribed = wanted
            await self._wanting.wait()

    async def _request_for(self, method: str, uri: str) -> None:
        try:
            async with asyncio.timeout(self._list_timeout_s):
                await self._ask(method, {"uri": uri}, None)
        except GatewayError as error:
            log.warning("%s: %s failed: %s", self._name, method, error)
        except TimeoutError:
            log.warning("%s: %s got no answer", self._name, method)

    async def _listen(self, client: McpClient) -> None:
        """Hold a stream for what is wanted now; open another one when that changes."""
        while True:
            self._wanting.clear()
            streams = Background()
            streams.start(self._hold_stream(client, sorted(self._wanted)))
            try:
                await self._wanting.wait()
            finally:
                await streams.close()

    async def _hold_stream(self, client: McpClient, uris: Sequence[str]) -> None:
        while True:
            with suppress(Refused, Malformed, Gone):  # the upstream itself finds out whether the connection is gone
                await client.listen(("prompts", "resources"), uris, self.heard)
            await asyncio.sleep(_AGAIN_S)

    def _notify(self, *changes: FeatureChange) -> None:
        for heard in self._watchers:
            for change in changes:
                heard(change)


def _support_of(agreement: Agreement, *, instructions: bool) -> FeatureSupport:
    can = agreement.capabilities
    return FeatureSupport(
        # Skills are read as resources, declared or not.
        resources=can.resources is not None or SKILLS in (can.extensions or {}),
        prompts=can.prompts is not None,
        completions=can.completions is not None,
        subscriptions=can.resources is not None and bool(can.resources.subscribe),
        instructions=agreement.instructions if instructions else "",
        extensions=can.extensions or {},
    )


def _announces(agreement: Agreement) -> bool:
    can = agreement.capabilities
    lists = any(one is not None and one.list_changed for one in (can.resources, can.prompts))
    return lists or (can.resources is not None and bool(can.resources.subscribe))
