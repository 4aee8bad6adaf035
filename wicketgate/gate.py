"""Composes a gate from settings, and owns how long each of its parts lives (LIB-17, LIB-18).

The HTTP service, ``wicketgate mcp``, the commands and callers in Python all use this one. It decides nothing: each
part decides in its own room, and the rooms of ``wicketgate.config`` make the parts. A gate changes nothing of the
process that it runs in. A caller that owns the process passes what may: *heap* holds the garbage collector back during
a refresh.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from time import monotonic, time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wicketgate.access.identity import HashedKey
from wicketgate.config.engine import (
    engine_limits,
    make_approval_desk,
    make_keyed_runs,
    make_provider,
    model_name,
    model_window,
    prices_of,
    reseal,
)
from wicketgate.config.plugins import make_plugin_chain
from wicketgate.config.reload import Applied, Changes, changed_sections
from wicketgate.config.runtime import running_limits, runtime_policies
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import settings_from
from wicketgate.config.switches import Switches
from wicketgate.config.upstreams import UpstreamMaker, UsersOf, guarded, outgoing_rules, own_functions, upstream_limits
from wicketgate.config.user_logins import GateLogins
from wicketgate.engine.limits import DetachedRuns, Drain, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.errors import ConfigError
from wicketgate.faces.assembly import make_faces
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.operations import Operations
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.fleet.turns import Turns
from wicketgate.gate_parts import GateKeys, Records, SharedState
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.options import HeapKeeper, Meter, NoMeter, RuntimeOptions
from wicketgate.gateway.programs import ProgramLimits, Programs
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.gateway.spending import Spending
from wicketgate.login.login_flow import NoWaiting, Waiting
from wicketgate.models.provider import Provider
from wicketgate.models.watched import WatchedModels
from wicketgate.ports import Upstream
from wicketgate.random_ids import random_id
from wicketgate.sandbox import INSTALL, Interpreter, is_installed
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.calls import StoredCalls
from wicketgate.storage.flows import StoredFlows
from wicketgate.storage.keys import StoredKeys
from wicketgate.storage.learned_words import StoredLearnedWords
from wicketgate.storage.programs import StoredPrograms
from wicketgate.storage.quotas import StoredQuotas
from wicketgate.storage.spending import StoredLedger
from wicketgate.task_end import end_tasks
from wicketgate.tokens import shipped_token_counter

if TYPE_CHECKING:
    from wicketgate.login.exchanged import IdTokens

VERSION = version("wicketgate")


class Gate:
    """An async context manager: upstreams are connected while it is open, and entering it waits for their tools, for
    ``server.start_deadline_s`` at the longest. A call of one that takes longer says so. Enter it once. ``runtime``, a
    ProxyRuntime, calls the tools::

        async with Gate({"mcpServers": {"time": {"command": "mcp-server-time"}}}, tools=[price]) as gate:
            execution = await gate.runtime.execute("local:price", {"article": "tea"})

    *settings* may be what a file may hold. *tools* are functions of the program, in the namespace ``local``: whatever
    ``ToolRegistry.of`` takes. *waits* false: entering it waits for nothing. *upstreams* and *provider* stand in for
    the configured ones. *keys* are valid besides the configured ones, also after a reload. *clock* gives seconds since
    the epoch, for the life of keys. *users* gives the credentials of callers at an upstream with ``credentials: user``.
    *waiting* knows what becomes of their logins. *id_tokens* has ID tokens of callers for ``oauth.exchange`` by
    ``id_jag``, in place of those that are kept of logins with a browser. *seal_key* is the random key that seals
    without ``auth.seal_keys``, one for all workers. *checks_ring* is false for a command that may use the store of a
    running service, whatever its keys are. Making a gate connects nothing, opens nothing and needs no event loop.
    Raises ConfigError.
    """

    def __init__(
        self,
        settings: Settings | Mapping[str, Any] | None = None,
        *,
        tools: object = (),
        waits: bool = True,
        upstreams: Sequence[Upstream] | None = None,
        provider: Provider | None = None,
        keys: Sequence[HashedKey] = (),
        meter: Meter | None = None,
        heap: HeapKeeper | None = None,
        clock: Callable[[], float] = time,
        users: UsersOf | None = None,
        waiting: Waiting | None = None,
        id_tokens: "IdTokens | None" = None,
        seal_key: bytes | None = None,
        checks_ring: bool = True,
    ) -> None:
        settings = settings if isinstance(settings, Settings) else settings_from({} if settings is None else settings)
        tokens, outgoing = shipped_token_counter(), outgoing_rules(settings)
        # What is known, shared and accepted.
        self.records = Records(settings, clock)
        meter = self.records.traffic.metered(meter or NoMeter())
        self.shared = SharedState(settings, seal_key, checks_ring=checks_ring)
        store, measures = self.shared.store, self.shared.measures
        self.keys = GateKeys(
            settings, keys, outgoing, clock, self.shared.news, self.shared.process.id, StoredKeys(store)
        )
        self.logins = GateLogins(
            settings,
            self.records.events,
            self.keys.issuers,
            store,
            outgoing,
            clock,
            is_kept_here=users is None and upstreams is None,
            users=users,
            waiting=waiting,
            id_tokens=id_tokens,
        )
        stands = self.keys.authenticator.stands
        decided = self.records.events.approval_decided
        self.approvals = make_approval_desk(settings, self.shared.seal, store, measures, decided, stands)
        # The runtime: upstreams, catalog, calls.
        self._haste = asyncio.Event()
        make = UpstreamMaker(
            outgoing,
            Turns(),
            self._haste,
            self.records.server_logs,
            self.logins.users,
            self.logins.shared,
            sandbox=settings.sandbox_of,
        ).member
        members = [make(each) for each in settings.upstreams if each.enabled] if upstreams is None else []
        given = [*(upstreams or ()), *own_functions(tools, settings)]
        self.fleet = MultiplexUpstream([*members, *map(guarded, given)])
        kept = settings.storage
        self.ledger = StoredLedger(store, measures.fail)
        self.spending = Spending(self.ledger, settings.spending_rules(), clock)
        self.runtime = ProxyRuntime(
            self.fleet,
            RuntimeOptions(
                policies=runtime_policies(settings),
                artifacts=StoredArtifacts(store, kept.max_bytes, kept.max_age_s, measures.fail),
                tokens=tokens,
                plugins=make_plugin_chain(settings.plugins, monotonic),
                auditor=self.records.auditor,
                heap=heap,
                now=monotonic,
                learned=StoredLearnedWords(store, shared=kept.url != "memory://", measures=measures),
                patient_lessons=kept.fail.learned_words == "open",
                quota=StoredQuotas(store, measures.fail),
                running=running_limits(settings.tasks),
                running_places=self.shared.limits.running,
                new_id=lambda: random_id()[:16],
                calls=StoredCalls(store, self.shared.process, self.shared.seal),
                watch=self.records.traffic,
                approver=self.approvals.approver_of,
                waiting=self.logins.waiting or NoWaiting(),
                flows=StoredFlows(store),
                spending=self.spending,
            ),
            cache_stable=settings.mcp.cache_stable,
        )
        self.lifecycle = Lifecycle(self.fleet, self.runtime, start_deadline_s=settings.server.start_deadline_s)
        # The faces over it.
        self.surface = GatewayFace(self.runtime, started=self.lifecycle.started, meter=meter)
        self.runtime.face = self.surface
        self.programs = self._make_programs(settings)
        self.operations = Operations(self.runtime, started=self.lifecycle.started)
        self.faces = make_faces(
            self.runtime,
            self.fleet,
            self.lifecycle.started,
            gateway=self.surface,
            operations=self.operations,
            timeout_s=settings.engine.tool_timeout_s,
            result_form=settings.mcp.result,
            always=settings.mcp.always,
            gates={name: (gate.face, gate.always) for name, gate in settings.gates.items()},
        )
        # The engine, whose tools are those of the gateway's face.
        self.models = WatchedModels(monotonic)
        if provider is None:
            self._provider = make_provider(settings.model, outgoing, self.models)
        else:
            name, prices = model_name(settings.model), prices_of(settings.model)
            self._provider = self.models.watched(name, provider, prices=prices)
        window, limits = model_window(settings.model, tokens), engine_limits(settings)
        self.engine = Engine(self._provider, self.surface, window, limits, meter, self.approvals, stands, self.spending)
        detached = DetachedRuns(self.shared.limits.detached)
        self.streams = StreamLimit(self.shared.limits.chat, detached.give_way)
        self.keyed = make_keyed_runs(
            self.engine, self.streams, detached, settings, store, self.shared.process, measures
        )
        # What changes while it runs, and how it ends.
        for ender in (self.streams, self.runtime.running, self.approvals):
            self.keys.revocation.add(ender.end_of)
        self.drain = Drain(self.lifecycle, self.streams)
        self.drain.follow(self.runtime.running.begin_drain)
        self.applied = Applied(settings, self.runtime, self.fleet, self.lifecycle, make)
        self.switches = Switches(
            self.applied,
            store,
            self.shared.news,
            self.shared.process.id,
            lambda name, what: self.records.server_logs.of(name).note(what),
        )
        self.loaded_at = clock()
        self._clock = clock
        self._put_in_force(settings)
        self.applied.on_apply(self._put_in_force)
        self._open = AsyncExitStack()
        self._entered = False
        self._waits = waits

    def _make_programs(self, settings: Settings) -> Programs | None:
        """Raises ConfigError without the interpreter."""
        code = settings.code_mode
        if not code.enabled:
            return None
        if not is_installed():
            raise ConfigError(INSTALL)
        self.surface.programs = programs = Programs(
            self.runtime,
            Interpreter(code.seconds, code.memory, code.workers),
            StoredPrograms(self.shared.store, self.shared.process, self.shared.seal),
            ProgramLimits(code.calls, code.keep),
            lambda: random_id()[:16],
            now=time,
            still_waits=self.approvals.waits,
            resumes=self.keys.authenticator.resumes,
        )
        self.keys.revocation.add(programs.end_of)
        return programs

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a Gate is entered once: its stores are closed at its end. Make a new one")
        self._entered = True
        async with AsyncExitStack() as stack:
            # Entered first, these end last: the end of every other part can still be recorded.
            for part in (self.records, self.shared, self.keys, self.logins, self.ledger):
                await stack.enter_async_context(part.running())
            for closes in (self.shared.limits, self.approvals, self._provider):
                stack.push_async_callback(closes.aclose)
            await self.runtime.learning.load()
            await stack.enter_async_context(self.lifecycle.running())
            stack.push_async_callback(self.keyed.aclose)
            ends = asyncio.create_task(self.keys.revocation.watch(), name="ends of keys")
            stack.push_async_callback(end_tasks, ends)
            await stack.enter_async_context(self.shared.news.running())
            # What changed after the first reading, and before the news were followed.
            await self.keys.read_again()
            if self.programs is not None:
                self.programs.begin()
            if self._waits:
                await self.lifecycle.wait_ready()
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    @property
    def settings(self) -> Settings:
        """The settings in force. What waits for a restart is as it was."""
        return self.applied.settings

    async def take_over_runs(self) -> None:
        """Goes on with runs that other processes of the same store have left, until cancelled: for a process that
        serves, because what it takes ends with it."""
        await self.lifecycle.wait_ready()
        await self.keyed.take_over(self.keys.authenticator.resumes)

    async def wait_ready(self) -> None:
        """Waits for the tools of each upstream, for ``server.start_deadline_s`` at the longest."""
        await self.lifecycle.wait_ready()

    async def wait_settled(self) -> None:
        """Waits as ``wait_ready`` does, but for each upstream as long as its own timeouts allow, whatever
        ``server.start_deadline_s`` is: for a program that needs all tools, and runs once."""
        bounds = [up.connect_within_s + upstream_limits(up).listing_s for up in self.settings.upstreams if up.enabled]
        longest_s = max(bounds, default=self.settings.server.start_deadline_s)
        await self.lifecycle.wait_settled(longest_s + Turns.longest_wait_s(len(bounds)))

    def hurry(self) -> None:
        """Leaves child processes no grace from now on: those that are being ended are killed."""
        self._haste.set()

    async def apply(self, settings: Settings) -> Changes:
        """Puts *settings* in force, as far as they can be without a restart. One call at a time.

        Raises ConfigError; then nothing has changed.
        """
        before, ring_check, events = self.settings, self.shared.ring_check, self.records.events
        ring = settings.auth.ring()
        ring_changes = ring_check is not None and ring != before.auth.ring()
        try:
            self.logins.id_token_issuers(settings)
            if ring_check is not None and ring_changes:
                await ring_check.check(ring)
            changes = await self.applied.apply(settings)
        except ConfigError:
            events.reload_failed()
            raise
        if ring_check is not None and ring_changes:
            await ring_check.follow(ring)
        events.reloaded(changed_sections(before, self.settings), changes.waiting)
        self.loaded_at = self._clock()
        await self.switches.reset()
        await self.keys.tell_of_change(before, self.settings)
        return changes

    def _put_in_force(self, settings: Settings) -> None:
        self.keys.put_in_force(settings, read_again=settings.auth is not self.settings.auth)
        self.engine.limits = engine_limits(settings)
        reseal(self.shared.seal, self.approvals, settings.auth)
        self.logins.put_in_force(settings)
        self.spending.use(settings.spending_rules())
        if self.records.auditor is not None:
            self.records.auditor.use_key(settings.auth.digest_key)


@asynccontextmanager
async def running_engine(
    settings: Settings | Mapping[str, Any],
    *,
    tools: object = (),
    upstreams: Sequence[Upstream] | None = None,
    provider: Provider | None = None,
) -> AsyncIterator[Engine]:
    """Opens a gate and gives its engine: the same events as over HTTP, with no port open. Takes what ``Gate`` takes.
    Raises ConfigError."""
    async with Gate(settings, tools=tools, upstreams=upstreams, provider=provider) as gate:
        yield gate.engine
