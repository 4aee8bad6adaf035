"""The namespaced face: every tool under ``server__tool`` with its full schema, and results as they are but for their
links (ROUTE-1 to ROUTE-17, ROUTE-46).

A call that cannot reach its tool, or that the server refuses, is a JSON-RPC error. A failure that a model can mend
(arguments, rights, quotas) is a result with ``isError``.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from wicketgate.access.policy import Hidden
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem, other_fields, shown_annotations
from wicketgate.catalog.tool_id import Visible
from wicketgate.errors import (
    GatewayError,
    HydrateFailed,
    UnknownServer,
    UpstreamError,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.faces.apps import shows_apps
from wicketgate.faces.links import names_page, with_links, with_pages
from wicketgate.faces.meta_tool import CONNECTING, ToolLists, json_result
from wicketgate.faces.routing import (
    RoutedRequest,
    ToolNames,
    data_with_uri,
    join_name,
    parse_incoming_request,
    restore_name,
)
from wicketgate.faces.surface import Refusal, SurfaceResult, SurfaceTool
from wicketgate.gateway.first_logins import CONNECT
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.mcp_names import INVALID_PARAMS
from wicketgate.ports import CallContext, UpstreamStatus

log = logging.getLogger("wicketgate.namespaced")

# The server could not be reached, did not answer in time, or failed without an error of its own (ROUTE-15).
UPSTREAM_FAILED = -32004

_MAX_LOGGED = 5


class NamespacedFace:
    """Implements ToolSurface over a runtime. *statuses* names every configured server, also one without tools."""

    def __init__(
        self,
        runtime: ProxyRuntime,
        statuses: Callable[[], Mapping[str, UpstreamStatus]],
        *,
        started: Callable[[], bool] = lambda: True,
    ) -> None:
        self._runtime = runtime
        self._statuses = statuses
        self._started = started
        self._indexed: _Index | None = None
        self._lists = ToolLists(runtime, self._shown)
        self._without_apps = ToolLists(runtime, partial(self._shown, for_app=False))

    def prepare(self, context: CallContext) -> Awaitable[None]:
        return self._lists_for(context).prepare(context)

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        """The tools, sorted by name without regard to case (ROUTE-7); those for pages alone only for a client that
        shows pages (ROUTE-51)."""
        return self._lists_for(context).of(context)

    def _lists_for(self, context: CallContext) -> ToolLists:
        if not self._runtime.catalog().app_tools or shows_apps(context.caller.capabilities):
            return self._lists
        return self._without_apps

    def missing(self, context: CallContext) -> Mapping[str, str]:
        """By server, the reason that tools of it are missing; only servers that the caller may know (ROUTE-9)."""
        statuses = self._statuses()
        down = {name: status.error or status.phase for name, status in statuses.items() if status.phase != "ready"}
        troubles = {**down, **{name: text for name, text in self._runtime.troubles().items() if name in statuses}}
        return {name: text for name, text in sorted(troubles.items()) if self.knows(name, context)}

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        if not self._started():
            raise Refusal(UPSTREAM_FAILED, CONNECTING)
        names = self._index().names
        # Find the tool behind the name. A name without one is audited before it is refused.
        try:
            params = {"name": name, "arguments": arguments}
            routed = parse_incoming_request("tools/call", params, aliases=names.aliases)
        except Refusal:
            await self._runtime.audit_unknown(name, context)
            raise
        target = routed.target_server, routed.name
        tool_id = names.targets.get(target)
        if tool_id is None and routed.target_server in self._runtime.first_logins.shown_to(context.identity):
            try:
                opened = await self._runtime.offer_login(":".join(target), context)
            except GatewayError as error:
                return self._failed(error, routed)
            tool_id = self._index().names.targets.get(target)
            if tool_id is None and opened and routed.name == CONNECT:
                return json_result({"connected": opened})
        if tool_id is None:
            await self._runtime.audit_unknown(name, context)
            raise self._unknown(routed, context)
        # Call it, and restore the client's name in what the server says.
        for_app = shows_apps(context.caller.capabilities)
        try:
            # The runtime refuses arguments that are not an object, except absent ones.
            result = await self._runtime.call(tool_id, {} if arguments is None else arguments, context, for_app=for_app)
        except HydrateFailed:
            raise self._unknown(routed, context) from None
        except UpstreamRefused as error:
            message = restore_name(error.refusal, error.name or routed.name, routed.namespaced_name)
            raise Refusal(error.upstream_code, message, data_with_uri(error.data, routed), theirs=True) from None
        except GatewayError as error:
            return self._failed(error, routed)
        return SurfaceResult.unchanged(with_links(result, routed.target_server))

    def _failed(self, error: GatewayError, routed: RoutedRequest) -> SurfaceResult:
        """The result of a call that failed with *error*. Raises Refusal for a failure that no model can mend."""
        if isinstance(error, UnknownServer):
            raise Refusal(INVALID_PARAMS, error.message) from None
        if isinstance(error, UpstreamUnavailable | UpstreamTimeout | UpstreamError):
            raise Refusal(UPSTREAM_FAILED, error.message, {"error": error.code, "retryable": error.retryable}) from None
        error.path = routed.namespaced_name
        return json_result(error.as_dict(), is_error=True)

    def _unknown(self, routed: RoutedRequest, context: CallContext) -> Refusal:
        """The same answer for a tool that is unknown and for one that this caller may not see."""
        server = routed.target_server
        if not self.knows(server, context):
            return Refusal(INVALID_PARAMS, f"Unknown server '{server[:256]}' in request")
        status = self._statuses().get(server)
        if status is not None and status.phase != "ready" and server not in self._index().names.servers:
            why = status.error or "it is being connected"
            return Refusal(UPSTREAM_FAILED, f"Server '{server}' is unavailable: {why}")
        return Refusal(INVALID_PARAMS, f"Tool '{routed.namespaced_name[:256]}' not found")

    def has_pages(self) -> bool:
        """True if some tool names a page of an MCP App."""
        return self._index().has_pages

    def knows(self, server: str, context: CallContext) -> bool:
        """True if the caller may know of this server: it sees a tool of it, or may use all of them."""
        if server not in self._statuses():
            return False
        if context.identity.allows(f"tools:{server}:*") and not isinstance(
            self._runtime.access.rules_on_all_of(context.identity, server), Hidden
        ):
            return True
        return self._sees_one(server, context)

    def may_use(self, server: str, context: CallContext) -> bool:
        """True if the caller has the permission for every tool of *server*, and sees one if there are any."""
        if not context.identity.allows(f"tools:{server}:*"):
            return False
        return self._sees_one(server, context) or not any(item.server == server for item, _ in self._index().tools)

    def _sees_one(self, server: str, context: CallContext) -> bool:
        visible = self._runtime.visible(context)
        return any(item.server == server and (visible is None or visible(item.id)) for item, _ in self._index().tools)

    def _shown(self, catalog: Catalog, visible: Visible | None, *, for_app: bool = True) -> tuple[SurfaceTool, ...]:
        shown = tuple(
            tool
            for item, tool in self._index(catalog).tools
            if (visible is None or visible(item.id)) and (for_app or item.id not in catalog.app_tools)
        )
        waiting = self._runtime.first_logins.waiting() if visible is None else ()
        if not waiting:
            return shown
        # In place of tools that nobody knows yet, and in the same order.
        return tuple(sorted((*shown, *map(_connecting, waiting)), key=lambda tool: (tool.name.casefold(), tool.name)))

    def chosen(
        self, catalog: Catalog, visible: Visible | None, fits: Callable[[SelectableItem], object]
    ) -> tuple[SurfaceTool, ...]:
        """The tools for an audience of *catalog* that *fits* accepts, in the order of this face. Omits those for pages
        alone."""
        return tuple(
            tool
            for item, tool in self._index(catalog).tools
            if fits(item) and (visible is None or visible(item.id)) and item.id not in catalog.app_tools
        )

    def _index(self, catalog: Catalog | None = None) -> "_Index":
        """The names and definitions of *catalog*, or of the one in force; made once for each, maybe in a thread."""
        catalog = catalog or self._runtime.catalog()
        indexed = self._indexed
        if indexed is not None and indexed.catalog is catalog:
            return indexed
        # A page may call the tools that its server keeps from models; its host tells them apart by their visibility.
        # Skills have methods of their own here.
        items = {key: item for key, item in {**catalog.tools, **catalog.app_tools}.items() if item.kind == "tool"}
        names = ToolNames(items.values())
        shown = [(items[tool_id], _tool(items[tool_id], name)) for tool_id, name in names.shown.items()]
        shown.sort(key=lambda pair: (pair[1].name.casefold(), pair[1].name))
        self._indexed = indexed = _Index(catalog, names, shown, any(map(names_page, items.values())))
        if names.aliases:
            some = ", ".join(sorted(names.aliases)[:_MAX_LOGGED])
            log.warning(
                "%d tools have an alias, because model APIs do not accept their names: %s", len(names.aliases), some
            )
        for tool_id in names.unreachable[:_MAX_LOGGED]:
            log.warning("%s has the name of another tool of its server, and cannot be called by it", tool_id)
        return indexed


@dataclass(frozen=True, slots=True)
class _Index:
    """The tools of one catalog under the names of this face, in the order of these."""

    catalog: Catalog
    names: ToolNames
    tools: Sequence[tuple[SelectableItem, SurfaceTool]]
    has_pages: bool


def _connecting(server: str) -> SurfaceTool:
    """The tool that stands for a server that waits for a first login (UP-177)."""
    what = f"Connect your own account at {server}. Its tools are listed then."
    return SurfaceTool(join_name(server, CONNECT), what, {"type": "object"})


def _tool(item: SelectableItem, name: str) -> SurfaceTool:
    more = other_fields(item)
    if "_meta" in more:
        more["_meta"] = with_pages(more["_meta"], item.server)
    return SurfaceTool(
        name=name,
        description=item.description,
        input_schema=item.args_schema,
        read_only=not item.side_effects,
        output_schema=item.output_schema,
        hints=shown_annotations(item),
        title=item.title,
        more=more,
    )
