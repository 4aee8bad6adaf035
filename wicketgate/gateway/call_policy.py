"""What the operator says about the calls of an upstream: deadlines, retries, cached tools, and which tools write.

A call is made again only if that cannot take effect twice (EXEC-15); its caller learns whether it may try again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.errors import (
    GatewayError,
    UpstreamLost,
    UpstreamResting,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnclear,
)


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

    def may_retry(self, error: GatewayError, failed: int, *, repeatable: bool) -> bool:
        """True if the gateway makes the call again, which must not do a thing twice (EXEC-15)."""
        if failed >= self.attempts or isinstance(error, UpstreamResting):
            return False
        if isinstance(error, UpstreamUnavailable):
            return True  # the call never left
        # A result with isError is an answer, and a refusal is too; neither comes here as one of these.
        return isinstance(error, UpstreamTimeout | UpstreamLost) and self.declared_safe and repeatable


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """Tool names here are the upstream's own, and may be patterns with ``*``; the first that fits decides.

    *cache_shared* is the operator's word that no result of the cached tools depends on the actor who calls. *read_only*
    names tools that the operator says to write nothing; *hints_hold*: the upstream's hints come from us, not from a
    server. *task_s* is the deadline of a call that the server goes on with as a task.
    """

    timeout_s: float = 30.0
    tool_timeouts_s: Mapping[str, float] = field(default_factory=dict)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    cached_tools: Sequence[str] = ()
    cache_ttl_s: float = 60.0
    cache_shared: bool = False
    tolerant_args: bool = False
    read_only: Sequence[str] = ()
    hints_hold: bool = False
    task_s: float = 3_600.0

    def deadline_s(self, tool: str) -> float:
        """For one attempt."""
        if not self.tool_timeouts_s:
            return self.timeout_s
        return next(
            (timeout for pattern, timeout in self.tool_timeouts_s.items() if fnmatchcase(tool, pattern)),
            self.timeout_s,
        )

    def longest_s(self) -> float:
        """The longest that a call can take with all its retries and waits, unless it becomes a task."""
        attempt = max([self.timeout_s, *self.tool_timeouts_s.values()])
        waits = sum(self.retry.wait_s(failed) for failed in range(1, self.retry.attempts))
        return attempt * self.retry.attempts + waits

    def caches(self, tool: str) -> bool:
        return bool(self.cached_tools) and any(fnmatchcase(tool, pattern) for pattern in self.cached_tools)

    def may_write(self, item: SelectableItem, *, redirected: bool = False) -> bool:
        """True unless it is known that a call of *item* changes nothing (ACCESS-63). A server's own hint never says
        so. *redirected*: a plugin sends the call to another tool than the one whose hints *item* has."""
        if self.read_only and any(fnmatchcase(item.upstream_name, pattern) for pattern in self.read_only):
            return False
        return item.side_effects or redirected or not self.hints_hold

    def is_repeatable(self, item: SelectableItem, *, redirected: bool = False) -> bool:
        """True if a second call of *item* cannot do a thing twice. ``RetryPolicy.may_retry`` and ``with_fate`` both
        depend on it."""
        if item.kind == "skill" or not self.may_write(item, redirected=redirected):
            return True
        idempotent = not item.side_effects and item.metadata.get("idempotentHint") is True
        return self.retry.declared_safe and idempotent and not redirected


def with_fate(error: GatewayError, *, repeatable: bool) -> GatewayError:
    """Returns *error*, the end of a call, with what its caller may do (EXEC-70). A call that was sent and got no clear
    answer may be made again only if it is *repeatable*; otherwise the caller learns that its effect is not known."""
    if isinstance(error, UpstreamTimeout | UpstreamLost | UpstreamUnclear) and not repeatable:
        error.retryable = False
        error.message = f"{error.message.removesuffix('.')}; whether it took effect is not known."
    elif isinstance(error, UpstreamLost):
        error.retryable = True
    return error
