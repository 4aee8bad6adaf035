"""The policy of calls to one upstream: deadlines, retries, caching and tolerance, as its operator configured them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.errors import GatewayError, UpstreamLost, UpstreamResting, UpstreamTimeout, UpstreamUnavailable


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """*attempts* counts the first one too. The n-th wait is ``base_s * 2 ** (n - 1)``, never above *max_s*.

    *declared_safe* is the operator's word that the hints of this server can be believed: then tools that it declares
    read-only and idempotent are also tried again when an earlier attempt may have been carried out.
    """

    attempts: int = 2
    base_s: float = 0.5
    max_s: float = 8.0
    declared_safe: bool = False

    def wait_s(self, failed: int) -> float:
        """Seconds to wait after *failed* attempts."""
        return min(self.base_s * 2.0 ** (failed - 1), self.max_s)

    def may_retry(self, error: GatewayError, item: SelectableItem, failed: int) -> bool:
        """True if the call may be made again: only where that cannot do a thing twice (gateway 130)."""
        if failed >= self.attempts or isinstance(error, UpstreamResting):
            return False
        if isinstance(error, UpstreamUnavailable):
            return True  # the call never left
        # A result with isError is an answer, and a refusal is too; neither comes here as one of these.
        return isinstance(error, UpstreamTimeout | UpstreamLost) and self.declared_safe and _declared_idempotent(item)


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """Tool names here are the upstream's own, and may be patterns with ``*``; the first that fits decides.

    *cache_shared* is the operator's word that no result of the cached tools depends on the actor who calls.
    """

    timeout_s: float = 30.0
    tool_timeouts_s: Mapping[str, float] = field(default_factory=dict)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    cached_tools: Sequence[str] = ()
    cache_ttl_s: float = 60.0
    cache_shared: bool = False
    tolerant_args: bool = False

    def deadline_s(self, tool: str) -> float:
        """For one attempt."""
        return next(
            (timeout for pattern, timeout in self.tool_timeouts_s.items() if fnmatchcase(tool, pattern)),
            self.timeout_s,
        )

    def longest_s(self) -> float:
        """The longest that a call can take with all its retries and waits."""
        attempt = max([self.timeout_s, *self.tool_timeouts_s.values()])
        waits = sum(self.retry.wait_s(failed) for failed in range(1, self.retry.attempts))
        return attempt * self.retry.attempts + waits

    def caches(self, tool: str) -> bool:
        return any(fnmatchcase(tool, pattern) for pattern in self.cached_tools)


def _declared_idempotent(item: SelectableItem) -> bool:
    return not item.side_effects and item.metadata.get("idempotentHint") is True
