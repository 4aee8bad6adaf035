"""A validated call on its way: plugins on the call, its server, plugins on the result (DESIGN §1 "How a call travels").

The server is looked up after the plugins (S2 "Server Validation Timing"), so that one of them may redirect a call.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from app.catalog.catalog import Catalog
from app.catalog.selectable import SelectableItem
from app.errors import Forbidden, UpstreamRefused
from app.gateway.audited import AuditedCall
from app.gateway.dispatch import Dispatcher
from app.gateway.plugin_chain import PluginChain
from app.gateway.plugins import Complete, Request
from app.gateway.ports import CallContext


class Pipeline:
    """Without *plugins* a call goes straight to its server."""

    def __init__(self, dispatcher: Dispatcher, plugins: PluginChain | None, now: Callable[[], float]) -> None:
        self._dispatcher = dispatcher
        self._plugins = plugins
        self._now = now

    async def call(
        self,
        catalog: Catalog,
        item: SelectableItem,
        arguments: Mapping[str, Any],
        context: CallContext,
        note: AuditedCall,
    ) -> Mapping[str, Any]:
        """The result as it may be shown. Raises what the dispatcher raises, and Forbidden."""
        note.server = item.server
        plugins = self._plugins
        if plugins is None or not plugins.for_server(item.server):
            return await self._send(catalog, item, arguments, context, note)
        request = Request(
            context.correlation_id, "tools/call", item.server, item.upstream_name, arguments, context.identity
        )

        async def send(request: Request) -> Mapping[str, Any]:
            target = item
            if (request.server, request.name) != (item.server, item.upstream_name):
                target = replace(item, server=request.server, upstream_name=request.name)
            return await self._send(catalog, target, request.arguments, context, note)

        try:
            return await self._around(plugins, request, note, send)
        except Forbidden as error:
            error.path = item.id
            raise

    async def pass_on(
        self, request: Request, note: AuditedCall, send: Callable[[Request], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """The same for what is no call of a tool: *send* carries the request as the plugins left it."""
        note.server = request.server

        async def sent(request: Request) -> Mapping[str, Any]:
            note.sent = True
            result = await send(request)
            note.answered = True
            return result

        if self._plugins is None:
            return await sent(request)
        return await self._around(self._plugins, request, note, sent)

    @staticmethod
    async def _around(
        plugins: PluginChain,
        request: Request,
        note: AuditedCall,
        send: Callable[[Request], Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any]:
        server = request.server
        passed = await plugins.on_request(request, note.trail)
        if isinstance(passed, Complete):
            result = passed.result
        else:
            request = passed
            note.server = request.server
            try:
                result = await send(request)
            except UpstreamRefused as refused:
                note.answered = True
                shown = await plugins.on_result(server, request, _as_result(refused), note.trail)
                raise _refused_as(shown, refused) from None
        return await plugins.on_result(server, request, result, note.trail)

    async def _send(
        self,
        catalog: Catalog,
        item: SelectableItem,
        arguments: Mapping[str, Any],
        context: CallContext,
        note: AuditedCall,
    ) -> Mapping[str, Any]:
        began = self._now() if note.recorded else 0.0
        note.sent = True
        try:
            result, note.cached = await self._dispatcher.call(catalog, item, arguments, context)
        finally:
            if note.recorded:
                note.upstream_s = self._now() - began
        note.answered = True
        note.tool_error = bool(result.get("isError"))
        return result


def _as_result(refused: UpstreamRefused) -> Mapping[str, Any]:
    """A server's own error as a result that says the same: what it says there is content, too."""
    result = {"content": [{"type": "text", "text": refused.refusal}], "isError": True}
    return result if refused.data is None else {**result, "structuredContent": refused.data}


def _refused_as(shown: Mapping[str, Any], refused: UpstreamRefused) -> UpstreamRefused:
    """The error with the words that the plugins left of it."""
    content = shown.get("content")
    first = content[0] if isinstance(content, list | tuple) and content else None
    text = first.get("text") if isinstance(first, Mapping) else None
    other = UpstreamRefused(
        refused.message,
        code=refused.upstream_code,
        refusal=text if isinstance(text, str) else "",
        data=shown.get("structuredContent"),
        name=refused.name,
    )
    other.path = refused.path
    return other
