"""The one runtime behind every face: browse, hydrate, execute, view (S0 §3, §4; S1 "Runtime modes").

A call works on the snapshot that was in force when it began (``catalog_keeper.py``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from app.auth.access import AccessPolicy
from app.catalog.card import ChoiceCard
from app.catalog.catalog import Catalog, HydrationResult
from app.catalog.path import parse_path
from app.catalog.pins import PinPolicy, Screened
from app.catalog.selectable import SelectableItem
from app.catalog.tokens import TokenCounter
from app.errors import HydrateFailed
from app.gateway.admission import admit, find_item, may_view, needs_approval
from app.gateway.archive import Archive, Execution, no_such_artifact
from app.gateway.arrangement import Arrangement
from app.gateway.audit import Auditor, Operation
from app.gateway.audited import AuditedCall
from app.gateway.call_policy import CallPolicy
from app.gateway.catalog_keeper import CatalogKeeper, HeapKeeper, RefreshReport
from app.gateway.digest import arguments_digest
from app.gateway.dispatch import Dispatcher
from app.gateway.fleet import MultiplexUpstream, by_name
from app.gateway.pipeline import Pipeline
from app.gateway.plugin_chain import PluginChain
from app.gateway.plugins import Request
from app.gateway.ports import ArtifactStore, CallContext, PendingCall, Upstream
from app.gateway.quota import Quota
from app.gateway.result_cache import ResultCache
from app.gateway.sessions import SessionStore
from app.results.firewall import is_bulky
from app.results.view import View

log = logging.getLogger("wicketgate.runtime")

DEFAULT_TOP_K = 10


@dataclass(frozen=True, slots=True)
class Browse:
    """What one browse found, in the order in which it is shown; *hint* helps when nothing did. *spared_chars*: what
    the definitions of all tools that the caller may use would have taken instead."""

    cards: tuple[ChoiceCard, ...]
    hint: str = ""
    spared_chars: int = 0


@dataclass(frozen=True, slots=True)
class DryRun:
    """The arguments are valid, and nothing was called. *notes* belong into the provenance. *needs_approval*: the call
    itself would wait for the owner's word."""

    tool_id: str
    upstream_name: str
    needs_approval: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Called:
    """A call that was made: whose tool it was, the server's result, and what is to be told of it."""

    item: SelectableItem
    result: Mapping[str, Any]
    provenance: Mapping[str, Any]


