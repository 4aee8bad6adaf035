"""Resources, prompts, skills and completions of the namespaced face: ``server+scheme://`` and ``server__prompt``
(ROUTE-11, ROUTE-42).

They exist for callers that may use every tool of the server (``tools:<server>:*``) or hold ``resources:<server>`` or
``prompts:<server>``, unless a rule about all of its tools hides them or requires an approval, which has no form here.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from wicketgate.access.policy import Allowed, Hidden
from wicketgate.catalog.card import one_line
from wicketgate.catalog.shown_words import safe_sources, shown_offer
from wicketgate.errors import ConnectRequired, Forbidden, GatewayError, UpstreamRefused, UpstreamUnavailable
from wicketgate.faces.apps import APPS
from wicketgate.faces.links import with_links
from wicketgate.faces.namespaced import UPSTREAM_FAILED, NamespacedFace
from wicketgate.faces.namespaced_skills import NamespacedSkills, shown_children
from wicketgate.faces.routing import (
    RoutedRequest,
    data_with_uri,
    join_name,
    parse_incoming_request,
    restore_name,
)
from wicketgate.faces.surface import Listed, Offer, Refusal
from wicketgate.faces.uris import shown_template, shown_uri
from wicketgate.fleet.features import ADDRESS, FeatureChange, FeatureFleet, FeatureKind, ResourceChanged
from wicketgate.gateway.offer_screening import OfferScreening
from wicketgate.gateway.plugin_chain import Blocked
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.mcp_names import INVALID_PARAMS
from wicketgate.plugin_api import Request
from wicketgate.ports import CallContext

# A plugin refused the request or the result (ROUTE-21).
BLOCKED = -32000

Right = Literal["resources", "prompts"]
Operation = Literal["read", "prompt", "complete"]

_SHOWN: Mapping[FeatureKind, Callable[[str, str], str]] = {
    "resources": shown_uri,
    "templates": shown_template,
    "prompts": join_name,
    "skills": shown_uri,
}
"""The form of the addresses of each kind."""

_MAX_INSTRUCTIONS = 4_000
_MAX_OF_ONE = 500
_YIELDED = 1_000
"""Items that are addressed between two turns of the event loop."""


class NamespacedOffers:
    """The things besides tools of the servers whose tools *face* shows, in MCP wire JSON. The methods raise Refusal,
    and InputRequired if a server has a question."""

    def __init__(self, face: NamespacedFace, fleet: FeatureFleet, runtime: ProxyRuntime, introduction: str) -> None:
        """*introduction* opens the instructions."""
        self._face = face
        self._fleet = fleet
        self._runtime = runtime
        self._introduction = introduction
        self._followed: dict[tuple[str, str], Counter[str]] = {}
        self._screening = OfferScreening(fleet, runtime.pins)
        runtime.report_offers(self._screening)
        self._skills = NamespacedSkills(fleet, self._screening, runtime)

    def missing(self, context: CallContext) -> Mapping[str, str]:
        """By server, the reason that some of its tools are not listed."""
        return self._face.missing(context)

    def offered(self, offer: Offer) -> bool:
        """True if any server has it, or may have it once it is connected."""
        support = self._fleet.support().values()
        return any(one is None or getattr(one, offer) for one in support)

    def extensions(self) -> Mapping[str, Any]:
        """MCP Apps, if a server declared them or has a tool with a page. Settings of several servers cannot be one, so
        there are none (ROUTE-50). Skills, if a server has them (ROUTE-58)."""
        declared = any(one is not None and APPS in one.extensions for one in self._fleet.support().values())
        apps: Mapping[str, Any] = {APPS: {}} if declared or self._face.has_pages() else {}
        return {**apps, **self._skills.extensions()}

    def instructions(self, context: CallContext) -> str:
        """The introduction, then by server the instructions of those that the caller may know, bounded."""
        parts = [self._introduction]
        for name, text in sorted(self._screening.instructions().items()):
            whole = not context.identity.gate or not isinstance(
                self._runtime.access.rules_on_all_of(context.identity, name), Hidden
            )
            if whole and self._face.knows(name, context):
                parts.append(f"{name}: {one_line(text)[:_MAX_OF_ONE]}")
        return "\n".join(parts)[:_MAX_INSTRUCTIONS]

    async def list_all(self, kind: FeatureKind, context: CallContext) -> Listed:
        """The items, sorted by address without regard to case."""
        right: Right = "prompts" if kind == "prompts" else "resources"
        servers = [name for name in self._fleet.support() if self._may(context, right, name)]
        listing = await self._screening.list_all(kind, servers, context.identity)
        address = ADDRESS[kind]
        shown: dict[str, Mapping[str, Any]] = {}
        missing = dict(listing.missing)
        for server, items in listing.items.items():
            try:
                if kind == "skills":
                    skills = await self._skills.shown(server, items, context.identity)
                    shown.update({skill["uri"]: skill for skill in skills})
                    continue
                if kind == "resources":
                    items = await self._skills.without_hidden(server, items, context.identity)
            except UpstreamUnavailable as error:
                # One that does not list its skills keeps back what is its own and nothing else.
                missing[server] = error.message
                continue
            for number, item in enumerate(items):
                if number % _YIELDED == 0:
                    await asyncio.sleep(0)
                name = _SHOWN[kind](server, item[address])
                shown.setdefault(name, {**shown_offer(item, address), address: name})
        ordered = sorted(shown, key=lambda name: (name.casefold(), name))
        return Listed([shown[name] for name in ordered], missing, 0 if missing else listing.fresh_ms)

    async def read_resource(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        routed = await self._routed("resources/read", params, "resources", context)

        async def admit(result: Mapping[str, Any]) -> Mapping[str, Any]:
            return await self._skills.admit(routed.target_server, routed.name, result, context.identity)

        result = await self._pass_on(routed, lambda request: {"uri": request.name}, "read", "resources", context, admit)
        contents = result.get("contents")
        if not isinstance(contents, list):
            raise Refusal(UPSTREAM_FAILED, f"{routed.target_server} returned an answer that is not a valid MCP result.")
        return {**result, "contents": [_addressed(part, routed) for part in contents]}

    async def get_skill(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """The entry of one skill: of the list where it is there, otherwise as its server gives it."""
        routed = await self._routed("skills/get", params, "resources", context)
        server, uri = routed.target_server, routed.name
        listing = await self._screening.list_all("skills", [server], context.identity)
        entry = await self._skills.listed(server, uri, context.identity)
        if entry is not None:
            return {"skill": entry, "ttlMs": listing.fresh_ms, "cacheScope": "private"}
        support = self._fleet.support().get(server)
        if support is None or not support.skills:
            raise _not_found("Skill", routed)
        result = await self._pass_on(routed, lambda request: {"uri": request.name}, "read", "resources", context)
        entry = self._skills.fresh_entry(server, result.get("skill"), uri, context.identity)
        if entry is None:
            raise _not_found("Skill", routed)
        return {**result, "skill": entry, "ttlMs": _ttl_of(result), "cacheScope": "private"}

    async def read_directory(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """The children of a directory, without those that the caller may not have."""
        routed = await self._routed("resources/directory/read", params, "resources", context)
        server, identity = routed.target_server, context.identity
        support = self._fleet.support().get(server)
        if support is None or not support.directories:
            raise _not_found("Directory", routed)
        more = {"cursor": params["cursor"]} if "cursor" in params else {}
        result = await self._pass_on(
            routed, lambda request: {"uri": request.name, **more}, "read", "resources", context
        )
        children = result.get("resources")
        if not isinstance(children, list):
            raise Refusal(UPSTREAM_FAILED, f"{server} returned an answer that is not a valid MCP result.")
        kept = [child for child in children if not await self._skills.hides(server, _uri_of(child), identity)]
        return {**result, "resources": shown_children(server, kept)}

    async def get_prompt(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        routed = await self._routed("prompts/get", params, "prompts", context)
        result = await self._pass_on(
            routed, lambda request: {"name": request.name, "arguments": request.arguments}, "prompt", "prompts", context
        )
        return with_links(result, routed.target_server)

    async def complete(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        by_uri = isinstance(ref := params.get("ref"), Mapping) and ref.get("type") == "ref/resource"
        right: Right = "resources" if by_uri else "prompts"
        routed = await self._routed("completion/complete", params, right, context, "complete")
        # What was typed so far is all that plugins may change.
        asked = {key: params[key] for key in ("argument", "context") if key in params}
        routed = replace(routed, arguments=asked)
        kind = params["ref"]["type"]

        def own(request: Request) -> Mapping[str, Any]:
            return {**request.arguments, "ref": {"type": kind, "uri" if by_uri else "name": request.name}}

        try:
            return await self._pass_on(routed, own, "complete", right, context)
        except (_Withheld, _NotConnected):
            return {"completion": {"values": []}}

    async def subscribe(self, uri: str, context: CallContext) -> Callable[[], None]:
        """Subscribe to changes of a resource. Call the returned function once to unsubscribe."""
        routed = await self._routed("resources/subscribe", {"uri": uri}, "resources", context)
        server, own_uri, actor = routed.target_server, routed.name, context.identity.actor
        try:
            await self._fleet.attend_for(server, context.identity)
            self._fleet.follow(server, own_uri, actor)
        except GatewayError as error:
            raise _refusal(error, routed) from None
        # A change is announced under each URI that was subscribed to, which may be an old form of it.
        forms = self._followed.setdefault((server, own_uri), Counter())
        forms[uri] += 1

        def release() -> None:
            self._fleet.unfollow(server, own_uri, actor)
            forms[uri] -= 1
            if not forms[uri]:
                del forms[uri]
            if not forms:
                self._followed.pop((server, own_uri), None)

        return release

    def may_follow(self, uri: str, context: CallContext) -> bool:
        """True if a caller that has subscribed to a resource may do so by the rules in force."""
        server = parse_incoming_request("resources/subscribe", {"uri": uri}).target_server
        return self._may(context, "resources", server)

    def watch(self, notify: Callable[[FeatureChange], None]) -> None:
        """Call *notify* on each change, with the URIs of this face."""

        def translate(server: str, change: FeatureChange) -> None:
            if not isinstance(change, ResourceChanged):
                notify(change)
                return
            for uri in [*self._followed.get((server, change.uri), ())]:
                notify(ResourceChanged(uri, change.actor))

        self._fleet.watch(translate)

    async def _routed(
        self,
        method: str,
        params: Mapping[str, Any],
        right: Right,
        context: CallContext,
        operation: Operation | None = None,
    ) -> RoutedRequest:
        """The route of a request. Raises Refusal after it is in the audit record (ACCESS-23)."""
        operation = operation or ("read" if right == "resources" else "prompt")
        try:
            routed = parse_incoming_request(method, params)
        except Refusal:
            asked = params.get("uri", params.get("name"))
            await self._runtime.audit_unknown(asked if isinstance(asked, str) else "", context, operation=operation)
            raise
        server = routed.target_server
        known = server in self._fleet.support()
        if known and self._may(context, right, server) and not await self._held(routed, right, context):
            return routed
        await self._runtime.audit_unknown(routed.namespaced_name, context, operation=operation, hidden=known)
        if self._face.knows(server, context):
            noun = "Resource" if right == "resources" else "Prompt"
            raise Refusal(INVALID_PARAMS, f"{noun} '{routed.namespaced_name[:256]}' not found")
        raise Refusal(INVALID_PARAMS, f"Unknown server '{server[:256]}' in request")

    async def _held(self, routed: RoutedRequest, right: Right, context: CallContext) -> bool:
        """True for what pins or signs of suspicion keep out, and for files of skills that the caller may not have; it
        is answered like what is not there."""
        kinds: tuple[FeatureKind, ...] = ("prompts",) if right == "prompts" else ("resources", "templates")
        try:
            server, name = routed.target_server, routed.name
            if right == "resources" and await self._skills.hides(server, name, context.identity):
                return True
            return any([await self._screening.holds(server, kind, name, context.identity) for kind in kinds])
        except GatewayError as error:
            raise _refusal(error, routed) from None

    async def _pass_on(
        self,
        routed: RoutedRequest,
        params: Callable[[Request], Mapping[str, Any]],
        operation: Operation,
        right: Right,
        context: CallContext,
        admit: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]] | None = None,
    ) -> Mapping[str, Any]:
        """*admit* judges the server's own answer to the request as it came, before the plugins."""
        arguments = routed.arguments
        method, name = routed.method, routed.name
        request = Request(
            context.correlation_id,
            method,
            routed.target_server,
            name,
            arguments if isinstance(arguments, Mapping) else {},
            context.identity,
        )
        called = routed

        async def still_allowed() -> None:
            if not self._may(context, right, routed.target_server) or await self._held(routed, right, context):
                raise Forbidden("answers_refused: you may no longer use this.")

        async def send(request: Request, context: CallContext) -> Mapping[str, Any]:
            nonlocal called
            called = replace(routed, name=request.name)
            result = await self._fleet.request(request.server, method, params(request), context)
            as_asked = (request.server, request.name) == (routed.target_server, routed.name)
            return await admit(result) if admit is not None and as_asked else result

        try:
            return await self._runtime.pass_on(request, context, operation, send, routed.namespaced_name, still_allowed)
        except Blocked as error:
            raise _Withheld(BLOCKED, error.message, {"error": error.code, "retryable": error.retryable}) from None
        except GatewayError as error:
            raise _refusal(error, called) from None

    def _may(self, context: CallContext, right: Right, server: str) -> bool:
        if not isinstance(self._runtime.access.rules_on_all_of(context.identity, server), Allowed):
            return False
        return context.identity.allows(f"{right}:{server}") or self._face.may_use(server, context)


