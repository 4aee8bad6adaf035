"""The one runtime behind every face: browse, hydrate, execute, view (S0 §3, §4; S1 "Runtime modes").

Its only mutable state is one reference, the snapshot in force: replaced whole, by one assignment, after a refresh
has fully succeeded. A call works on the snapshot it began with.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.auth.access import may_use, may_use_every_tool
from app.auth.identity import Identity
from app.catalog.card import ChoiceCard
from app.catalog.catalog import Catalog, HydrationResult, build_catalog
from app.catalog.near import near_ids
from app.catalog.path import parse_path
from app.catalog.selectable import SelectableItem
from app.catalog.tokens import TokenCounter
from app.catalog.tool_id import parse_tool_id
from app.errors import CatalogError, GatewayError, HydrateFailed
from app.gateway.archive import Archive, Execution, no_such_artifact
from app.gateway.call_policy import CallPolicy
from app.gateway.dispatch import Dispatcher
from app.gateway.fleet import Listing, MultiplexUpstream
from app.gateway.ports import ArtifactStore, CallContext, Upstream
from app.gateway.quota import Quota
from app.gateway.result_cache import ResultCache
from app.gateway.sessions import SessionStore
from app.gateway.validation import Admitted, Validator, compile_schema, is_bulky_json
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
    """The arguments are valid, and nothing was called. *notes* belong into the provenance."""

    tool_id: str
    upstream_name: str
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh did: tools in force, upstreams whose last good tools stay in use, tools left out and why."""

    tools: int
    stale: Mapping[str, str]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    catalog: Catalog
    listings: Mapping[str, Listing]
    stale: frozenset[str] = frozenset()
    validators: dict[str, Validator] = field(default_factory=dict)
    definition_chars: dict[tuple[str, ...], int] = field(default_factory=dict)


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
    ) -> None:
        """*sessions* turns cache-stable browsing on (S0 §5). *inferred* names the upstreams whose namespaces the
        S1 table decides. *policies* say by upstream name how its calls are made."""
        self._fleet = upstream if isinstance(upstream, MultiplexUpstream) else MultiplexUpstream([upstream])
        self._tokens = tokens
        self._archive = Archive(artifacts, tokens)
        self._sessions = sessions
        self._inferred = frozenset(inferred)
        self._dispatcher = Dispatcher(self._fleet, policies, default=default_policy, cache=cache)
        self._snapshot = _Snapshot(build_catalog({}, tokens), {})
        self._quota = quota
        self._building = asyncio.Lock()

    def catalog(self) -> Catalog:
        """The snapshot in force; it never changes once you have it."""
        return self._snapshot.catalog

    def stale(self) -> frozenset[str]:
        """Upstreams that did not give their tools when they were last asked; what they gave before is in use."""
        return self._snapshot.stale

    async def refresh_catalog(self, upstreams: Collection[str] | None = None) -> RefreshReport:
        """Ask *upstreams* (all of them, if None) for their tools and put the new catalog in force.

        An upstream that does not answer keeps the tools it last gave. Raises CatalogError when two tools collide;
        then the catalog in force stays, whole (S0 §1.5).
        """
        answers = await self._fleet.list_tools(upstreams)
        stale = {name: str(answer) for name, answer in answers.items() if isinstance(answer, GatewayError)}
        fresh = {name: answer for name, answer in answers.items() if not isinstance(answer, GatewayError)}
        async with self._building:
            listings = {**self._snapshot.listings, **fresh}
            # Off the loop: a large catalog takes seconds, and calls go on meanwhile.
            catalog = await asyncio.to_thread(
                build_catalog, listings, self._tokens, previous=self._snapshot.catalog, infer=self._inferred
            )
            still_stale = (self._snapshot.stale | stale.keys()) - fresh.keys()
            self._snapshot = _Snapshot(catalog, listings, still_stale)
            self._dispatcher.forget_results()
        for name, reason in stale.items():
            log.warning("upstream %s: tools not refreshed: %s", name, reason)
        left_out = tools_left_out(catalog)
        for tool, reason in left_out.items():
            log.warning("tool left out: %s: %s", tool, reason)
        log.info("catalog %s: %d tools of %d upstreams", catalog.version, len(catalog.items), len(listings))
        return RefreshReport(len(catalog.items), stale, left_out)

    def browse_query(self, query: str, top_k: int, context: CallContext) -> Browse:
        """The *top_k* tools that fit the words best, of those that the caller may use (S0 §3.1)."""
        catalog = self._snapshot.catalog
        ranked = catalog.router.route(query, top_k, _visible(context.identity, catalog))
        cards = self._in_session_order([catalog.card(tool_id, score) for tool_id, score in ranked], context)
        hint = "" if cards else "Nothing matches these words. Try other words, or browse '/' to see what there is."
        return Browse(cards, hint, self._definition_chars(context.identity))

    def browse_path(self, path: str, context: CallContext) -> Browse:
        """The children of *path* (S0 §3.2). Raises PathInvalid or PathNotFound."""
        catalog = self._snapshot.catalog
        cards = catalog.cards_at(parse_path(path), _visible(context.identity, catalog))
        return Browse(self._in_session_order(cards, context), spared_chars=self._definition_chars(context.identity))

    def hydrate(self, tool_id: str, context: CallContext) -> HydrationResult:
        """The full schemas of one tool (S0 §4.3). Raises HydrateFailed."""
        snapshot = self._snapshot
        result = snapshot.catalog.hydrate(self._item(snapshot, tool_id, context).id)
        self._mark_seen(tool_id, context)
        return result

    async def execute(
        self, tool_id: str, args: object, context: CallContext, *, dry_run: bool = False
    ) -> Execution | DryRun:
        """Validate, call, and keep what is large out of the answer (S0 §4.2, §4.4).

        Raises HydrateFailed, ArgsInvalid, SchemaInvalid or RateLimited before the upstream hears of it, and
        UpstreamUnavailable, UpstreamTimeout or UpstreamError after.
        """
        snapshot = self._snapshot
        item = self._item(snapshot, tool_id, context)
        admitted = await self._admitted(snapshot, item, args)
        if dry_run:
            return DryRun(item.id, item.upstream_name, admitted.notes)
        if self._quota is not None:
            self._quota.take(context.identity.actor, item.id)
        result, cached = await self._dispatcher.call(snapshot.catalog, item, admitted.args, context)
        provenance = {**admitted.notes, "cache_hit": True} if cached else admitted.notes
        execution = await self._archive.keep(result, item, context.identity.actor, provenance)
        self._mark_seen(item.id, context)
        return execution

    async def view(self, handle: str, selector: object, context: CallContext) -> View:
        """A bounded part of an artifact that this actor owns (DESIGN §3 "Results"). Raises ViewFailed."""
        if not _may_view(context.identity, handle):
            raise no_such_artifact(handle)
        return await self._archive.view(handle, selector, context.identity.actor)

    def _item(self, snapshot: _Snapshot, tool_id: str, context: CallContext) -> SelectableItem:
        item = snapshot.catalog.get(tool_id)
        if item is None or not may_use(context.identity, item.namespace, item.name):
            # Made of what this caller may see, so that a hidden tool and none are one answer.
            near = near_ids(tool_id, snapshot.catalog.items, _visible(context.identity, snapshot.catalog))
            details = {"did_you_mean": near} if near else None
            raise HydrateFailed(
                "No such tool. Use tool_browse to find the ids of tools.", path=tool_id, details=details
            )
        return item

    async def _admitted(self, snapshot: _Snapshot, item: SelectableItem, args: object) -> Admitted:
        validator = await self._validator(snapshot, item)
        tolerant = self._dispatcher.policy(item.server).tolerant_args
        if is_bulky_json(args):
            return await asyncio.to_thread(validator.admit, args, path=item.id, tolerant=tolerant)
        return validator.admit(args, path=item.id, tolerant=tolerant)

    @staticmethod
    async def _validator(snapshot: _Snapshot, item: SelectableItem) -> Validator:
        """Compiled at a tool's first use, kept as long as the snapshot. Raises SchemaInvalid."""
        validator = snapshot.validators.get(item.id)
        if validator is None:
            if is_bulky_json(item.args_schema):
                validator = await asyncio.to_thread(compile_schema, item.args_schema, path=item.id)
            else:
                validator = compile_schema(item.args_schema, path=item.id)
            snapshot.validators[item.id] = validator
        return validator

    def _definition_chars(self, identity: Identity) -> int:
        """Counted once for each set of permissions and snapshot."""
        snapshot = self._snapshot
        chars = snapshot.definition_chars.get(identity.permissions)
        if chars is None:
            chars = snapshot.catalog.definition_chars(_visible(identity, snapshot.catalog))
            snapshot.definition_chars[identity.permissions] = chars
        return chars

    def _in_session_order(self, cards: Sequence[ChoiceCard], context: CallContext) -> tuple[ChoiceCard, ...]:
        return tuple(cards) if self._sessions is None else self._sessions.order(context.session, cards)

    def _mark_seen(self, tool_id: str, context: CallContext) -> None:
        if self._sessions is not None:
            self._sessions.hydrated(context.session, tool_id)


def tools_left_out(catalog: Catalog) -> dict[str, str]:
    """Tools that cannot be shown, and why: by id, or by place in the upstream's list if it has not even an id."""
    return {**catalog.quarantine, **{f"{s.server}[{s.index}]": s.reason for s in catalog.skipped}}


def _may_view(identity: Identity, handle: str) -> bool:
    """A handle ``<kind>:<tool id>:<digest>`` is of use to whoever may use its tool: the same actor may hold narrower
    keys."""
    try:
        parts = parse_tool_id(handle.partition(":")[2].rpartition(":")[0])
    except CatalogError:
        return False
    return may_use(identity, parts.namespace, parts.name)


def _visible(identity: Identity, catalog: Catalog) -> Callable[[str], bool] | None:
    """A filter of tool ids, or None when this caller may use every tool."""
    if may_use_every_tool(identity):
        return None

    def visible(tool_id: str) -> bool:
        item = catalog.get(tool_id)
        return item is not None and may_use(identity, item.namespace, item.name)

    return visible
