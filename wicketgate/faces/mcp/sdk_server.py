"""A face as a server of the official SDK, in both protocol eras and over any transport, with the notifications to its
clients. Besides tools it offers resources, templates, prompts, skills, completion and subscriptions (ROUTE-11)."""

import asyncio
import logging
import operator
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
from mcp import types as t
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from wicketgate.access.identity import Identity
from wicketgate.errors import GatewayError
from wicketgate.faces.mcp.changes import Announcer
from wicketgate.faces.mcp.fit import MISSING_KEY, WHOLE, fitting, paged, without_ours
from wicketgate.faces.mcp.questions import read_answers
from wicketgate.faces.mcp.request import McpRequest, RpcError, mcp_error
from wicketgate.faces.mcp.sdk_caller import (
    ClientCaller,
    connection_of,
    keep_change,
    seal_state,
    seal_states,
    set_log_level,
)
from wicketgate.faces.mcp.server import EVERYBODY, STRANGER, TOOLS_FRESH_MS, McpDoor
from wicketgate.faces.mcp.session_tokens import McpSession, SessionChange
from wicketgate.faces.meta_tool import LARGE
from wicketgate.faces.namespaced import UPSTREAM_FAILED
from wicketgate.faces.namespaced_offers import NamespacedOffers
from wicketgate.faces.surface import Offer, Refusal, SurfaceTool
from wicketgate.fleet.features import ADDRESS, FeatureChange, FeatureKind, ListChanged, ResourceChanged
from wicketgate.ports import CallContext, session_key

log = logging.getLogger("wicketgate.mcp")

Ctx = ServerRequestContext[Any, Any]
Run = Callable[[CallContext], Awaitable[Mapping[str, Any]]]
Ask = Callable[[Mapping[str, Any], CallContext], Awaitable[Mapping[str, Any]]]
Carry = Callable[[Ctx, Run], Awaitable[Mapping[str, Any]]]
P = TypeVar("P", bound=BaseModel)
Handler = Callable[[Ctx, P], Awaitable[HandlerResult]]
ContextOf = Callable[[Ctx], CallContext]

_LISTS: Mapping[FeatureKind, tuple[str, str]] = {
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
    "skills": ("skills/list", "skills"),
}
_OFFER_OF: Mapping[FeatureKind, Offer] = {
    "resources": "resources",
    "templates": "resources",
    "prompts": "prompts",
    "skills": "skills",
}

OFFERS_FRESH: Mapping[CacheableMethod, CacheHint] = {
    method: CacheHint(0, "private")
    for method in ("resources/list", "resources/templates/list", "prompts/list", "resources/read")
}

_NAMED = {
    "tools/call": ("Tool", "name"),
    "prompts/get": ("Prompt", "name"),
    "resources/read": ("Resource", "uri"),
    "resources/directory/read": ("Directory", "uri"),
    "skills/get": ("Skill", "uri"),
}


