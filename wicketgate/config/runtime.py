"""Makes the runtime from the settings: the policies of calls, the store of artifacts, plugins and audit."""

from time import monotonic, time

from wicketgate.config.lock_file import pin_policy
from wicketgate.config.plugins import make_plugin_chain
from wicketgate.config.settings import Settings, StorageSettings
from wicketgate.config.settings.access import access_policy
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.audit import Auditor
from wicketgate.gateway.options import CallPolicy, HeapKeeper, RetryPolicy, RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import ArtifactStore
from wicketgate.storage.memory_store import MemoryArtifactStore, MemorySessionStore
from wicketgate.storage.sqlite_store import SQLiteArtifactStore
from wicketgate.tokens import TokenCounter


def make_runtime(
    settings: Settings,
    fleet: MultiplexUpstream,
    tokens: TokenCounter,
    artifacts: ArtifactStore,
    *,
    auditor: Auditor | None = None,
    heap: HeapKeeper | None = None,
) -> ProxyRuntime:
    """Makes a runtime without connecting anything. The caller closes *artifacts* and *auditor*. Raises ConfigError."""
    return ProxyRuntime(
        fleet,
        RuntimeOptions(
            policies=runtime_policies(settings),
            artifacts=artifacts,
            sessions=MemorySessionStore() if settings.mcp.cache_stable else None,
            tokens=tokens,
            plugins=make_plugin_chain(settings.plugins, monotonic),
            auditor=auditor,
            heap=heap,
            now=monotonic,
        ),
    )


def make_artifact_store(settings: StorageSettings) -> ArtifactStore:
    """Makes the configured store. A file is checked now, and opened at its first use. Raises ConfigError."""
    if settings.sqlite_file is None:
        return MemoryArtifactStore(settings.max_bytes, settings.max_age_s, monotonic)
    return SQLiteArtifactStore(settings.sqlite_file, settings.max_bytes, settings.max_age_s, time)


def runtime_policies(settings: Settings) -> RuntimePolicies:
    """Returns the operator's decisions. Reads the lock file of pins. Raises ConfigError."""
    return RuntimePolicies(
        calls=call_policies(settings),
        default_call=CallPolicy(settings.engine.tool_timeout_s),
        access=access_policy(settings.access),
        pins=pin_policy(settings.pins),
        inferred=frozenset(upstream.name for upstream in settings.upstreams if upstream.namespace == "infer"),
        per_actor=settings.quota.per_actor,
        per_tool=settings.quota.per_tool,
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
        )
        for upstream in settings.upstreams
    }
