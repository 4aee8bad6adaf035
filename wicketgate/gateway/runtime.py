"""The one runtime behind every face: browse, hydrate, execute, view (EXEC-1, FACE-17).

A call works on the snapshot that was in force when it began. Its result is sealed into an envelope; what is large is
archived for its owner, and viewed in parts (EXEC-28, EXEC-29). Browses are answered in
``browsing``, views in ``viewing``; ``catalog_changes`` changes the catalog.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.catalog import Catalog, HydrationResult
from wicketgate.catalog.pins import Declared, PinPolicy, Screened
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.errors import ConnectRequired, GatewayError, HydrateFailed
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.gateway.archive import CALL_HANDLE, PROGRAM, Archive, Execution, may_view, owner_of_programs
from wicketgate.gateway.audit import AuditedOperation
from wicketgate.gateway.audited_call import AuditedCall
from wicketgate.gateway.browsing import Browse, Browsing
from wicketgate.gateway.calls import CalledTool, Calls, DryRun, Send
from wicketgate.gateway.catalog_changes import CatalogChanges
from wicketgate.gateway.catalog_keeper import RefreshReport
from wicketgate.gateway.first_logins import FirstLogins
from wicketgate.gateway.flows import Flows
from wicketgate.gateway.kept_calls import KeptCalls, call_id
from wicketgate.gateway.learning import Learning
from wicketgate.gateway.logins import Logins
from wicketgate.gateway.offer_screening import OfferScreening
from wicketgate.gateway.options import ExposureMode, RuntimeOptions, RuntimePolicies
from wicketgate.gateway.running_calls import RunningCalls
from wicketgate.gateway.server_words import StillAllowed
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.gateway.viewing import Viewing
from wicketgate.plugin_api import Request
from wicketgate.ports import LOCAL_CALL, CallContext, Upstream
from wicketgate.results.firewall import is_bulky
from wicketgate.results.view import View
from wicketgate.storage.calls import StoredCalls
from wicketgate.storage.flows import StoredFlows
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.memory_results import MemoryResultStore
from wicketgate.storage.quotas import StoredQuotas

if TYPE_CHECKING:
    from wicketgate.faces.surface import ToolSurface


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
        options = options or RuntimeOptions()
        policies = options.policies
        self.mode = mode
        self.face: ToolSurface | None = None
        """The face behind ``call_tool``."""
        self.fleet = upstream if isinstance(upstream, MultiplexUpstream) else MultiplexUpstream([upstream])
        self.tokens = options.tokens
        self.access = policies.access
        """The rules in force. Assign others at any time: calls that have begun end under those they began with, but
        for one that waits for a person: the rules have to allow it then too."""
        self._policies = policies
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._offers: OfferScreening | None = None
        self._now = options.now
        self._auditor = options.auditor
        self._watch = options.watch
        self._calls = Calls(
            self.fleet,
            policies,
            options.plugins,
            quota=options.quota or StoredQuotas(MemoryStore(options.now)),
            results=MemoryResultStore(options.now),
            now=options.now,
            in_force=lambda: (self.catalog(), self.access),
            approver=options.approver,
            logins=(logins := Logins(options.waiting)),
            stale=lambda server: self.changes.refresh_soon(server),
            flows=Flows(options.flows or StoredFlows(MemoryStore(options.now))),
            spending=options.spending,
        )
        self.changes = CatalogChanges(
            self.fleet, options, lambda: (self.access, self._policies), self._calls.forget_results
        )
        """Changes of the catalog, and what follows each."""
        self._keeper = self.changes.keeper
        self.first_logins = FirstLogins(
            self.fleet,
            lambda: self.access,
            self.refresh_catalog,
            lambda name: bool(self._keeper.snapshot.listings.get(name)),
            options.now,
            logins,
        )
        """The servers that have no tools before a first login."""
        self.learning = Learning(options.learned, policies.learn, patient=options.patient_lessons)
        calls = options.calls or StoredCalls.alone()
        self.running = RunningCalls(
            options.running,
            now=options.now,
            new_id=lambda: call_id(options.new_id(), calls.process),
            shares=options.running_places,
        )
        """The calls that may outlive their requests."""
        longest_s = max(each.longest_s() for each in (*policies.calls.values(), policies.default_call))
        self.kept = KeptCalls(self.running, calls, longest_s)
        """The rows of those calls, for other processes and beyond the end of this one."""
        self._archive = Archive(options.artifacts, options.tokens)
        self.browsing = Browsing(
            self._in_force,
            options.sessions,
            options.tokens,
            self.learning,
            self.first_logins,
            cache_stable=cache_stable,
        )
        """The needs of browses besides their answers, and their answers with reasons."""
        self.viewing = Viewing(self._in_force, self.audited, self._archive, self.running, self.kept, self._calls.heard)
        """Views of the calls that may outlive their requests."""

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Await *close* when the runtime ends, before its upstreams do."""
        self._closers.append(close)

    async def aclose(self) -> None:
        """End the work that was begun for this runtime and belongs to no caller."""
        await self.running.aclose()
        await self.first_logins.aclose()
        await self.kept.aclose()
        for close in self._closers:
            await close()
        await self.changes.aclose()
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

    async def refresh_catalog(self, upstreams: Collection[str] | None = None) -> RefreshReport:
        """Ask *upstreams* (all of them, if None) for their tools and put the new catalog in force.

        An upstream that does not answer keeps the tools it last gave. Raises CatalogError when two tools collide;
        then the catalog in force stays, whole (CARD-14).
        """
        return await self.changes.refresh(upstreams)

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
        rights_changed = rights_changed or not policies.access.same(self.access)

        def step() -> None:
            self._calls.use(policies)
            if policies.learn != self._policies.learn:
                self.learning.use(policies.learn)
            self._policies = policies
            self.access = policies.access
            also()

        await self.changes.rearrange(members, policies, step, rights_changed=rights_changed)

    def visible(self, context: CallContext) -> Callable[[str], bool] | None:
        """A test of ids that is true for those of tools that the caller may see; None if it may see all."""
        return self._keeper.snapshot.audience(self.access, context.identity).visible

    def may_see(self, item: SelectableItem, context: CallContext) -> bool:
        visible = self.visible(context)
        return visible is None or visible(item.id)

    async def browse_query(self, query: str, top_k: int | None = None, context: CallContext = LOCAL_CALL) -> Browse:
        """The *top_k* tools that fit the words best, of those that the caller may use (BROWSE-1); with None, as many
        as their scores deserve (BROWSE-30)."""
        return await self.browsing.query(query, top_k, context)

    async def browse_path(self, path: str, context: CallContext = LOCAL_CALL) -> Browse:
        """The children of *path* (BROWSE-12). Raises PathInvalid or PathNotFound."""
        return await self.browsing.path(path, context)

    async def hydrate(self, tool_id: str, context: CallContext = LOCAL_CALL) -> HydrationResult:
        """The full schemas of one tool (CARD-15). Raises HydrateFailed."""
        snapshot = self._keeper.snapshot
        item = snapshot.find(tool_id, self.access, context.identity)
        result = snapshot.catalog.hydrate(item.id)
        self.browsing.mark_seen(item, context)
        return result

    def find(self, tool_id: str, context: CallContext) -> SelectableItem:
        """Raises HydrateFailed if no tool of this caller is named."""
        return self._keeper.snapshot.find(tool_id, self.access, context.identity)

    def may_write(self, tool_id: str, context: CallContext = LOCAL_CALL) -> bool:
        """True unless it is known that this call changes nothing: also where it names no tool of this caller."""
        try:
            return self._calls.may_write(self.find(tool_id, context))
        except HydrateFailed:
            return False

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
        server's own result. The ``#hash`` of an id may be left out. A tool that fails raises nothing: the status of the
        envelope is ``error``.

        Raises HydrateFailed, ArgsInvalid, SchemaInvalid, Forbidden, ApprovalRequired or RateLimited before the
        upstream hears of it, and UpstreamUnavailable, UpstreamTimeout or UpstreamError after.
        """
        async with self.audited("execute", context, tool_id) as note:
            await self.first_logins.before_call(tool_id, context, note)
            run = partial(self._calls.call, *self._in_force(), tool_id, args, note=note, dry_run=dry_run)
            called = await note.traced(context, run)
            if isinstance(called, DryRun):
                return called
            if show is not None:
                show(called)
            execution = await self._archive.keep(
                called.result, called.item, context.identity.actor, called.notes, note.price
            )
            self._note_run(called, context)
            meta = called.result.get("_meta")
            return replace(execution, meta=meta) if isinstance(meta, Mapping) and not is_bulky(meta) else execution

    async def call(
        self, tool_id: str, args: object, context: CallContext = LOCAL_CALL, *, for_app: bool = False
    ) -> Mapping[str, Any]:
        """The server's own result as MCP wire JSON, behind the same checks as ``execute`` and raising the same: for
        faces that show results as they are (FACE-20). *for_app*: the tool may be one that only apps use."""
        async with self.audited("execute", context, tool_id) as note:
            await self.first_logins.before_call(tool_id, context, note)
            run = partial(self._calls.call, *self._in_force(), tool_id, args, note=note, for_app=for_app)
            called = await note.traced(context, run)
            assert isinstance(called, CalledTool)
            self._note_run(called, context)
            return called.result

    async def leave_program(self, result: Mapping[str, Any], context: CallContext, note: AuditedCall) -> Execution:
        """The answer of a program for its caller: through the plugins, and what is large kept. Raises Forbidden."""
        screened = await self._calls.screen(context, result, note.trail)
        return await self._archive.keep(screened, PROGRAM, owner_of_programs(context.identity), {})

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
        async with self.audited(operation, context, asked_for) as note:
            return await self._calls.pass_on(request, context, note, send, still_allowed)

    async def audit_unknown(
        self, requested: str, context: CallContext, *, operation: AuditedOperation = "execute", hidden: bool = False
    ) -> None:
        """Audit a request that names no tool (ACCESS-23), or none that this caller may use (*hidden*).

        Raises as ``call`` if the record cannot be written.
        """
        with suppress(HydrateFailed):
            async with self.audited(operation, context, requested) as note:
                note.hidden = hidden
                raise HydrateFailed("not a tool", path=requested)

    async def view(self, handle: str, selector: object, context: CallContext = LOCAL_CALL) -> View:
        """A bounded part of an artifact that this actor owns (EXEC-29, EXEC-34). Raises ViewFailed."""
        return await self.viewing.view(handle, selector, context)

    def tool_definitions(self, provider: Literal["openai", "anthropic"]) -> list[dict[str, Any]]:
        """The three tools for a model loop of your own, as functions of chat completions or as tools of messages.
        ``call_tool`` runs what the model calls."""
        from wicketgate.faces.model_loop import tool_definitions

        return tool_definitions(provider)

    async def call_tool(self, name: str, args: Mapping[str, Any] | str, context: CallContext | None = None) -> str:
        """Runs one of the three tools for a model and returns the text that it reads: a failure is a text too. *args*
        may be the JSON that the model wrote. The caller is the program itself, unless *context* names another."""
        from wicketgate.faces.model_loop import call_tool, face_of

        self.face = self.face or face_of(self)
        return await call_tool(self.face, name, args, context or LOCAL_CALL)

    def may_still_use(self, tool_id: str, identity: Identity) -> bool:
        """False if the tool is hidden from this caller by now."""
        return may_view(self.catalog(), self.access, f"{CALL_HANDLE}:{tool_id}:", identity)

    def flow_label(self, item: SelectableItem) -> str:
        """Describes how flow rules treat *item*; empty if there are no flow rules."""
        return self._calls.flow_label(item)

    def whole_id(self, tool_id: str, context: CallContext) -> str:
        """The id of the tool that *tool_id* names. Raises HydrateFailed."""
        return self._keeper.snapshot.find(tool_id, self.access, context.identity).id

    def tools_meant(self, name: str, context: CallContext) -> list[str]:
        """The tools that a caller who calls *name* may mean, of those that it may see."""
        visible = self.visible(context)
        return [each for each in self.catalog().called(name) if visible is None or visible(each)]

    async def offer_login(self, asked_for: str, context: CallContext) -> str:
        """As ``FirstLogins.offer``; a refusal is in the audit record."""
        try:
            return await self.first_logins.offer(asked_for, context)
        except GatewayError as error:
            async with self.audited("execute", context, asked_for) as note:
                note.server = error.upstream if isinstance(error, ConnectRequired) else ""
                raise

    def _in_force(self) -> tuple[Snapshot, AccessPolicy]:
        return self._keeper.snapshot, self.access

    def audited(self, operation: AuditedOperation, context: CallContext, asked_for: str) -> AuditedCall:
        return AuditedCall(self._auditor, operation, context, self._now, asked_for, self._watch)

    def _note_run(self, called: CalledTool, context: CallContext) -> None:
        self.browsing.mark_seen(called.item, context)
        if not called.result.get("isError"):
            self.learning.ran(context, called.item.id)
