"""Composes a gate from settings, and owns how long each of its parts lives (LIB-17, LIB-18).

The HTTP service, ``wicketgate mcp``, the commands and callers in Python all use this one. It decides nothing: each
part decides in its own room, and the rooms of ``wicketgate.config`` make the parts. A gate changes nothing of the
process that it runs in. A caller that owns the process passes what may: *heap* holds the garbage collector back during
a refresh.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import monotonic, time
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from wicketgate.access.authenticator import Authenticator, KeyUses, Revocation
from wicketgate.access.identity import HashedKey, KeyLife, KeyRing, expiry_notes
from wicketgate.access.issuers import Issuers
from wicketgate.access.resources import Resources
from wicketgate.access.token_watch import TokenWatch
from wicketgate.config.call_state import make_call_state
from wicketgate.config.engine import (
    engine_limits,
    make_approval_desk,
    make_keyed_runs,
    make_provider,
    make_seal,
    model_window,
    reseal,
)
from wicketgate.config.exchanges import exchanged_issuers, id_token_issuers, with_exchanges
from wicketgate.config.plugins import make_audit_reader, make_auditor
from wicketgate.config.reload import Applied, Changes, changed_sections
from wicketgate.config.runtime import (
    make_artifact_store,
    make_call_store,
    make_learned_store,
    make_mcp_session_store,
    make_peers,
    make_redis_link,
    make_runtime,
)
from wicketgate.config.settings import FACES, Settings
from wicketgate.config.shares import make_place_store, make_shares
from wicketgate.config.upstreams import UsersOf, guarded, make_member, make_members, outgoing_rules, upstream_limits
from wicketgate.config.user_logins import make_browser_logins, make_user_logins, shared_of, users_of
from wicketgate.engine.detached import DetachedRuns
from wicketgate.engine.limits import Drain, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.errors import ConfigError
from wicketgate.faces.assembly import make_faces
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.operations import Operations
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.fleet.server_log import ServerLogs
from wicketgate.fleet.turns import Turns
from wicketgate.gateway.audit_events import AuditEvents
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.options import HeapKeeper, Meter, NoMeter
from wicketgate.gateway.traffic import Traffic
from wicketgate.gateway.upstream_reports import UpstreamReport
from wicketgate.login.counts import ExchangeEvent, LoginCounts
from wicketgate.login.waiting import Waiting
from wicketgate.models.provider import Provider
from wicketgate.net import make_http_client
from wicketgate.peers import Alone, Peers
from wicketgate.ports import Upstream
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.measures import StorageMeasures, StorageState
from wicketgate.task_end import end_tasks
from wicketgate.tokens import shipped_token_counter

if TYPE_CHECKING:
    from wicketgate.login.exchange import IdTokens

VERSION = version("wicketgate")


class Gate:
    """An async context manager: upstreams are connected while it is open. Enter it once.

    *upstreams* and *provider* stand in for the configured ones. *keys* are valid besides the configured ones, also
    after a reload. *clock* gives seconds since the epoch, for the life of keys. *owner* is the socket of the process
    that runs stdio servers for several gates, *peers* the other processes of the service, where they are workers of one
    host. *users* gives the credentials of callers at an upstream with ``credentials: user``, *waiting* knows what
    becomes of their logins, *id_tokens* has ID tokens of callers for ``oauth.exchange`` by ``id_jag``, in place of
    those that are kept of logins with a browser. Making one connects nothing, opens nothing and needs no event loop.
    Raises ConfigError.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        upstreams: Sequence[Upstream] | None = None,
        provider: Provider | None = None,
        keys: Sequence[HashedKey] = (),
        meter: Meter | None = None,
        heap: HeapKeeper | None = None,
        clock: Callable[[], float] = time,
        owner: Path | None = None,
        peers: Peers | None = None,
        users: UsersOf | None = None,
        waiting: Waiting | None = None,
        id_tokens: "IdTokens | None" = None,
    ) -> None:
        self.traffic = Traffic(clock)
        meter = self.traffic.metered(meter or NoMeter())
        tokens, outgoing = shipped_token_counter(), outgoing_rules(settings)
        # The keys, and what ends with them.
        self._clock = clock
        self._extra_keys = tuple(keys)
        self._keys = KeyRing((), clock)
        self.issuers = Issuers(partial(make_http_client, outgoing), clock, monotonic)
        resources = Resources(settings.server.public_url, FACES, settings.mcp.face)
        self.authenticator = Authenticator(self._keys, self.issuers, resources)
        self.key_uses = KeyUses()
        self.token_watch = TokenWatch(self.issuers, self.key_uses)
        self.revocation = Revocation(self._keys, self.issuers, self.token_watch.look)
        # The runtime: upstreams, catalog, calls.
        self.storage = StorageMeasures(FailModes(settings.storage.fail.modes()))
        self._redis = make_redis_link(settings, self.storage)
        self.peers = make_peers(settings, self._redis, peers)
        """The other processes of the service."""
        self._artifacts = make_artifact_store(settings.storage, self.storage, self._redis)
        self._learned = make_learned_store(settings.storage, self.storage, self._redis)
        self.mcp_sessions = make_mcp_session_store(settings.storage, self.storage, self._redis)
        self._call_state = make_call_state(settings.storage, self.storage, self._redis)
        self.auditor = make_auditor(settings.plugins, time, settings.auth.digest_key)
        self.audit_reader = make_audit_reader(settings.plugins)
        self.audit_events = AuditEvents(self.auditor, self.traffic)
        self.server_logs = ServerLogs(clock)
        self.shared_stdio = owner is not None
        self.seal = make_seal(settings.auth)
        self.approvals = make_approval_desk(
            settings,
            self.seal,
            self.audit_events.approval_decided,
            self.storage,
            self._redis,
            self.peers,
            self.authenticator.stands,
        )
        self.login_counts = LoginCounts()
        # Whoever passes *users* in keeps their logins too.
        self.user_logins, shared = None, None
        self._keeps_id_tokens = users is None and upstreams is None and id_tokens is None
        self._id_token_issuers = id_token_issuers(settings) if self._keeps_id_tokens else {}
        if users is None and upstreams is None:
            self.user_logins = make_user_logins(
                settings,
                self.audit_events.of_grant,
                self.login_counts,
                self.issuers,
                self.storage,
                self._redis,
                id_tokens=self._keeps_id_tokens,
            )
            users = users_of(self.user_logins, outgoing)
            shared = shared_of(settings, self.user_logins, outgoing)
        self.id_tokens, at_issuer = None, None
        if self.user_logins is not None:
            from wicketgate.login.kept_id_tokens import KeptIdTokens
            from wicketgate.login.kept_logins import KeptLogins

            waiting = KeptLogins(self.user_logins.logins, self.user_logins.heard)
            self.id_tokens = KeptIdTokens(self.user_logins.rows, lambda: self._id_token_issuers, clock)
            at_issuer = self.user_logins.at_issuer if self._keeps_id_tokens else None
        self.browser_logins = make_browser_logins(self.user_logins, self.issuers, outgoing, self.id_tokens)
        turns, self._haste = Turns(), asyncio.Event()
        users = with_exchanges(
            users, self.issuers, outgoing, clock, id_tokens or self.id_tokens, at_issuer, self._exchanged
        )
        self.fleet = MultiplexUpstream(
            make_members(settings, outgoing, turns, self._haste, owner, self.server_logs, users, shared)
            if upstreams is None
            else [guarded(upstream) for upstream in upstreams]
        )
        places = make_place_store(settings, secrets.token_hex(8), self.storage, self._redis)
        self.shares = make_shares(settings, places, self.storage)
        self.runtime = make_runtime(
            settings,
            self.fleet,
            tokens,
            self._artifacts,
            self._learned,
            self._call_state,
            auditor=self.auditor,
            heap=heap,
            peers=self.peers,
            calls=make_call_store(settings.storage, settings.tasks.keep_bytes, self.storage, self._redis),
            watch=self.traffic,
            approver=self.approvals.approver_of,
            waiting=waiting,
            running=self.shares.running,
        )
        self.lifecycle = Lifecycle(self.fleet, self.runtime, start_deadline_s=settings.server.start_deadline_s)
        # The faces over it.
        self.surface = GatewayFace(self.runtime, started=self.lifecycle.started, meter=meter)
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
        )
        # The engine, whose tools are those of the gateway's face.
        self._provider = make_provider(settings.model, outgoing) if provider is None else provider
        window = model_window(settings.model, tokens)
        self.engine = Engine(
            self._provider,
            self.surface,
            window,
            engine_limits(settings),
            meter,
            self.approvals,
            self.authenticator.stands,
        )
        detached = DetachedRuns(self.shares.detached)
        self.streams = StreamLimit(self.shares.chat, detached.give_way)
        self.keyed = make_keyed_runs(self.engine, self.streams, detached, settings, self.storage, self._redis)
        # What changes while it runs, and how it ends.
        self.revocation.add(self.streams.end_of)
        self.revocation.add(self.key_uses.end_of)
        self.revocation.add(self.runtime.running.end_of)
        self.revocation.add(self.approvals.end_of)
        self.drain = Drain(self.lifecycle, self.streams)
        self.drain.follow(self.runtime.running.begin_drain)
        self._applied = Applied(
            settings,
            self.runtime,
            self.fleet,
            self.lifecycle,
            partial(
                make_member,
                outgoing=outgoing,
                turns=turns,
                haste=self._haste,
                owner=owner,
                logs=self.server_logs,
                users=users,
                shared=shared,
            ),
        )
        self.loaded_at = clock()
        self._put_in_force(settings)
        self._applied.on_apply(self._put_in_force)
        self._open = AsyncExitStack()
        self._entered = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a Gate is entered once: its stores are closed at its end. Make a new one")
        self._entered = True
        async with AsyncExitStack() as stack:
            if self.auditor is not None:
                stack.push_async_callback(self.auditor.aclose)  # last: what ends before it is recorded there
                stack.callback(self.audit_events.end_window)
            if self._redis is not None:
                await stack.enter_async_context(self._redis.running())
            stack.push_async_callback(self.issuers.aclose)
            stack.push_async_callback(self.token_watch.aclose)
            if self.user_logins is not None:
                await stack.enter_async_context(self.user_logins.running())
            await stack.enter_async_context(self.peers.answering())
            stack.push_async_callback(self.shares.aclose)
            stack.push_async_callback(self._artifacts.aclose)
            stack.push_async_callback(self._learned.aclose)
            stack.push_async_callback(self.mcp_sessions.aclose)
            stack.push_async_callback(self._call_state.aclose)
            stack.push_async_callback(self.approvals.aclose)
            stack.push_async_callback(self._provider.aclose)
            if self.audit_reader is not None:
                stack.push_async_callback(self.audit_reader.aclose)
            await self.runtime.learning.load()
            await stack.enter_async_context(self.lifecycle.running())
            stack.push_async_callback(self.keyed.aclose)
            stack.push_async_callback(end_tasks, asyncio.create_task(self.revocation.watch(), name="ends of keys"))
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    @property
    def has_peers(self) -> bool:
        """True if other processes may serve the same clients, and be reached."""
        return not isinstance(self.peers, Alone)

    @property
    def settings(self) -> Settings:
        """The settings in force. What waits for a restart is as it was."""
        return self._applied.settings

    async def take_over_runs(self) -> None:
        """Goes on with runs that other processes of the same store have left, until cancelled: for a process that
        serves, because what it takes ends with it."""
        await self.lifecycle.wait_ready()
        await self.keyed.take_over(self.authenticator.resumes)

    def ready(self) -> bool:
        """Returns true once the upstreams had their turn, until the first sign of a stop."""
        return self.lifecycle.ready()

    async def records(self) -> bool:
        """Returns true while calls can be audited; otherwise all of them are refused."""
        return self.auditor is None or await self.auditor.ready()

    def taking(self) -> bool:
        """Returns true while requests are taken: once the upstreams had their turn, until the drain begins."""
        return self.lifecycle.taking()

    async def wait_ready(self) -> None:
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

    def key_life(self) -> Mapping[str, KeyLife]:
        """Returns the last use and the end of each key, by its id."""
        return self._keys.life()

    def accepted_keys(self) -> list[HashedKey]:
        """Returns the keys that are accepted now."""
        return self._keys.keys()

    def storage_state(self) -> StorageState:
        """Returns how the store of ``storage.url`` is, as far as that can be told without asking it."""
        settings = self._applied.settings.storage
        if self._redis is None:
            kind: Literal["memory", "sqlite"] = "memory" if settings.sqlite_file is None else "sqlite"
            return StorageState(kind, degraded=self.storage.fail.degraded(away=False))
        away = self._redis.trouble
        return StorageState("redis", away, self._redis.shortfalls, self.storage.fail.degraded(away=bool(away)))

    def key_notes(self) -> list[str]:
        """Returns a line on each key that has expired or soon expires."""
        return list(expiry_notes(self._keys.keys(), self._clock()))

    def on_apply(self, step: Callable[[Settings], None]) -> None:
        """Calls *step* within each ``apply``. It must neither wait nor fail."""
        self._applied.on_apply(step)

    def on_upstream(self, listener: Callable[[UpstreamReport], None]) -> None:
        """Calls *listener* in the loop when an upstream is ready or has failed for the first time, and at each change
        of its phase afterwards. It must not wait; what it raises is logged."""
        self.lifecycle.reports.listen(listener)

    async def apply(self, settings: Settings) -> Changes:
        """Puts *settings* in force, as far as they can be without a restart. One call at a time.

        Raises ConfigError; then nothing has changed.
        """
        before = self.settings
        try:
            if self._keeps_id_tokens:
                id_token_issuers(settings)
            changes = await self._applied.apply(settings)
        except ConfigError:
            self.audit_events.reload_failed()
            raise
        self.audit_events.reloaded(changed_sections(before, self.settings), changes.waiting)
        self.loaded_at = self._clock()
        return changes

    @property
    def waiting(self) -> Sequence[str]:
        """The settings that take effect after a restart, as the configuration has them by now."""
        return self._applied.waiting

    @property
    def switched(self) -> Mapping[str, bool]:
        """The upstreams that ``switch`` enabled or disabled, otherwise than the configuration says."""
        return self._applied.switched

    async def switch(self, name: str, *, enabled: bool) -> bool:
        """Enables or disables the configured upstream *name* until the configuration is applied again. Returns false if
        it was so already. Raises KeyError and ConfigError; then nothing has changed."""
        switched = await self._applied.switch(name, enabled=enabled)
        if switched:
            self.server_logs.of(name).note("enabled" if enabled else "disabled")
        return switched

    async def reconnect(self, name: str) -> bool:
        """Gives the configured upstream *name* a new session, which begins when the old one has ended. Returns false if
        it is disabled. Raises KeyError and ConfigError; then nothing has changed."""
        renewed = await self._applied.renew(name)
        if renewed:
            self.server_logs.of(name).note("reconnect")
        return renewed

    async def read_pins(self) -> None:
        """Reads the lock file of pins again, and puts it in force. Raises ConfigError; then nothing has changed."""
        await self._applied.read_pins()

    def _exchanged(self, event: ExchangeEvent) -> None:
        self.login_counts.exchanges[event.upstream, event.outcome] += 1
        self.audit_events.of_exchange(event)

    def _put_in_force(self, settings: Settings) -> None:
        auth = settings.auth
        self._keys.replace([*(key.hashed() for key in auth.keys), *self._extra_keys])
        gateway = None if auth.trusted_headers is None else auth.trusted_headers.made()
        self.issuers.replace((issuer.made() for issuer in auth.issuers), gateway)
        self.authenticator.exchanged = exchanged_issuers(settings)
        if self._keeps_id_tokens:
            self._id_token_issuers = id_token_issuers(settings)
        self.revocation.enforce()
        self.engine.limits = engine_limits(settings)
        reseal(self.seal, self.approvals, settings.auth)
        if self.user_logins is not None:
            self.user_logins.rows.seal.replace_keys(settings.auth.ring())
            self.user_logins.keep_only(
                each.name
                for each in settings.upstreams
                if each.connects_users or each.needs_id_tokens or each.needs_operator_login
            )
        if self.auditor is not None:
            self.auditor.use_key(settings.auth.digest_key)


@asynccontextmanager
async def running_engine(
    settings: Settings, *, upstreams: Sequence[Upstream] | None = None, provider: Provider | None = None
) -> AsyncIterator[Engine]:
    """Opens a gate, waits until it is ready, and gives its engine: the same events as over HTTP, with no port open.

    *upstreams* and *provider* stand in for the configured ones. Raises ConfigError.
    """
    async with Gate(settings, upstreams=upstreams, provider=provider) as gate:
        await gate.wait_ready()
        yield gate.engine
