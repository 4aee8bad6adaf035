"""Makes the runtime from the settings: the fleet of upstreams, the store of artifacts, and the rules of a call."""

from time import monotonic, time

from wicketgate.catalog.tokens import TokenCounter
from wicketgate.config.arrangement import call_policies, inferred_names
from wicketgate.config.lock_file import pin_policy
from wicketgate.config.plugin_loader import make_plugin_chain
from wicketgate.config.settings import Settings, StorageSettings
from wicketgate.config.settings.access import access_policy
from wicketgate.fleet.call_policy import CallPolicy
from wicketgate.fleet.multiplex import MultiplexUpstream
from wicketgate.gateway.audit import Auditor
from wicketgate.gateway.catalog_keeper import HeapKeeper
from wicketgate.gateway.quota import Quota
from wicketgate.gateway.result_cache import ResultCache
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import ArtifactStore
from wicketgate.storage.memory_store import MemoryArtifactStore
from wicketgate.storage.session_store import MemorySessionStore
from wicketgate.storage.sqlite_store import SQLiteArtifactStore


def make_runtime(
    settings: Settings,
    fleet: MultiplexUpstream,
    tokens: TokenCounter,
    artifacts: ArtifactStore,
    *,
    auditor: Auditor | None = None,
    heap: HeapKeeper | None = None,
) -> ProxyRuntime:
    """Nothing is connected. The caller closes *artifacts* and *auditor*. Raises ConfigError."""
    return ProxyRuntime(
        fleet,
        tokens,
        artifacts,
        MemorySessionStore(now=monotonic) if settings.mcp.cache_stable else None,
        inferred=inferred_names(settings),
        policies=call_policies(settings),
        default_policy=CallPolicy(settings.engine.tool_timeout_s),
        cache=ResultCache(monotonic),
        heap=heap,
        plugins=make_plugin_chain(settings.plugins, monotonic),
        pins=pin_policy(settings.pins),
        auditor=auditor,
        now=monotonic,
        access=access_policy(settings.access),
        quota=Quota(monotonic, per_actor=settings.quota.per_actor, per_tool=settings.quota.per_tool),
    )


def make_artifact_store(settings: StorageSettings) -> ArtifactStore:
    """Checks the store that the configuration asks for; it is opened at its first use. Raises ConfigError."""
    if settings.sqlite_file is None:
        return MemoryArtifactStore(settings.max_bytes, settings.max_age_s, monotonic)
    return SQLiteArtifactStore(settings.sqlite_file, settings.max_bytes, settings.max_age_s, time)
