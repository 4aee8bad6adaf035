"""Makes the runtime from the settings: the policies of calls, the store of artifacts, plugins and audit."""

import logging
from collections.abc import Callable
from time import monotonic, time
from typing import TYPE_CHECKING

from wicketgate.access.shares import Shares
from wicketgate.config.call_state import CallState
from wicketgate.config.lock_file import pin_policy
from wicketgate.config.plugins import make_plugin_chain
from wicketgate.config.settings import Settings, StorageSettings, TaskSettings
from wicketgate.config.settings.access import access_policy
from wicketgate.config.words_file import words_in_force
from wicketgate.faces.mcp.kept_sessions import McpSessionStore
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.audit import Auditor, Watch
from wicketgate.gateway.kept_calls import CallStore
from wicketgate.gateway.options import CallPolicy, HeapKeeper, RetryPolicy, RuntimeOptions, RuntimePolicies
from wicketgate.gateway.questions import place_of
from wicketgate.gateway.running_calls import RunningLimits
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.login.waiting import NoWaiting, Waiting
from wicketgate.peers import Alone, Marks, Peers
from wicketgate.ports import Approver, ArtifactStore, CallContext, LearnedStore, own_approver
from wicketgate.random_ids import random_id
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory_learned import MemoryLearnedStore
from wicketgate.storage.memory_mcp_sessions import MemoryMcpSessionStore
from wicketgate.storage.memory_store import MemoryArtifactStore
from wicketgate.tokens import TokenCounter

log = logging.getLogger("wicketgate.storage")

if TYPE_CHECKING:
    from wicketgate.storage.redis.client import RedisLink


def make_runtime(
    settings: Settings,
    fleet: MultiplexUpstream,
    tokens: TokenCounter,
    artifacts: ArtifactStore,
    learned: LearnedStore,
    state: CallState,
    *,
    auditor: Auditor | None = None,
    heap: HeapKeeper | None = None,
    peers: Peers | None = None,
    calls: CallStore | None = None,
    watch: Watch | None = None,
    approver: Callable[[CallContext], Approver] = own_approver,
    waiting: Waiting | None = None,
    running: Shares | None = None,
) -> ProxyRuntime:
    """Makes a runtime without connecting anything. The caller closes the stores and *auditor*. Raises ConfigError."""
    return ProxyRuntime(
        fleet,
        RuntimeOptions(
            policies=runtime_policies(settings),
            artifacts=artifacts,
            tokens=tokens,
            plugins=make_plugin_chain(settings.plugins, monotonic),
            auditor=auditor,
            heap=heap,
            now=monotonic,
            learned=learned,
            patient_lessons=settings.storage.fail.learned_words == "open",
            quota=state.quota,
            results=state.results,
            sessions=state.sessions,
            running=running_limits(settings.tasks),
            running_places=running,
            new_id=lambda: random_id()[:16],
            peers=peers or Alone(),
            calls=calls,
            watch=watch,
            approver=approver,
            waiting=waiting or NoWaiting(),
        ),
        cache_stable=settings.mcp.cache_stable,
    )


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


def make_marks(settings: StorageSettings) -> Marks | None:
    """Makes the marks of the processes that share the SQLite file; None without one."""
    if settings.sqlite_file is None:
        return None
    from wicketgate.storage.sqlite_marks import ProcessMarks

    return ProcessMarks(settings.sqlite_file)


def make_peers(settings: Settings, redis: "RedisLink | None", workers: Peers | None) -> Peers:
    """Makes the ways to the other replicas, and to all of their workers, over the Redis that they share; without one,
    *workers* are all that can be reached. Logs a warning if replicas cannot open what each other has sealed."""
    if redis is None:
        return workers or Alone(make_marks(settings.storage))
    if not settings.auth.seal_keys:
        log.warning("replicas do not open tasks and states of questions of each other: set auth.seal_keys")
    from wicketgate.storage.redis.mail import MailPeers

    return MailPeers(redis)