class ProxyRuntime:
    def __init__(
        self,
        upstream: Upstream | MultiplexUpstream,
        tokens: TokenCounter,
        artifacts: ArtifactStore,
        sessions: SessionStore | None = None,
        *,
        inferred: Collection[str] = (),
        policies: Mapping[str, CallPolicy] | None = None,
        default_policy: CallPolicy | None = None,
        cache: ResultCache | None = None,
        quota: Quota | None = None,
        heap: HeapKeeper | None = None,
        access: AccessPolicy | None = None,
        plugins: PluginChain | None = None,
        auditor: Auditor | None = None,
        pins: PinPolicy | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """*sessions* turns cache-stable browsing on (S0 §5). *inferred* names the upstreams whose namespaces the
        S1 table decides. *policies* say by upstream name how its calls are made. *now* measures seconds, for the
        records of *plugins* and *auditor*."""
        self._fleet = upstream if isinstance(upstream, MultiplexUpstream) else MultiplexUpstream([upstream])
        self.tokens = tokens
        self._archive = Archive(artifacts, tokens)
        self._sessions = sessions
        self._now = now
        self._auditor = auditor
        self._dispatcher = Dispatcher(self._fleet, policies, default=default_policy, cache=cache)
        self._pipeline = Pipeline(self._dispatcher, plugins, now)
        self._keeper = CatalogKeeper(self._fleet, tokens, inferred=inferred, heap=heap, plugins=plugins, pins=pins)
        self._quota = quota
        self.access = access or AccessPolicy()
        """The rules in force. Assign others at any time: calls that have begun end under those they began with."""
        self._watchers: list[Callable[[], None]] = []
        self._access_watchers: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Call *changed* on the event loop after each swap to another catalog."""
        self._watchers.append(changed)

    def watch_access(self, changed: Callable[[], None]) -> None:
        """Call *changed* on the event loop when callers may see other tools of a catalog than before."""
        self._access_watchers.append(changed)

    def catalog(self) -> Catalog:
        """The snapshot in force; it never changes once you have it."""
        return self._keeper.snapshot.catalog

    def troubles(self) -> Mapping[str, str]:
        """By upstream, why its tools are not fresh; what it gave before is in use."""
        return self._keeper.snapshot.troubles

    def screened(self) -> Mapping[str, Screened]:
        """By upstream, which of its tools were held back or are suspicious, and why."""
        return self._keeper.snapshot.screened

    def declared(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """By upstream, the definitions as it gave them."""
        return self._keeper.snapshot.listings

    async def refresh_catalog(self, upstreams: Collection[str] | None = None) -> RefreshReport:
        """Ask *upstreams* (all of them, if None) for their tools and put the new catalog in force.

        An upstream that does not answer keeps the tools it last gave. Raises CatalogError when two tools collide;
        then the catalog in force stays, whole (S0 §1.5).
        """
        before = self.catalog()
        try:
            return await self._keeper.refresh(upstreams)
        finally:
            self._dispatcher.forget_results()
            self._tell_if_changed(before)

    async def rearrange(
        self, arrangement: Arrangement, also: Callable[[], None], *, rights_changed: bool = False
    ) -> None:
        """Run by *arrangement* from now on. It takes effect as one step, in which *also* is called; unchanged members
        keep their sessions. *rights_changed*: the permissions of some caller differ from now on. Raises CatalogError
        when tools would collide; then all stays as it was."""
        before = self.catalog()
        rights_changed = rights_changed or arrangement.access.rules != self.access.rules

        def step() -> None:
            self._dispatcher.follow(arrangement.policies)
            self.access = arrangement.access
            if self._quota is not None:
                self._quota.limit(arrangement.per_actor, arrangement.per_tool)
            also()

        await self._keeper.exchange(by_name(arrangement.members), arrangement.inferred, arrangement.pins, step)
        self._tell_if_changed(before)
        if rights_changed:
            for changed in self._access_watchers:
                changed()

    def visible(self, context: CallContext) -> Callable[[str], bool] | None:
        """Whether the caller may see a tool of this id; None if it may see every one."""
        return self._keeper.snapshot.audience(self.access, context.identity).visible

    def may_see(self, item: SelectableItem, context: CallContext) -> bool:
        visible = self.visible(context)
        return visible is None or visible(item.id)

    def rank(self, query: str, k: int, context: CallContext) -> list[tuple[str, float]]:
        """The ids of the *k* tools that fit the words best, with their scores, of those that the caller may use."""
        return self.catalog().router.route(query, k, self.visible(context))

    def browse_query(self, query: str, top_k: int, context: CallContext) -> Browse:
        """The *top_k* tools that fit the words best, of those that the caller may use (S0 §3.1)."""
        snapshot = self._keeper.snapshot
        catalog, audience = snapshot.catalog, snapshot.audience(self.access, context.identity)
        ranked = self.rank(query, top_k, context)
        cards = self._in_session_order([catalog.card(tool_id, score) for tool_id, score in ranked], context)
        hint = "" if cards else "Nothing matches these words. Try other words, or browse '/' to see what there is."
        return Browse(cards, hint, audience.definition_chars)

    def browse_path(self, path: str, context: CallContext) -> Browse:
        """The children of *path* (S0 §3.2). Raises PathInvalid or PathNotFound."""
        snapshot = self._keeper.snapshot
        audience = snapshot.audience(self.access, context.identity)
        cards = snapshot.catalog.cards_at(parse_path(path), audience.visible)
        return Browse(self._in_session_order(cards, context), spared_chars=audience.definition_chars)

    def hydrate(self, tool_id: str, context: CallContext) -> HydrationResult:
        """The full schemas of one tool (S0 §4.3). Raises HydrateFailed."""
        snapshot = self._keeper.snapshot
        result = snapshot.catalog.hydrate(find_item(snapshot, self.access, tool_id, context.identity).id)
        self._mark_seen(tool_id, context)
        return result

    async def execute(
        self, tool_id: str, args: object, context: CallContext, *, dry_run: bool = False
    ) -> Execution | DryRun:
        """Validate, call, and keep what is large out of the answer (S0 §4.2, §4.4).

        Raises HydrateFailed, ArgsInvalid, SchemaInvalid, Forbidden, ApprovalRequired or RateLimited before the
        upstream hears of it, and UpstreamUnavailable, UpstreamTimeout or UpstreamError after.
        """
        async with self._audited("execute", context, tool_id) as note:
            called = await self._call(tool_id, args, context, note, dry_run=dry_run)
            if isinstance(called, DryRun):
                return called
            execution = await self._archive.keep(called.result, called.item, context.identity.actor, called.provenance)
            self._mark_seen(called.item.id, context)
            return execution

    async def call(self, tool_id: str, args: object, context: CallContext) -> Mapping[str, Any]:
        """The server's own result as MCP wire JSON, behind the same checks as ``execute`` and raising the same: for
        faces that show results as they are (DESIGN §3 "Results")."""
        async with self._audited("execute", context, tool_id) as note:
            called = await self._call(tool_id, args, context, note)
            assert isinstance(called, _Called)
            self._mark_seen(called.item.id, context)
            return called.result

    async def pass_on(
        self,
        request: Request,
        context: CallContext,
        operation: Literal["read", "prompt"],
        send: Callable[[Request], Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any]:
        """What is no call of a tool, such as a resource read: through the same plugins and into the same record."""
        async with self._audited(operation, context, f"{request.server}__{request.name}") as note:
            return await self._pipeline.pass_on(request, note, send)

    async def turn_away(
        self, requested: str, context: CallContext, *, operation: Operation = "execute", hidden: bool = False
    ) -> None:
        """Note in the audit record that something was asked for which names no tool (S2 "Parse-Time Errors"), or none
        that this caller may use (*hidden*). Raises what ``call`` raises when the record cannot be kept."""
        with suppress(HydrateFailed):
            async with self._audited(operation, context, requested) as note:
                note.hidden = hidden
                raise HydrateFailed("not a tool", path=requested)

    async def view(self, handle: str, selector: object, context: CallContext) -> View:
        """A bounded part of an artifact that this actor owns (DESIGN §3 "Results"). Raises ViewFailed."""
        async with self._audited("view", context, handle) as note:
            if not may_view(self.access, handle, context.identity):
                note.hidden = True
                raise no_such_artifact(handle)
            return await self._archive.view(handle, selector, context.identity.actor)

    async def _call(
        self, tool_id: str, args: object, context: CallContext, note: AuditedCall, *, dry_run: bool = False
    ) -> _Called | DryRun:
        snapshot, access, identity = self._keeper.snapshot, self.access, context.identity
        try:
            item = find_item(snapshot, access, tool_id, identity)
        except HydrateFailed:
            note.hidden = tool_id in snapshot.catalog.items
            raise
        note.server = item.server
        tolerant = self._dispatcher.policy(item.server).tolerant_args
        admitted = await admit(snapshot, item, args, tolerant=tolerant)
        if note.recorded:
            note.arguments = await _digest(admitted.args)
        asks = await needs_approval(access, item, admitted.args, identity)
        if dry_run:
            return DryRun(item.id, item.upstream_name, asks, admitted.notes)
        if asks:
            if self._quota is not None:
                self._quota.check(identity.actor, item.id)  # before an approval is used up for nothing
            await context.approver.approve(PendingCall(item.id, admitted.args))
        if self._quota is not None:
            self._quota.take(context.identity.actor, item.id)
        result = await self._pipeline.call(snapshot.catalog, item, admitted.args, context, note)
        return _Called(item, result, {**admitted.notes, "cache_hit": True} if note.cached else admitted.notes)

    def _tell_if_changed(self, before: Catalog) -> None:
        if self.catalog() is not before:
            for changed in self._watchers:
                changed()

    def _audited(self, operation: Operation, context: CallContext, tool_id: str) -> AuditedCall:
        return AuditedCall(self._auditor, operation, context, self._now, tool_id)

    def _in_session_order(self, cards: Sequence[ChoiceCard], context: CallContext) -> tuple[ChoiceCard, ...]:
        return tuple(cards) if self._sessions is None else self._sessions.order(context.session, cards)

    def _mark_seen(self, tool_id: str, context: CallContext) -> None:
        if self._sessions is not None:
            self._sessions.hydrated(context.session, tool_id)


async def _digest(args: Mapping[str, Any]) -> str:
    return await asyncio.to_thread(arguments_digest, args) if is_bulky(args) else arguments_digest(args)
