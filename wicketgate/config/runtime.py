"""Makes the runtime from the settings: the fleet of upstreams, the store of artifacts, and the rules of a call."""

from time import monotonic, time

from wicketgate.catalog.tokens import TokenCounter
from wicketgate.config.arrangement import runtime_policies
from wicketgate.config.plugin_loader import make_plugin_chain
from wicketgate.config.settings import Settings, StorageSettings
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.audit import Auditor
from wicketgate.gateway.options import HeapKeeper, RuntimeOptions
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
    """Checks the store that the configuration asks for; it is opened at its first use. Raises ConfigError."""
    if settings.sqlite_file is None:
        return MemoryArtifactStore(settings.max_bytes, settings.max_age_s, monotonic)
    return SQLiteArtifactStore(settings.sqlite_file, settings.max_bytes, settings.max_age_s, time)
