"""Parts of a gate that its doors and its console use by name: keys, shared state, and records.

Each is made of the settings, connects nothing when it is made, and says with ``running`` how long it lives.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from time import monotonic, time
from typing import Literal

from wicketgate.access.authenticator import Authenticator, KeyUses, Revocation
from wicketgate.access.identity import HashedKey, KeyLife, KeyRing, expiry_notes, revised
from wicketgate.access.issuers import Issuers
from wicketgate.access.resources import Resources
from wicketgate.access.token_watch import TokenWatch
from wicketgate.config.engine import make_seal
from wicketgate.config.plugins import make_audit_reader, make_auditor
from wicketgate.config.runtime import make_redis_link, make_shares, make_store
from wicketgate.config.settings import Settings
from wicketgate.config.user_logins import exchanged_issuers
from wicketgate.errors import StoreUnavailable
from wicketgate.faces.mcp.session_tokens import LIFE_S
from wicketgate.fleet.server_log import ServerLogs
from wicketgate.gateway.audit_events import AuditEvents
from wicketgate.gateway.traffic import Traffic
from wicketgate.net import HttpClient, Outgoing
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.keys import StoredKeys
from wicketgate.storage.mcp_sessions import StoredMcpSessions
from wicketgate.storage.measures import StorageMeasures, StorageState
from wicketgate.storage.news import Facts, News
from wicketgate.storage.process import Process
from wicketgate.storage.ring_check import RingCheck
from wicketgate.storage.store import LOOK_S
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.keys")

_KEYS_AT_ONCE = 100
_REVISED = ("revoked", "accepted")


class Records:
    """Records of calls: the recent *traffic* of this process, and the audit if one is configured."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self.traffic = Traffic(clock)
        self.auditor = make_auditor(settings.plugins, time, settings.auth.digest_key)
        self.reader = make_audit_reader(settings.plugins)
        self.events = AuditEvents(self.auditor, self.traffic)
        self.server_logs = ServerLogs(clock)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self.auditor is not None:
                stack.push_async_callback(self.auditor.aclose)
                stack.callback(self.events.end_window)
            if self.reader is not None:
                stack.push_async_callback(self.reader.aclose)
            yield

    async def ready(self) -> bool:
        """Returns true while calls can be audited; otherwise all of them are refused."""
        return self.auditor is None or await self.auditor.ready()


class SharedState:
    """The *store* that all processes of a service share, this *process*, and the parts that need only these two.
    *ring_check* is None if nothing is sealed for other processes."""

    def __init__(self, settings: Settings, seal_key: bytes | None, *, checks_ring: bool) -> None:
        self.measures = StorageMeasures(FailModes(settings.storage.fail.modes()))
        self._redis = make_redis_link(settings, self.measures)
        self._is_sqlite = settings.storage.sqlite_file is not None
        self.store = make_store(settings.storage, self.measures, self._redis)
        self.process = Process(self.store)
        self.news = News(self.store, self.process.id)
        self.mcp_sessions = StoredMcpSessions(self.store, LIFE_S)
        self.limits = make_shares(settings, self.store, self.process, self.measures)
        seal_key = seal_key or secrets.token_bytes(32)
        self.seal = make_seal(settings.auth, seal_key)
        self.ring_check: RingCheck | None = None
        if checks_ring and settings.storage.is_shared:
            self.ring_check = RingCheck(self.store, self.process, seal_key, settings.auth.ring())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._redis is not None:
                await stack.enter_async_context(self._redis.running())
            stack.push_async_callback(self.store.aclose)
            await stack.enter_async_context(self.process.running())
            if self.ring_check is not None:
                await stack.enter_async_context(self.ring_check.running())
            yield

    def state(self) -> StorageState:
        """Returns how the store of ``storage.url`` is, as far as that can be told without asking it."""
        kind: Literal["memory", "sqlite"] = "sqlite" if self._is_sqlite else "memory"
        away = self.measures.away
        degraded = self.measures.fail.degraded(away=bool(away))
        if self._redis is None:
            return StorageState(kind, away, degraded=degraded)
        return StorageState("redis", away, self._redis.shortfalls, degraded)