class OfferMethods:
    """*carry* runs a request to a tool server with the client that waits for it. *context_of* gives the caller."""

    def __init__(self, offers: NamespacedOffers, announcer: Announcer, carry: Carry, context_of: ContextOf) -> None:
        self._offers = offers
        self._announcer = announcer
        self._carry = carry
        self._context_of = context_of
        offers.watch(self._announce)

    def add_to(self, server: "Server[Any]") -> None:
        def add(method: str, offer: Offer, params: type[P], handler: Handler[P]) -> None:
            async def if_offered(ctx: Ctx, params: P) -> HandlerResult:
                # A method that is not declared does not exist.
                if not self._offers.offered(offer):
                    raise RpcError(t.METHOD_NOT_FOUND, "Method not found", method)
                return await handler(ctx, params)

            server.add_request_handler(method, params, if_offered)

        for kind, (method, _) in _LISTS.items():
            add(method, _OFFER_OF[kind], t.PaginatedRequestParams, self._lister(kind))
        add("resources/read", "resources", t.ReadResourceRequestParams, self._carried(self._offers.read_resource))
        add(
            "resources/directory/read",
            "directories",
            t.ReadResourceRequestParams,
            self._carried(self._offers.read_directory),
        )
        add("skills/get", "skills", t.ReadResourceRequestParams, self._carried(self._offers.get_skill))
        add("resources/subscribe", "resources", t.SubscribeRequestParams, self._subscribe)
        add("resources/unsubscribe", "resources", t.UnsubscribeRequestParams, self._unsubscribe)
        add("prompts/get", "prompts", t.GetPromptRequestParams, self._carried(self._offers.get_prompt))
        add("completion/complete", "completions", t.CompleteRequestParams, self._carried(self._offers.complete))
        server.add_request_handler("subscriptions/listen", t.SubscriptionsListenRequestParams, self._listen)

    def _lister(self, kind: FeatureKind) -> Callable[[Ctx, t.PaginatedRequestParams], Awaitable[dict[str, Any]]]:
        method, key = _LISTS[kind]
        address = ADDRESS[kind]

        async def lister(ctx: Ctx, params: t.PaginatedRequestParams) -> dict[str, Any]:
            listed = await self._offers.list_all(kind, self._context_of(ctx))
            page, following = paged(listed.items, params.cursor, lambda item: str(item[address]))
            # The SDK knows no skills: they are the same for every version, and what they lack is ours to say.
            shown = page if kind == "skills" else fitting(method, key, page, ctx.protocol_version)
            answer: dict[str, Any] = {**WHOLE, key: list(shown), "ttlMs": listed.fresh_ms}
            if kind == "skills":
                answer["cacheScope"] = "private"
            if following is not None:
                answer["nextCursor"] = following
            if listed.missing:
                answer["_meta"] = {MISSING_KEY: dict(listed.missing)}
            return answer

        return lister

    def _carried(self, request: Ask) -> Handler[Any]:
        """The handler of a request that goes to a tool server."""

        async def handler(ctx: Ctx, params: BaseModel) -> dict[str, Any]:
            try:
                result = await self._carry(ctx, lambda context: request(ctx.params or {}, context))
            except GatewayError as error:
                raise mcp_error(Refusal(UPSTREAM_FAILED, error.message, {"error": error.code}), ctx) from None
            if result.get("resultType") == "input_required":
                return dict(result)
            answer = without_ours(result)
            # Only we know the audience of an answer.
            return {**answer, "cacheScope": "private"} if "cacheScope" in answer else answer

        return handler

    async def follow(self, connection: Connection, uris: Collection[str], context: CallContext) -> None:
        """Notify this session of exactly these resources, as far as the caller may still know of them."""
        followed = self._announcer.subscribed(connection)
        for uri in set(followed) - set(uris):
            self._announcer.unsubscribe(connection, uri)
        for uri in set(uris) - set(followed):
            try:
                release = await self._offers.subscribe(uri, context)
            except Refusal as refusal:
                log.debug("a session no longer follows a resource: %s", refusal)
                continue
            self._announcer.subscribe(connection, uri, release, self._may_follow(context, [uri]))

    async def _subscribe(self, ctx: Ctx, params: t.SubscribeRequestParams) -> t.EmptyResult:
        uri, context = str(params.uri), self._context_of(ctx)
        release = await self._watch(ctx, uri)
        self._announcer.subscribe(connection_of(ctx), uri, release, self._may_follow(context, [uri]))
        try:
            await keep_change(ctx, SessionChange(follow=uri))
        except BaseException:
            self._announcer.unsubscribe(connection_of(ctx), uri)
            raise
        return t.EmptyResult()

    async def _unsubscribe(self, ctx: Ctx, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
        await keep_change(ctx, SessionChange(unfollow=str(params.uri)))
        self._announcer.unsubscribe(connection_of(ctx), str(params.uri))
        return t.EmptyResult()

    async def _listen(self, ctx: Ctx, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """Resources that the caller may not subscribe to are left out of the acknowledgement, and lists that no server
        has (FACE-61)."""
        releases: dict[str, Callable[[], None]] = {}
        try:
            for uri in dict.fromkeys(params.notifications.resource_subscriptions or ()):
                try:
                    releases[uri] = await self._watch(ctx, uri)
                except RpcError:
                    continue
            asked, offered = params.notifications, self._offers.offered
            wanted = t.SubscriptionFilter(
                tools_list_changed=asked.tools_list_changed,
                prompts_list_changed=asked.prompts_list_changed if offered("prompts") else None,
                resources_list_changed=asked.resources_list_changed if offered("resources") else None,
                resource_subscriptions=list(releases),
            )
            may = self._may_follow(self._context_of(ctx), list(releases))
            return await self._announcer.listen(ctx, params.model_copy(update={"notifications": wanted}), may)
        finally:
            for release in releases.values():
                release()

    def _may_follow(self, context: CallContext, uris: Sequence[str]) -> Callable[[], bool]:
        return lambda: all(self._offers.may_follow(uri, context) for uri in uris)

    async def _watch(self, ctx: Ctx, uri: str) -> Callable[[], None]:
        try:
            return await self._offers.subscribe(uri, self._context_of(ctx))
        except Refusal as refusal:
            raise mcp_error(refusal, ctx) from None

    def _announce(self, change: FeatureChange) -> None:
        match change:
            case ListChanged(kind="prompts"):
                self._announcer.announce(PromptsListChanged(), change.actor)
            case ListChanged():
                self._announcer.announce(ResourcesListChanged(), change.actor)
            case ResourceChanged(uri=uri):
                self._announcer.announce(ResourceUpdated(uri), change.actor)


class TaskParams(t.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class SdkServer:
    """The SDK's *server* of *door*."""

    def __init__(self, door: McpDoor) -> None:
        self._door = door
        self._shown: Sequence[SurfaceTool] = ()
        self._catalog_changed = asyncio.Event()
        self.announcer = Announcer(lambda ctx: door.who(ctx).actor, door.streams)
        self.server: Server[Any] = Server(
            door.info["name"],
            version=door.info["version"],
            on_subscriptions_listen=self._listen,
            # Without this the SDK lists all tools before each call of the newer era.
            get_tool_input_schema=door.input_schema,
            cache_hints={"tools/list": CacheHint(TOOLS_FRESH_MS, "private"), **OFFERS_FRESH},
        )
        # Added by method, because these answer with wire JSON, which the SDK validates once.
        add, tasks = self.server.add_request_handler, door.tasks
        add("tools/list", t.PaginatedRequestParams, self._list_tools)
        add("tools/call", t.CallToolRequestParams, self._call_tool)
        add("logging/setLevel", t.SetLevelRequestParams, set_log_level)
        add("tasks/get", TaskParams, lambda ctx, params: tasks.answer(ctx, params.task_id, "get"))
        add("tasks/update", UpdateParams, lambda ctx, x: tasks.answer(ctx, x.task_id, "update", x.input_responses))
        add("tasks/cancel", TaskParams, lambda ctx, params: tasks.answer(ctx, params.task_id, "cancel"))
        self.server.add_notification_handler(
            "notifications/initialized", t.NotificationParams, self.announcer.session_opened
        )
        self._offer_methods: OfferMethods | None = None
        if door.offers is not None:
            self._offer_methods = OfferMethods(door.offers, self.announcer, self._carry, door.context_of)
            self._offer_methods.add_to(self.server)
        self._states = seal_states(door.seal, door.name, door.who)
        self.server.middleware += [self._checked, self._states, tasks.declare, self._introduced]

    def list_changed(self) -> None:
        """Call it when the catalog has changed: clients are notified if the list of tools differs. Returns at once."""
        self._catalog_changed.set()

    async def announcing(self) -> None:
        """Notify clients of what changes, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.announcer.run)
            while True:
                await self._catalog_changed.wait()
                self._catalog_changed.clear()
                try:
                    await self.compare_list()
                except Exception:
                    log.exception("clients could not be notified of changed tools")  # the next change may succeed

    async def compare_list(self, *, announce: bool = True) -> None:
        """Announce the list of tools if it differs from the last one. A large one is made and compared beside the event
        loop (BROWSE-59)."""
        surface = self._door.surface
        await surface.prepare(EVERYBODY)
        tools, before = surface.tools(EVERYBODY), self._shown
        if tools is before:
            return
        differs = partial(operator.ne, tools, before)
        if await asyncio.to_thread(differs) if len(tools) > LARGE else differs():
            self._shown = tools
            if announce:
                self.announcer.announce(ToolsListChanged())

    def access_changed(self) -> None:
        """Call it when access rules or permissions have changed: all clients are notified of lists that depend on the
        caller, and hear no more of resources that they may not read."""
        self.announcer.recheck()
        surface, offers = self._door.surface, self._door.offers
        tools = surface.tools(EVERYBODY)
        if tools is not surface.tools(STRANGER):
            self._shown = tools
            self.announcer.announce(ToolsListChanged())
        if offers is not None and offers.offered("prompts"):
            self.announcer.announce(PromptsListChanged())
        if offers is not None and offers.offered("resources"):
            self.announcer.announce(ResourcesListChanged())

    async def take_up(self, connection: Connection, session_id: str, session: McpSession, identity: Identity) -> None:
        """Notify the client of a session through *connection*, of the resources that it has subscribed to, too."""
        self.announcer.follow(connection, identity.actor)
        if self._offer_methods is not None:
            key = session_key("mcp", identity.actor, session_id)
            await self._offer_methods.follow(connection, session.uris, CallContext(identity, self._door.new_id(), key))

    async def sealed(self, asked: McpRequest, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """*result* with its state sealed, for a request that came past the SDK. Raises RpcError."""
        return await seal_state(self._states, asked, result)

    async def _checked(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Middleware, the outermost: refuses bad method names, and requests without the name that they need (FACE-4,
        FACE-5, ROUTE-2). Turns our errors into errors of the SDK."""
        if not ctx.method:
            raise MCPError(t.INVALID_REQUEST, "Method cannot be empty")
        if ctx.method.strip() != ctx.method:
            raise MCPError(t.INVALID_REQUEST, "Method name cannot start or end with whitespace")
        if ctx.method in _NAMED and self.server.get_request_handler(ctx.method) is not None:
            _check_name(ctx)
        try:
            return await call_next(ctx)
        except RpcError as error:
            raise MCPError(error.code, error.message, error.data) from None

    async def _introduced(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Middleware: gives each client its own instructions, and the capabilities that the door has."""
        result = await call_next(ctx)
        if not isinstance(result, dict) or ctx.method not in ("initialize", "server/discover"):
            return result
        shown = self._door.introduced(self._door.context_of_caller(), result.get("protocolVersion", ""))
        if ctx.method == "initialize":
            return shown
        return {**result, **{key: shown[key] for key in ("capabilities", "instructions") if key in shown}}

    async def _listen(self, ctx: Ctx, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """For a face with tools alone: nothing else is acknowledged (FACE-61)."""
        honoured = t.SubscriptionFilter(tools_list_changed=params.notifications.tools_list_changed)
        return await self.announcer.listen(ctx, params.model_copy(update={"notifications": honoured}))

    async def _list_tools(self, ctx: Ctx, params: t.PaginatedRequestParams) -> dict[str, Any]:
        tools, more = await self._door.tools_shown(self._door.context_of(ctx, ClientCaller(ctx)))
        return {**await self._door.listings.page(tools, params.cursor, ctx.protocol_version), **more}

    async def _call_tool(self, ctx: Ctx, params: t.CallToolRequestParams) -> dict[str, Any]:
        given = read_answers(ctx.params or {})
        return dict(await self._door.call_tool(ctx, ClientCaller(ctx), params.name, params.arguments, given))

    async def _carry(self, ctx: Ctx, run: Run) -> Mapping[str, Any]:
        return await self._door.carry(ctx, ClientCaller(ctx), read_answers(ctx.params or {}), run)


def _check_name(ctx: Ctx) -> None:
    noun, key = _NAMED[ctx.method]
    name = (ctx.params or {}).get(key)
    if name is None:
        raise MCPError(t.INVALID_PARAMS, f"{noun} call missing required '{key}' parameter")
    if not isinstance(name, str):
        raise MCPError(t.INVALID_PARAMS, f"{noun} call needs a string as its '{key}' parameter")
