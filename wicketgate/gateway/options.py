"""The settings and parts of a runtime, each with a default that works: policies, stores, the meter.

Tokens are estimates for the meter, four characters each, cheap enough for every call. Texts that have to fit a budget
(cards, envelopes, the context) are counted exactly where they come near it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Protocol

from wicketgate.access.flow import FlowRules
from wicketgate.access.policy import AccessPolicy
from wicketgate.access.shares import Shares
from wicketgate.call_state import FlowStore, QuotaStore, SessionStore
from wicketgate.catalog.pins import PinPolicy
from wicketgate.fleet.member import loop_time
from wicketgate.gateway.audit import Auditor, Watch
from wicketgate.gateway.call_policy import CallPolicy
from wicketgate.gateway.kept_calls import CallStore
from wicketgate.gateway.learning import LearnScope
from wicketgate.gateway.plugin_chain import PluginChain
from wicketgate.gateway.questions import PageRules
from wicketgate.gateway.running_calls import RunningLimits
from wicketgate.gateway.spending import Spending
from wicketgate.login.login_flow import NoWaiting, Waiting
from wicketgate.ports import Approver, ArtifactStore, CallContext, LearnedStore, own_approver
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.learned_words import StoredLearnedWords
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.seen_cards import MemorySessionStore
from wicketgate.tokens import TokenCounter, shipped_token_counter


@dataclass(frozen=True, slots=True)
class TokenCost:
    """*shown*: tokens given to the model. *naive*: tokens that it would have been given without a gateway: for a browse
    name, description and parameters of all tools that the caller may use, for a call the raw result. Both are
    estimates, by four characters a token where nothing was counted (EXEC-58). *price* is the cost of a call in money
    (``gateway.spending``)."""

    shown: int = 0
    naive: int = 0
    price: int = 0

    def __add__(self, other: "TokenCost") -> "TokenCost":
        return TokenCost(self.shown + other.shown, self.naive + other.naive, self.price + other.price)


class Meter(Protocol):
    """Counts; must not fail and must not wait."""

    def stream_ended(self, outcome: str) -> None:
        """One chat stream. *outcome* is the finish reason of ``done``, the code of ``error``, or ``disconnected``."""
        ...

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        """One call of a meta-tool. *outcome* is ``ok``, ``partial``, ``error`` (the tool's own), or an error code."""
        ...


class NoMeter:
    def stream_ended(self, outcome: str) -> None:
        pass

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        pass


class ExposureMode(StrEnum):
    """The way to the tools (FACE-17): a stripped list of all, or browsing."""

    TRANSPARENT = "transparent"
    GATEWAY = "gateway"


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
    *inferred* names the upstreams whose tools' names decide their namespaces (CARD-8), *configured* all upstreams, also
    disabled ones: their names are no other's namespace. *per_actor* and *per_tool* limit the executions within a minute
    (``quota.Quota``), *gate_quotas* those through a virtual gate, as pairs of the same. *words* find tools besides
    their definitions: texts by pattern, as rules match or with the hash of an id: ``{"github:list_commits": ["history",
    "git log"]}``. *written_words* are those of a model, by digest of the item, for tools that *words* say nothing of.
    *learn* says whose runs teach which words lead to which tool (BROWSE-42). *own_pages* are the places (``place_of``)
    of our own pages, and *distant* the upstreams on other machines. *always* are patterns of the tools that a face
    lists next to its own. *flow* has the labels for rules that ask where a destination comes from.
    """

    calls: Mapping[str, CallPolicy] = field(default_factory=dict)
    default_call: CallPolicy = field(default_factory=CallPolicy)
    access: AccessPolicy = field(default_factory=AccessPolicy)
    pins: PinPolicy = field(default_factory=PinPolicy)
    inferred: Collection[str] = ()
    configured: Collection[str] = ()
    per_actor: int | None = None
    per_tool: Mapping[str, int] = field(default_factory=dict)
    gate_quotas: Mapping[str, tuple[int | None, Mapping[str, int]]] = field(default_factory=dict)
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    written_words: Mapping[str, str] = field(default_factory=dict)
    learn: LearnScope = "off"
    own_pages: Collection[str] = ()
    distant: Collection[str] = ()
    always: Sequence[str] = ()
    flow: FlowRules = field(default_factory=FlowRules)

    def pages_for(self, server: str) -> PageRules:
        return PageRules(self.own_pages, loopback=server not in self.distant)

    def call_policy(self, server: str) -> CallPolicy:
        return self.calls.get(server, self.default_call)


def _counted() -> Callable[[], str]:
    """Ids that are unique for one runtime."""
    numbers = count(1)
    return lambda: str(next(numbers))


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Everything that a runtime needs besides its upstreams.

    *artifacts* and *learned* default to stores in memory, as does *sessions*, which keeps the cards that were sent in
    cache-stable order (BROWSE-20 to BROWSE-28). *now* is a clock in seconds, for quotas, kept results and audit
    records. *quota* counts executions; None is a store in memory by that clock.
    *patient_lessons*: lessons wait for a store that is out of order. *running* bounds the calls that outlive their
    requests, *running_places* counts their places (None: in this process), and *new_id* gives each an id. *calls* shows
    such calls to other processes (None: there are none).
    *watch* follows all operations. *approver* gives that of a call which needs the owner's approval.
    *waiting* knows what has become of a login that was offered to a caller. *flows* keeps what sessions have read
    (None: in memory). *spending* prices and counts calls.
    """

    policies: RuntimePolicies = field(default_factory=RuntimePolicies)
    artifacts: ArtifactStore = field(default_factory=lambda: StoredArtifacts(MemoryStore()))
    sessions: SessionStore = field(default_factory=MemorySessionStore)
    tokens: TokenCounter = field(default_factory=shipped_token_counter)
    plugins: PluginChain | None = None
    auditor: Auditor | None = None
    heap: HeapKeeper | None = None
    now: Callable[[], float] = loop_time
    learned: LearnedStore = field(default_factory=lambda: StoredLearnedWords(MemoryStore(), shared=False))
    patient_lessons: bool = True
    quota: QuotaStore | None = None
    running: RunningLimits = field(default_factory=RunningLimits)
    running_places: Shares | None = None
    new_id: Callable[[], str] = field(default_factory=_counted)
    calls: CallStore | None = None
    watch: Watch | None = None
    approver: Callable[[CallContext], Approver] = own_approver
    waiting: Waiting = field(default_factory=NoWaiting)
    flows: FlowStore | None = None
    spending: Spending | None = None
