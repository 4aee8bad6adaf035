"""How calls to one upstream are made: deadlines, retries, caching, tolerance, as its operator configured them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from app.gateway.retry import RetryPolicy


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
