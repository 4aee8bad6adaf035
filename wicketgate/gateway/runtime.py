"""The one runtime behind every face: browse, hydrate, execute, view (EXEC-1, FACE-17).

A call works on the snapshot that was in force when it began. Its result is sealed into an envelope; what is large is
archived for its owner, and viewed in parts (EXEC-28, EXEC-29).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from wicketgate.access.identity import Identity
from wicketgate.catalog.card import ChoiceCard, cache_order
from wicketgate.catalog.card_lines import browse_lines
from wicketgate.catalog.catalog import Catalog, HydrationResult
from wicketgate.catalog.graph import parse_path
from wicketgate.catalog.pins import Declared, PinPolicy, Screened
from wicketgate.catalog.ranking import Ranking
from wicketgate.catalog.said_words import SaidWords
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.shortlist import (
    MOST_SHOWN,
    NAMED_BEST,
    NOTHING_MATCHES,
    answer_text,
    best_namespaces,
    count_deserved,
    hints,
    is_clear,
)
from wicketgate.errors import CatalogError, HydrateFailed
from wicketgate.fleet.member import Member, MultiplexUpstream, by_name
from wicketgate.gateway.archive import (
    CALL_HANDLE,
    Archive,
    Execution,
    handle_parts,
    may_view,
    no_such_artifact,
    no_such_call,
    whole_handle,
)
from wicketgate.gateway.audit import AuditedOperation
from wicketgate.gateway.audited_call import AuditedCall
from wicketgate.gateway.calls import CalledTool, Calls, DryRun, Send
from wicketgate.gateway.catalog_keeper import CatalogKeeper, Naming, RefreshReport
from wicketgate.gateway.kept_calls import KeptCalls, Row, call_id, lost
from wicketgate.gateway.learning import Learning
from wicketgate.gateway.offer_screening import OfferScreening
from wicketgate.gateway.options import ExposureMode, RuntimeOptions, RuntimePolicies
from wicketgate.gateway.running_calls import RunningCall, RunningCalls
from wicketgate.gateway.server_words import StillAllowed
from wicketgate.gateway.unmatched import Judged, Unmatched
from wicketgate.peers import Alone
from wicketgate.plugin_api import Request
from wicketgate.ports import LOCAL_CALL, CallContext, Upstream
from wicketgate.results.firewall import is_bulky
from wicketgate.results.view import View
from wicketgate.storage.memory_quota import MemoryQuotaStore
from wicketgate.storage.memory_results import MemoryResultStore


def _ids(options: RuntimeOptions) -> Callable[[], str]:
    """Ids of calls, with that of this process where there are others, or may be later."""
    if options.calls is None and isinstance(options.peers, Alone):
        return options.new_id
    return lambda: call_id(options.new_id(), options.peers.own_id)


def _naming(policies: RuntimePolicies, members: Iterable[str]) -> Naming:
    return Naming(frozenset(policies.inferred), frozenset((*policies.configured, *members)))


log = logging.getLogger("wicketgate.runtime")


@dataclass(frozen=True, slots=True)
class Browse:
    """The cards of one browse, in the order in which they are shown.

    *spared_chars*: the length of the definitions of all tools that the caller may use, which are not shown. *written*
    is the text, if it is there already. *seen*: ids of those that are as this session was sent them before.
    """

    cards: tuple[ChoiceCard, ...]
    hint: str = ""
    spared_chars: int = 0
    written: str | None = None
    seen: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The words for a model: a line for each card, then the *hint*, if there is one (CARD-32). Written when asked
        for, as thousands of cards take long (BROWSE-40)."""
        return browse_lines(self.cards, self.hint) if self.written is None else self.written


