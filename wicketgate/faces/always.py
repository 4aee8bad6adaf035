"""The gateway face with tools that the operator has chosen, listed next to the three (FACE-180 to FACE-184).

A chosen tool has the name, the schema and the results of the namespaced face, which also runs it.
"""

import logging
from collections.abc import Awaitable, Collection, Sequence

from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.said_words import SaidWords
from wicketgate.catalog.tool_id import Visible
from wicketgate.faces.gateway import TOOLS, GatewayFace
from wicketgate.faces.meta_tool import ToolLists
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.surface import MAX_ALWAYS, SurfaceResult, SurfaceTool
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext

log = logging.getLogger("wicketgate.gateway")


class AlwaysFace:
    """Implements ToolSurface. *patterns* match tools as rules do, or with the hash of an id. The first ``MAX_ALWAYS``
    tools that a caller may see are listed."""

    def __init__(
        self, runtime: ProxyRuntime, gateway: GatewayFace, namespaced: NamespacedFace, patterns: Collection[str]
    ) -> None:
        self._gateway = gateway
        self._namespaced = namespaced
        self._fits = SaidWords({pattern: (pattern,) for pattern in patterns}).of
        self._lists = ToolLists(runtime, self._listed)

    def prepare(self, context: CallContext) -> Awaitable[None]:
        return self._lists.prepare(context)

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        return self._lists.of(context)

    def introduction(self, context: CallContext) -> str:
        return self._gateway.introduction(context)

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        await self.prepare(context)
        # A tool that this caller is not shown is no tool of this face: the gateway face answers as for any other name.
        chosen = any(tool.name == name for tool in self.tools(context)[len(TOOLS) :])
        return await (self._namespaced if chosen else self._gateway).call(name, arguments, context)

    def _listed(self, catalog: Catalog, visible: Visible | None) -> Sequence[SurfaceTool]:
        chosen = self._namespaced.chosen(catalog, visible, self._fits)
        if visible is None and len(chosen) > MAX_ALWAYS:
            log.warning("mcp.always matches %d tools; the first %d are listed", len(chosen), MAX_ALWAYS)
        return (*TOOLS, *chosen[:MAX_ALWAYS])
