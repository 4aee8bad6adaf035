"""Makes what a runtime needs from the settings: the policies of calls, the store, and the shares of callers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wicketgate.access.shares import CountedShares, Shares
from wicketgate.config.lock_file import pin_policy
from wicketgate.config.settings import Settings, StorageSettings, TaskSettings
from wicketgate.config.settings.access import access_policy
from wicketgate.config.words_file import words_in_force
from wicketgate.gateway.call_policy import CallPolicy, RetryPolicy
from wicketgate.gateway.options import RuntimePolicies
from wicketgate.gateway.questions import place_of
from wicketgate.gateway.running_calls import RunningLimits
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.places import LINGER_S, SharedLimits
from wicketgate.storage.process import Process
from wicketgate.storage.store import Store

if TYPE_CHECKING:
    from wicketgate.storage.redis.client import RedisLink


def make_redis_link(settings: Settings, measures: StorageMeasures | None = None) -> "RedisLink | None":
    """Makes the link to the Redis that replicas share, without connecting; None if ``storage.url`` names none.

    The stores of this Redis are made of it, and do not close it.
    """
    place = settings.storage.redis_place
    if place is None:
        return None
    # It takes a sixth of a second to import, and most gates need none.
    from wicketgate.storage.redis.client import RedisLink

    return RedisLink(place, ca_file=settings.network.ca_file, measures=measures)


def make_store(
    settings: StorageSettings, measures: StorageMeasures | None = None, redis: "RedisLink | None" = None
) -> Store:
    """Makes the store that the processes of a service share. A file is checked now, and opened at its first use. Raises
    ConfigError."""
    if redis is not None:
        from wicketgate.storage.redis.store import RedisStore

        return RedisStore(redis)
    if settings.sqlite_file is None:
        return MemoryStore()
    from wicketgate.storage.sqlite import SqliteStore

    return SqliteStore(settings.sqlite_file, measures=measures)


def running_limits(settings: TaskSettings) -> RunningLimits:
    return RunningLimits(settings.after_s, settings.max_running, settings.max_running_per_actor)


def runtime_policies(settings: Settings) -> RuntimePolicies:
    """Returns the operator's decisions. Reads the lock file of pins and the file of words. Raises ConfigError."""
    local = f"http://localhost:{settings.server.port}"
    return RuntimePolicies(
        calls=call_policies(settings),
        default_call=CallPolicy(settings.engine.tool_timeout_s, task_s=settings.tasks.longest_s),
        access=access_policy(settings.access, settings.access_default, settings.virtual_gates()),
        pins=pin_policy(settings.pins),
        inferred=frozenset(upstream.name for upstream in settings.upstreams if upstream.namespace == "infer"),
        configured=frozenset(upstream.name for upstream in settings.upstreams),
        per_actor=settings.quota.per_actor,
        per_tool=settings.quota.per_tool,
        gate_quotas={name: (gate.quota.per_actor, gate.quota.per_tool) for name, gate in settings.gates.items()},
        words=settings.browse.said(),
        written_words=words_in_force(settings.browse),
        learn=settings.browse.learn,
        always=settings.mcp.always,
        flow=settings.flow.rules(),
        own_pages=frozenset(map(place_of, filter(None, (settings.server.public_url, local)))),
        distant=frozenset(
            upstream.name
            for upstream in settings.upstreams
            if upstream.url and not place_of(upstream.url).startswith("localhost:")
        ),
    )


def call_policies(settings: Settings) -> dict[str, CallPolicy]:
    """Returns by upstream name how calls are made."""
    return {
        upstream.name: CallPolicy(
            timeout_s=upstream.timeout_s or settings.engine.tool_timeout_s,
            tool_timeouts_s=upstream.tool_timeouts_s,
            retry=RetryPolicy(upstream.retry.attempts, declared_safe=upstream.retry.declared_safe),
            cached_tools=upstream.cache.tools,
            cache_ttl_s=upstream.cache.ttl_s,
            cache_shared=upstream.cache.shared,
            tolerant_args=upstream.tolerant_args,
            read_only=upstream.read_only,
            # Made here from the method of an operation, or declared by code of this process.
            hints_hold=upstream.kind in ("openapi", "python"),
            task_s=settings.tasks.longest_s if upstream.kind in ("command", "url") else 0.0,
        )
        for upstream in settings.upstreams
    }


MAX_DETACHED = 50
"""Runs of one actor that go on without a reader, over all processes. A further one waits no longer than with
``on_disconnect: cancel``."""


@dataclass(frozen=True, slots=True)
class GateShares:
    """*chat*: streams; *detached*: those among them that go on without a reader; *calls*: requests of MCP
    and of ``/operations``; *running*: calls without a request."""

    chat: Shares
    detached: Shares
    calls: Shares
    running: Shares

    def __iter__(self) -> Iterator[Shares]:
        """Returns the limits that count their own places; the holder counts calls without a request."""
        return iter((self.chat, self.detached, self.calls))

    async def aclose(self) -> None:
        """Ends the tasks that write to the store. Close before the mark of the process is removed."""
        for shares in (*self, self.running):
            if isinstance(shares, SharedLimits):
                await shares.aclose()


def make_shares(settings: Settings, store: Store, process: Process, measures: StorageMeasures) -> GateShares:
    """Makes the shares. *process* counts those of an actor in *store*, unless no other process can reach it.

    A limit in all protects the memory and the core of a process, so each process counts it for itself. The limit of an
    actor is the operator's, and holds in all processes that share ``storage.url`` (ACCESS-97). Without one, an actor's
    part depends on what is free in the process, and no store is asked.
    """
    engine, mcp = settings.engine, settings.mcp

    def made(kind: str, most: int, per_actor: int | None, linger_s: float = 0.0) -> Shares:
        if per_actor is None or isinstance(store, MemoryStore):
            return CountedShares(kind, most, per_actor)
        return SharedLimits(kind, most, per_actor, store, process, measures.fail, linger_s=linger_s)

    return GateShares(
        made("chat", engine.max_streams, engine.max_streams_per_actor),
        made("detached", engine.max_streams, MAX_DETACHED),
        # One is taken for each request, most of them for milliseconds.
        made("calls", mcp.max_calls, mcp.max_calls_per_actor, LINGER_S),
        made("running", settings.tasks.max_running, settings.tasks.max_running_per_actor),
    )
