"""The MCP methods of a face's offers besides tools: resources, templates, prompts, skills, completion and subscriptions
(ROUTE-11)."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from mcp import types as t
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.connection import Connection
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from wicketgate.errors import GatewayError
from wicketgate.faces.mcp.caller import connection_of, keep_change
from wicketgate.faces.mcp.changes import Announcer
from wicketgate.faces.mcp.codes import mcp_error
from wicketgate.faces.mcp.fit import WHOLE, fitting, paged, without_ours
from wicketgate.faces.mcp.kept_sessions import SessionChange
from wicketgate.faces.namespaced import UPSTREAM_FAILED
from wicketgate.faces.surface import Offer, Offers, Refusal
from wicketgate.fleet.features import ADDRESS, FeatureChange, FeatureKind, ListChanged, ResourceChanged
from wicketgate.ports import CallContext

log = logging.getLogger("wicketgate.mcp")

# A list gives under this key of ``_meta`` the reason, by server, that items are left out.
MISSING_KEY = "wicketgate/missing"

Ctx = ServerRequestContext[Any, Any]
Run = Callable[[CallContext], Awaitable[Mapping[str, Any]]]
Ask = Callable[[Mapping[str, Any], CallContext], Awaitable[Mapping[str, Any]]]
Carry = Callable[[Ctx, Run], Awaitable[Mapping[str, Any] | t.InputRequiredResult]]
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


class OfferMethods:
    """*carry* runs a request to a tool server with the client that waits for it. *context_of* gives the caller."""

    def __init__(self, offers: Offers, announcer: Announcer, carry: Carry, context_of: ContextOf) -> None:
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
                    raise MCPError(t.METHOD_NOT_FOUND, "Method not found", method)
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

        async def handler(ctx: Ctx, params: BaseModel) -> dict[str, Any] | t.InputRequiredResult:
            try:
                result = await self._carry(ctx, lambda context: request(ctx.params or {}, context))
            except GatewayError as error:
                raise mcp_error(Refusal(UPSTREAM_FAILED, error.message, {"error": error.code}), ctx) from None
            if isinstance(result, t.InputRequiredResult):
                return result
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
                except MCPError:
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