class ProxyRuntime:
    """Browses, hydrates, executes and views the tools of a fleet. Every face and the engine use one.

    A call's context says who the caller is; without one it is the program itself, with all permissions.
    """

    def __init__(
        self,
        upstream: Upstream | MultiplexUpstream,
        options: RuntimeOptions | None = None,
        *,
        mode: ExposureMode = ExposureMode.GATEWAY,
        cache_stable: bool = False,
    ) -> None:
        """*mode* says which MCP server class serves it. *cache_stable* decides the order of cards where a call's
        context does not (BROWSE-20 to BROWSE-28). It binds to no event loop, and may be used from several, one after
        the other."""
        # The parts that were given.
        options = options or RuntimeOptions()
        self.mode = mode
        policies = options.policies
        self.fleet = upstream if isinstance(upstream, MultiplexUpstream) else MultiplexUpstream([upstream])
        self.tokens = options.tokens
        self._archive = Archive(options.artifacts, options.tokens)
        self._sessions = options.sessions
        self._cache_stable = cache_stable
        self._now = options.now
        self._auditor = options.auditor
        self._watch = options.watch
        # The parts that are made of them.
        self._calls = Calls(
            self.fleet,
            policies,
            options.plugins,
            quota=options.quota or MemoryQuotaStore(options.now),
            results=options.results or MemoryResultStore(options.now),
            now=options.now,
            in_force=lambda: (self.catalog(), self.access),
            approver=options.approver,
            stale=self._refresh_soon,
        )
        self._keeper = CatalogKeeper(
            self.fleet,
            options.tokens,
            naming=_naming(policies, self.fleet.names),
            heap=options.heap,
            plugins=options.plugins,
            pins=policies.pins,
            words=SaidWords(policies.words),
        )
        self._policies = policies
        self.learning = Learning(options.learned, policies.learn, patient=options.patient_lessons)
        self._unmatched = Unmatched(options.plugins)
        self.running = RunningCalls(options.running, now=options.now, new_id=_ids(options))
        """The calls that may outlive their requests."""
        longest_s = max(each.longest_s() for each in (*policies.calls.values(), policies.default_call))
        self.kept = KeptCalls(self.running, options.peers, options.calls, longest_s)
        """Those calls for other processes, and beyond the end of this one."""
        self.access = policies.access
        """The rules in force. Assign others at any time: calls that have begun end under those they began with, but
        for one that waits for a person: the rules have to allow it then too."""
        self._watchers: list[Callable[[], None]] = []
        self._access_watchers: list[Callable[[], None]] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._offers: OfferScreening | None = None
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    def watch(self, changed: Callable[[], None]) -> None:
        """Call *changed* on the event loop after each swap to another catalog."""
        self._watchers.append(changed)

    def watch_access(self, changed: Callable[[], None]) -> None:
        """Call *changed* on the event loop when callers may see other tools of a catalog than before."""
        self._access_watchers.append(changed)

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Await *close* when the runtime ends, before its upstreams do."""
        self._closers.append(close)

    async def aclose(self) -> None:
        """End the work that was begun for this runtime and belongs to no caller."""
        await self.running.aclose()
        await self.kept.aclose()
        for close in self._closers:
            await close()
        refreshing = list(self._refreshing.values())
        for task in refreshing:
            task.cancel()
        await asyncio.gather(*refreshing, return_exceptions=True)
        await self.learning.aclose()

    def catalog(self) -> Catalog:
        """The snapshot in force; it never changes once you have it."""
        return self._keeper.snapshot.catalog

    def troubles(self) -> Mapping[str, str]:
        """By upstream, why its tools are not fresh; what it gave before is in use."""
        return self._keeper.snapshot.troubles

    def screened(self) -> Mapping[str, Screened]:
        """By upstream, which of its tools were held back or are suspicious, and why; beside them its other offers, as
        ``rec/prompts`` and so on."""
        offers = {} if self._offers is None else self._offers.screened()
        return {**self._keeper.snapshot.screened, **offers}

    async def declared_offers(self) -> tuple[Declared, Mapping[str, str]]:
        """As ``OfferScreening.declared``."""
        return ({}, {}) if self._offers is None else await self._offers.declared()

    def pins(self) -> PinPolicy:
        """The policy of pins in force."""
        return self._keeper.pins

    def report_offers(self, offers: OfferScreening) -> None:
        """Report what *offers* holds back too, and close it at the end."""
        self._offers = offers
        self.at_end(offers.aclose)

    def declared(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """By upstream, the definitions as it gave them."""
        return self._keeper.snapshot.listings

    def unmatched(self) -> Sequence[str]:
        """The patterns of the operator that matched no tool at the last refresh, with their places."""
        return self._unmatched.found

    async def refresh_catalog(self, upstreams: Collection[str] | None = None) -> RefreshReport:
        """Ask *upstreams* (all of them, if None) for their tools and put the new catalog in force.

        An upstream that does not answer keeps the tools it last gave. Raises CatalogError when two tools collide;
        then the catalog in force stays, whole (CARD-14).
        """
        before = self.catalog()
        try:
            return await self._keeper.refresh(upstreams)
        finally:
            self._notify_if_changed(before)
            await self._calls.forget_results()
            await self._look_for_unmatched()

    async def rearrange(
        self,
        members: Sequence[Member],
        policies: RuntimePolicies,
        also: Callable[[], None],
        *,
        rights_changed: bool = False,
    ) -> None:
        """Serve *members* under *policies* from now on. It takes effect as one step, in which *also* is called;
        unchanged members keep their sessions. *rights_changed*: the permissions of some caller differ from now on.
        Raises CatalogError when tools would collide; then all stays as it was."""
        before = self.catalog()
        rights_changed = rights_changed or not policies.access.same(self.access)

        def step() -> None:
            self._calls.use(policies)
            if policies.learn != self._policies.learn:
                self.learning.use(policies.learn)
            self._policies = policies
            self.access = policies.access
            also()

        named = by_name(members)
        words = SaidWords(policies.words)
        await self._keeper.exchange(named, _naming(policies, named), policies.pins, words, step)
        self._notify_if_changed(before)
        if rights_changed:
            for changed in self._access_watchers:
                changed()
        await self._calls.forget_results()
        await self._look_for_unmatched()

    def visible(self, context: CallContext) -> Callable[[str], bool] | None:
        """A test of ids that is true for those of tools that the caller may see; None if it may see all."""
        return self._keeper.snapshot.audience(self.access, context.identity).visible

    def may_see(self, item: SelectableItem, context: CallContext) -> bool:
        visible = self.visible(context)
        return visible is None or visible(item.id)

    def rank(self, query: str, k: int, context: CallContext) -> list[tuple[str, float]]:
        """The ids of the *k* tools that fit the words best, with their scores, of those that the caller may use."""
        router, visible = self.catalog().router, self.visible(context)
        return router.route(query, k, visible, learned=self.learning.words(context))

    def explained(self, query: str, k: int, context: CallContext) -> Ranking:
        """What ``rank`` gives, with the reasons."""
        router, visible = self.catalog().router, self.visible(context)
        return router.explained(query, k, visible, learned=self.learning.words(context))

    async def prepare(self, context: CallContext, path: object = None) -> None:
        """Work out, off the loop if it takes long, what a browse of *path* or of words needs: before a large catalog
        await this first, and no browse holds the loop (BROWSE-40)."""
        # Another catalog may be in force by the time one is prepared.
        prepared = None
        while prepared is not self._keeper.snapshot:
            prepared = self._keeper.snapshot
            await prepared.prepare(self.access, context.identity, path)

    async def browse_query(self, query: str, top_k: int | None = None, context: CallContext = LOCAL_CALL) -> Browse:
        """The *top_k* tools that fit the words best, of those that the caller may use (BROWSE-1); with None, as many
        as their scores deserve (BROWSE-30)."""
        browse, ranked = await self._answer(query, top_k, context, stable=self.is_stable(context))
        self.learning.browsed(context, query, ranked)
        return browse

    async def preview_query(self, query: str, top_k: int | None = None, context: CallContext = LOCAL_CALL) -> Browse:
        """As ``browse_query`` gives it best first, and nothing is remembered of it: for whoever looks at what a model
        would get."""
        return (await self._answer(query, top_k, context, stable=False))[0]

    async def _answer(
        self, query: str, top_k: int | None, context: CallContext, *, stable: bool
    ) -> tuple[Browse, Sequence[str]]:
        """The answer to a query, and the ids in it, best first."""
        snapshot = self._keeper.snapshot
        catalog, audience = snapshot.catalog, snapshot.audience(self.access, context.identity)
        ranked = self.rank(query, max(top_k or 0, MOST_SHOWN), context)
        scores = [score for _, score in ranked]
        most = count_deserved(scores) if top_k is None else top_k
        best = [catalog.card(tool_id, score) for tool_id, score in ranked[:most]]
        cards = await self._in_session_order(catalog, best, context) if stable else tuple(best)
        # A hint is for what the order or the scores do not tell.
        named = [card.id for card in best[:NAMED_BEST]] if stable else []
        elsewhere = None
        if not is_clear(scores):
            elsewhere = best_namespaces(scores, [catalog.items[tool_id].namespace for tool_id, _ in ranked])
        forms = hints(named, elsewhere) if ranked else iter([NOTHING_MATCHES])
        text, hint = answer_text(cards, forms, self.tokens)
        # A card that was not sent before is the one that was made above.
        made = {card.id: card for card in best}
        seen = frozenset(card.id for card in cards if card.id in made and card is not made[card.id])
        return Browse(cards, hint, audience.definition_chars, text, seen), [card.id for card in best]

    async def browse_path(self, path: str, context: CallContext = LOCAL_CALL) -> Browse:
        """The children of *path* (BROWSE-12). Raises PathInvalid or PathNotFound."""
        snapshot = self._keeper.snapshot
        audience = snapshot.audience(self.access, context.identity)
        cards = audience.cards_at(parse_path(path))
        if self.is_stable(context):
            cards = await self._in_session_order(snapshot.catalog, cards, context)
        return Browse(cards, spared_chars=audience.definition_chars)

    async def hydrate(self, tool_id: str, context: CallContext = LOCAL_CALL) -> HydrationResult:
        """The full schemas of one tool (CARD-15). Raises HydrateFailed."""
        snapshot = self._keeper.snapshot
        item = snapshot.find(tool_id, self.access, context.identity)
        result = snapshot.catalog.hydrate(item.id)
        await self._mark_seen(item, context)
        return result

    def may_write(self, tool_id: str, context: CallContext = LOCAL_CALL) -> bool:
        """True unless it is known that this call changes nothing: also where it names no tool of this caller."""
        try:
            item = self._keeper.snapshot.find(tool_id, self.access, context.identity)
        except HydrateFailed:
            return False
        return self._calls.may_write(item)

    @overload
    async def execute(
        self,
        tool_id: str,
        args: object,
        context: CallContext = ...,
        *,
        dry_run: Literal[False] = False,
        show: Callable[[CalledTool], None] | None = ...,
    ) -> Execution: ...

    @overload
    async def execute(
        self,
        tool_id: str,
        args: object,
        context: CallContext = ...,
        *,
        dry_run: bool,
        show: Callable[[CalledTool], None] | None = ...,
    ) -> Execution | DryRun: ...

    async def execute(
        self,
        tool_id: str,
        args: object,
        context: CallContext = LOCAL_CALL,
        *,
        dry_run: bool = False,
        show: Callable[[CalledTool], None] | None = None,
    ) -> Execution | DryRun:
        """Validate, call, and keep what is large out of the answer (EXEC-1, EXEC-18). *show* is given the call with the
        server's own result.

        Raises HydrateFailed, ArgsInvalid, SchemaInvalid, Forbidden, ApprovalRequired or RateLimited before the
        upstream hears of it, and UpstreamUnavailable, UpstreamTimeout or UpstreamError after.
        """
        async with self._audited("execute", context, tool_id) as note:
            called = await self._calls.call(
                self._keeper.snapshot, self.access, tool_id, args, context, note, dry_run=dry_run
            )
            if isinstance(called, DryRun):
                return called
            if show is not None:
                show(called)
            execution = await self._archive.keep(called.result, called.item, context.identity.actor, called.notes)
            await self._note_run(called, context)
            meta = called.result.get("_meta")
            return replace(execution, meta=meta) if isinstance(meta, Mapping) and not is_bulky(meta) else execution

    async def call(
        self, tool_id: str, args: object, context: CallContext = LOCAL_CALL, *, for_app: bool = False
    ) -> Mapping[str, Any]:
        """The server's own result as MCP wire JSON, behind the same checks as ``execute`` and raising the same: for
        faces that show results as they are (FACE-20). *for_app*: the tool may be one that only apps use."""
        async with self._audited("execute", context, tool_id) as note:
            called = await self._calls.call(
                self._keeper.snapshot, self.access, tool_id, args, context, note, for_app=for_app
            )
            assert isinstance(called, CalledTool)
            await self._note_run(called, context)
            return called.result

    async def pass_on(
        self,
        request: Request,
        context: CallContext,
        operation: Literal["read", "prompt", "complete"],
        send: Send,
        asked_for: str,
        still_allowed: StillAllowed,
    ) -> Mapping[str, Any]:
        """Pass on a request that is no call of a tool, such as a resource read, through the same plugins and into the
        same audit record. *send* carries it as the plugins left it. *asked_for* is the client's name for it.
        *still_allowed* raises Forbidden if it may not go on when a person has answered."""
        async with self._audited(operation, context, asked_for) as note:
            return await self._calls.pass_on(request, context, note, send, still_allowed)

    async def audit_unknown(
        self, requested: str, context: CallContext, *, operation: AuditedOperation = "execute", hidden: bool = False
    ) -> None:
        """Audit a request that names no tool (ACCESS-23), or none that this caller may use (*hidden*).

        Raises as ``call`` if the record cannot be written.
        """
        with suppress(HydrateFailed):
            async with self._audited(operation, context, requested) as note:
                note.hidden = hidden
                raise HydrateFailed("not a tool", path=requested)

    async def view(self, handle: str, selector: object, context: CallContext = LOCAL_CALL) -> View:
        """A bounded part of an artifact that this actor owns (EXEC-29, EXEC-34). Raises ViewFailed."""
        async with self._audited("view", context, handle) as note:
            whole = self._viewable(handle, context, note)
            if whole is None:
                raise no_such_artifact(handle)
            return await self._archive.view(whole, selector, context.identity.actor)

    @asynccontextmanager
    async def watching(self, handle: str, context: CallContext) -> AsyncIterator[RunningCall[Execution]]:
        """The call of *handle*, which this actor began and may still use; audited as a view while the block runs.
        Raises ViewFailed."""
        async with self._audited("view", context, handle) as note:
            whole = self._viewable(handle, context, note)
            _, tool_id, id = handle_parts(whole or "")
            call = self.running.get(context.identity.actor, id)
            if call is None or call.label != tool_id:
                raise no_such_call(handle)
            yield call

    async def left_behind(self, handle: str, context: CallContext) -> Row:
        """What is kept of the call of *handle*, whose home has ended, under ``outcome``; audited as a view. Raises
        ViewFailed, UpstreamUnavailable, or UpstreamLost if nothing is known of its end."""
        async with self._audited("view", context, handle) as note:
            whole = self._viewable(handle, context, note)
            _, tool_id, id = handle_parts(whole or "")
            row = await self.kept.row(context.identity.actor, id)
            if row is None or row.get("tool_id") != tool_id:
                raise no_such_call(handle)
            if "outcome" not in row:
                raise lost(tool_id)
            return row

    def may_still_use(self, tool_id: str, identity: Identity) -> bool:
        """False if the tool is hidden from this caller by now."""
        return may_view(self.catalog(), self.access, f"{CALL_HANDLE}:{tool_id}:", identity)

    def whole_id(self, tool_id: str, context: CallContext) -> str:
        """The id of the tool that *tool_id* names. Raises HydrateFailed."""
        return self._keeper.snapshot.find(tool_id, self.access, context.identity).id

    def _viewable(self, handle: str, context: CallContext, note: AuditedCall) -> str | None:
        """The whole handle; None if its tool is none of this caller's."""
        snapshot, identity = self._keeper.snapshot, context.identity
        note.tool_id = whole = whole_handle(snapshot, self.access, handle, identity)
        if may_view(snapshot.catalog, self.access, whole, identity):
            return whole
        note.hidden = True
        return None

    def _refresh_soon(self, server: str) -> None:
        """Read the tools and skills of *server* again, beside what runs; once at a time."""
        if server not in self._refreshing:
            task = self._refreshing[server] = asyncio.get_running_loop().create_task(self._refresh_one(server))
            task.add_done_callback(lambda _: self._refreshing.pop(server, None))

    async def _refresh_one(self, server: str) -> None:
        try:
            await self.refresh_catalog([server])
        except CatalogError as error:
            log.error("catalog not refreshed for the skills of %s: %s", server, error)

    async def _look_for_unmatched(self) -> None:
        snapshot, fleet = self._keeper.snapshot, self.fleet
        await self._unmatched.look(
            Judged(snapshot.catalog, snapshot.listings, self._policies, self.access, fleet.names, fleet.unnamed)
        )

    def _notify_if_changed(self, before: Catalog) -> None:
        # A catalog that finds the same tools by other words has the same items.
        if self.catalog().items is not before.items or self.catalog().app_tools != before.app_tools:
            for changed in self._watchers:
                changed()

    def _audited(self, operation: AuditedOperation, context: CallContext, tool_id: str) -> AuditedCall:
        return AuditedCall(self._auditor, operation, context, self._now, tool_id, self._watch)

    def is_stable(self, context: CallContext) -> bool:
        """True where the cards of this caller's sessions keep their order (BROWSE-27)."""
        return self._cache_stable if context.cache_stable is None else context.cache_stable

    async def _in_session_order(
        self, catalog: Catalog, cards: Sequence[ChoiceCard], context: CallContext
    ) -> tuple[ChoiceCard, ...]:
        tools = (card for card in cards if card.kind != "internal")
        digests = {card.id: item.digest for card in tools if (item := catalog.get(card.id)) is not None}
        ids = [card.id for card in cards]
        return await self._sessions.update(context.session, ids, lambda seen: cache_order(seen, cards, digests))

    async def _note_run(self, called: CalledTool, context: CallContext) -> None:
        await self._mark_seen(called.item, context)
        if not called.result.get("isError"):
            self.learning.ran(context, called.item.id)

    async def _mark_seen(self, item: SelectableItem, context: CallContext) -> None:
        if self.is_stable(context):
            await self._sessions.update(
                context.session, [item.id], lambda seen: (None, seen.hydrated(item.id, item.digest))
            )