def make_artifact_store(
    settings: StorageSettings, measures: StorageMeasures | None = None, redis: "RedisLink | None" = None
) -> ArtifactStore:
    """Makes the configured store, which counts in *measures*. Raises ConfigError.

    A file is checked now, and opened at its first use.
    """
    if redis is not None:
        from wicketgate.storage.redis.artifacts import RedisArtifactStore

        return RedisArtifactStore(redis, settings.max_bytes, settings.max_age_s, time)
    if settings.sqlite_file is None:
        return MemoryArtifactStore(settings.max_bytes, settings.max_age_s, monotonic)
    from wicketgate.storage.sqlite_store import SQLiteArtifactStore

    return SQLiteArtifactStore(settings.sqlite_file, settings.max_bytes, settings.max_age_s, time, measures)


def make_learned_store(
    settings: StorageSettings, measures: StorageMeasures | None = None, redis: "RedisLink | None" = None
) -> LearnedStore:
    """Makes the configured store of learned words, as ``make_artifact_store`` does. Raises ConfigError."""
    if redis is not None:
        from wicketgate.storage.redis.learned import RedisLearnedStore

        return RedisLearnedStore(redis, time)
    if settings.sqlite_file is None:
        return MemoryLearnedStore(monotonic)
    from wicketgate.storage.sqlite_learned import SQLiteLearnedStore

    return SQLiteLearnedStore(settings.sqlite_file, time, measures)


def make_call_store(
    settings: StorageSettings,
    most_bytes: int,
    measures: StorageMeasures | None = None,
    redis: "RedisLink | None" = None,
) -> CallStore | None:
    """Makes the configured store of long calls, for *most_bytes*; None where nothing outlives the process. Raises
    ConfigError."""
    if redis is not None:
        from wicketgate.storage.redis.calls import RedisCallStore

        return RedisCallStore(redis, most_bytes)
    if settings.sqlite_file is None:
        return None
    from wicketgate.storage.sqlite_calls import SQLiteCallStore

    return SQLiteCallStore(settings.sqlite_file, time, measures, most_bytes)


def make_mcp_session_store(
    settings: StorageSettings, measures: StorageMeasures | None = None, redis: "RedisLink | None" = None
) -> McpSessionStore:
    """Makes the configured store of handshake sessions, as ``make_artifact_store`` does. Raises ConfigError."""
    if redis is not None:
        from wicketgate.storage.redis.mcp_sessions import RedisMcpSessionStore

        return RedisMcpSessionStore(redis)
    if settings.sqlite_file is None:
        return MemoryMcpSessionStore(monotonic)
    from wicketgate.storage.sqlite_mcp_sessions import SQLiteMcpSessionStore

    return SQLiteMcpSessionStore(settings.sqlite_file, time, measures)


def running_limits(settings: TaskSettings) -> RunningLimits:
    return RunningLimits(settings.after_s, settings.max_running, settings.max_running_per_actor, settings.keep_s)


def runtime_policies(settings: Settings) -> RuntimePolicies:
    """Returns the operator's decisions. Reads the lock file of pins and the file of words. Raises ConfigError."""
    local = f"http://localhost:{settings.server.port}"
    return RuntimePolicies(
        calls=call_policies(settings),
        default_call=CallPolicy(settings.engine.tool_timeout_s, task_s=settings.tasks.longest_s),
        access=access_policy(settings.access, settings.access_default),
        pins=pin_policy(settings.pins),
        inferred=frozenset(upstream.name for upstream in settings.upstreams if upstream.namespace == "infer"),
        configured=frozenset(upstream.name for upstream in settings.upstreams),
        per_actor=settings.quota.per_actor,
        per_tool=settings.quota.per_tool,
        words=settings.browse.said(),
        written_words=words_in_force(settings.browse),
        learn=settings.browse.learn,
        always=settings.mcp.always,
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
            retry=RetryPolicy(
                upstream.retry.attempts, upstream.retry.base_s, declared_safe=upstream.retry.declared_safe
            ),
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
