"""The settings and parts of a runtime, each with a default that works."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.pins import PinPolicy
from wicketgate.catalog.tokens import TokenCounter
from wicketgate.fleet.call_policy import CallPolicy
from wicketgate.gateway.audit import Auditor
from wicketgate.gateway.plugin_chain import PluginChain
from wicketgate.ports import ArtifactStore, SessionStore
from wicketgate.storage.memory_store import MemoryArtifactStore
from wicketgate.token_table import shipped_token_counter


class ExposureMode(StrEnum):
    """How clients find the tools (S1 "Runtime modes"): in a stripped list of all, or by browsing."""

    TRANSPARENT = "transparent"
    GATEWAY = "gateway"


def loop_time() -> float:
    """Seconds on the clock of the running event loop."""
    return asyncio.get_running_loop().time()


class HeapKeeper(Protocol):
    def refreshing(self) -> AbstractContextManager[None]:
        """Open while a refresh is under way."""
        ...

    def settle(self) -> None:
        """A large catalog has been replaced."""
        ...


@dataclass(frozen=True, slots=True)
class RuntimePolicies:
    """The operator's decisions, exchanged as one value while the runtime runs.

    *calls* gives by upstream name how its calls are made, *default_call* how those of the other upstreams are made.
    *inferred* names the upstreams whose namespaces the S1 table decides. *per_actor* and *per_tool* limit the
    executions within a minute (``quota.py``).
    """

    calls: Mapping[str, CallPolicy] = field(default_factory=dict)
    default_call: CallPolicy = field(default_factory=CallPolicy)
    access: AccessPolicy = field(default_factory=AccessPolicy)
    pins: PinPolicy = field(default_factory=PinPolicy)
    inferred: Collection[str] = ()
    per_actor: int | None = None
    per_tool: Mapping[str, int] = field(default_factory=dict)

    def call_policy(self, server: str) -> CallPolicy:
        return self.calls.get(server, self.default_call)


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Everything that a runtime needs besides its upstreams.

    *artifacts* defaults to a store in memory. *sessions* turns cache-stable browsing on (S0 §5). *now* is a clock in
    seconds, for quotas, kept results and audit records.
    """

    policies: RuntimePolicies = field(default_factory=RuntimePolicies)
    artifacts: ArtifactStore = field(default_factory=MemoryArtifactStore)
    sessions: SessionStore | None = None
    tokens: TokenCounter = field(default_factory=shipped_token_counter)
    plugins: PluginChain | None = None
    auditor: Auditor | None = None
    heap: HeapKeeper | None = None
    now: Callable[[], float] = loop_time
