"""Many upstreams behind one door, each failing alone (S1 "MultiplexUpstream", S2 "Multi-Server Operations")."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.errors import CatalogError, GatewayError, UpstreamUnavailable
from app.gateway.ports import CallContext, Upstream, UpstreamStatus

Listing = Sequence[Mapping[str, Any]]


class MultiplexUpstream:
    """Upstreams by name. A call goes to the one that owns the tool; a listing asks them all at once."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._by_name = {upstream.name: upstream for upstream in upstreams}
        if len(self._by_name) != len(upstreams):
            raise CatalogError("two upstreams have the same name")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def statuses(self) -> dict[str, UpstreamStatus]:
        return {name: upstream.status for name, upstream in self._by_name.items()}

    async def list_tools(self, names: Collection[str] | None = None) -> dict[str, Listing | GatewayError]:
        """Definitions by upstream name; an upstream that fails gives its error, the others their tools."""
        chosen = [name for name in self._by_name if names is None or name in names]
        listings = await asyncio.gather(*(self._list_one(self._by_name[name]) for name in chosen))
        return dict(zip(chosen, listings, strict=True))

    async def call_tool(
        self, server: str, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """Raises what the upstream raises, and UpstreamUnavailable for a server that is not there."""
        upstream = self._by_name.get(server)
        if upstream is None:
            raise UpstreamUnavailable(f"Unknown server '{server}'.")
        return await upstream.call_tool(name, arguments, context, timeout_s)

    @staticmethod
    async def _list_one(upstream: Upstream) -> Listing | GatewayError:
        try:
            return await upstream.list_tools()
        except GatewayError as error:
            return error