class _Withheld(Refusal):
    """A plugin blocked it."""


class _NotConnected(Refusal):
    """The caller has to connect an account first."""


def _not_found(noun: str, routed: RoutedRequest) -> Refusal:
    return Refusal(INVALID_PARAMS, f"{noun} '{routed.namespaced_name[:256]}' not found")


def _ttl_of(result: Mapping[str, Any]) -> int:
    ttl_ms = result.get("ttlMs")
    return ttl_ms if type(ttl_ms) is int and ttl_ms >= 0 else 0


def _uri_of(child: object) -> str:
    uri = child.get("uri") if isinstance(child, Mapping) else None
    return uri if isinstance(uri, str) else ""


def _addressed(part: object, routed: RoutedRequest) -> object:
    """Contents under the URI of the request, by which the client knows them (ROUTE-4)."""
    uri = part.get("uri") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(uri, str):
        return part
    own = uri == routed.name
    return {**safe_sources(part), "uri": routed.namespaced_name if own else shown_uri(routed.target_server, uri)}


def _refusal(error: GatewayError, routed: RoutedRequest) -> Refusal:
    if isinstance(error, UpstreamRefused):
        message = restore_name(error.refusal, routed.name, routed.namespaced_name)
        return Refusal(error.upstream_code, message, data_with_uri(error.data, routed), theirs=True)
    if isinstance(error, ConnectRequired):
        # Not the error of MCP for pages to be opened, which clients lose.
        data = {"error": error.code, "retryable": error.retryable, "connect_required": error.connect}
        return _NotConnected(UPSTREAM_FAILED, error.message, data)
    code = BLOCKED if isinstance(error, Forbidden) else UPSTREAM_FAILED
    return Refusal(code, error.message, {"error": error.code, "retryable": error.retryable})