class GateKeys:
    """The keys and tokens that are accepted, and what ends with them, in this process and in the others. *extra* are
    valid besides the configured ones."""

    def __init__(
        self,
        settings: Settings,
        extra: Sequence[HashedKey],
        outgoing: Outgoing,
        clock: Callable[[], float],
        news: News,
        process_id: str,
        stored: StoredKeys,
    ) -> None:
        self._clock = clock
        self._extra = tuple(extra)
        self._configured: Sequence[HashedKey] = ()
        self._stored = stored
        self._ring = KeyRing((), clock)
        self.issuers = Issuers(partial(HttpClient, outgoing), clock, monotonic)
        resources = Resources(settings.server.public_url, settings.face_names(), settings.mcp.face)
        self.authenticator = Authenticator(self._ring, self.issuers, resources)
        self.uses = KeyUses()
        self.token_watch = TokenWatch(self.issuers, self.uses)
        self.revocation = Revocation(self._ring, self.issuers, self.token_watch.look)
        self.revocation.add(self.uses.end_of)
        self._revoked_here: set[tuple[str, str]] = set()
        self._news = news
        self._process_id = process_id
        news.on("keys", self._revised, self._ask_again)
        news.on("keys_asked", self._tell_again)
        news.on("stored_keys", self._read_stored, self._read_stored)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.issuers.aclose)
            stack.push_async_callback(self.token_watch.aclose)
            try:
                await self._read_stored({})
            except StoreUnavailable as error:
                log.error("keys that operators made are not accepted yet: %s", error)
                later = asyncio.create_task(self._read_later(), name="stored keys")
                stack.push_async_callback(end_tasks, later)
            yield

    def life(self) -> Mapping[str, KeyLife]:
        """Returns the last use and the end of each key, by its id."""
        return self._ring.life()

    def accepted(self) -> list[HashedKey]:
        """Returns the keys that are accepted now."""
        return self._ring.keys()

    def notes(self) -> list[str]:
        """Returns a line on each key that has expired or soon expires."""
        return list(expiry_notes(self._ring.keys(), self._clock()))

    def put_in_force(self, settings: Settings, *, read_again: bool) -> None:
        """Accepts the keys and issuers of *settings* from now on, and ends the work of those that are not
        accepted any more."""
        auth = settings.auth
        self._configured = [key.hashed() for key in auth.keys]
        self._accept(read_again=read_again)
        gateway = None if auth.trusted_headers is None else auth.trusted_headers.made()
        self.issuers.replace((issuer.made() for issuer in auth.issuers), gateway)
        self.authenticator.exchanged = exchanged_issuers(settings)
        self.revocation.enforce()

    def is_made(self, key: HashedKey) -> bool:
        """Returns whether an operator made *key*."""
        return any(key.sha256 == made.sha256 for made in self._stored.made)

    def configured(self, key: HashedKey) -> HashedKey | None:
        """Returns *key* as the configuration has it."""
        return next((each for each in (*self._configured, *self._extra) if each.sha256 == key.sha256), None)

    async def put(self, key: HashedKey) -> None:
        """Accepts a new *key*, or one that is now suspended or no longer, at all processes. Raises Full,
        Conflict and StoreUnavailable."""
        ops = self._news.ops("stored_keys")
        async with self._own_change():
            if self.is_made(key) or self.configured(key) is None:
                await self._stored.put(key, ops)
            elif key.suspended:
                await self._stored.suspend(key, ops)
            else:
                await self._stored.drop(key, ops)

    async def drop(self, key: HashedKey) -> None:
        """Forgets a key that an operator made. Raises Conflict and StoreUnavailable."""
        async with self._own_change():
            await self._stored.drop(key, self._news.ops("stored_keys"))

    @asynccontextmanager
    async def _own_change(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.read_again()

    async def read_again(self) -> None:
        """Reads the keys of operators, unless the store is unavailable: then the news bring them."""
        with suppress(StoreUnavailable):
            await self._read_stored({})

    def _accept(self, *, read_again: bool) -> None:
        self._ring.replace(self._stored.among([*self._configured, *self._extra]), read_again=read_again)

    async def _read_stored(self, facts: Facts) -> None:
        await self._stored.read()
        self._accept(read_again=False)
        self.revocation.enforce()

    async def _read_later(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(StoreUnavailable):
                await self._read_stored({})
                return

    async def tell_of_change(self, before: Settings, now: Settings) -> None:
        """Tells the other processes which keys are revoked since *before*, and which are accepted again."""
        old, new = ([key.hashed() for key in settings.auth.keys] for settings in (before, now))
        revoked, accepted = revised(old, new, self._clock())
        self._revoked_here = (self._revoked_here | {*revoked}) - {*accepted}
        await self._tell(revoked, accepted)

    async def _ask_again(self, facts: Facts) -> None:
        """News were missed here: other processes tell again which keys they have revoked."""
        await self._news.tell("keys_asked")

    async def _tell_again(self, facts: Facts) -> None:
        await self._tell(sorted(self._revoked_here), [])

    async def _tell(self, revoked: Sequence[tuple[str, str]], accepted: Sequence[tuple[str, str]]) -> None:
        for start in range(0, max(len(revoked), len(accepted)), _KEYS_AT_ONCE):
            end = start + _KEYS_AT_ONCE
            await self._news.tell("keys", revoked=revoked[start:end], accepted=accepted[start:end])

    async def _revised(self, facts: Facts) -> None:
        """Ends the work here of keys that another process revoked (ACCESS-46)."""
        if facts["by"] != self._process_id:
            revoked, accepted = ({(str(id), str(digest)) for id, digest in facts[what]} for what in _REVISED)
            self._revoked_here -= accepted
            self._ring.revise(revoked=revoked, accepted=accepted)
            self.revocation.enforce()
