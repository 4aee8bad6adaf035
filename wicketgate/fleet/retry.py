"""Whether a failed call may be made again: only where that cannot do a thing twice (DESIGN §3, gateway 130)."""

from dataclasses import dataclass

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
        """How long to wait after *failed* attempts."""
        return min(self.base_s * 2.0 ** (failed - 1), self.max_s)

    def may_retry(self, error: GatewayError, item: SelectableItem, failed: int) -> bool:
        if failed >= self.attempts or isinstance(error, UpstreamResting):
            return False
        if isinstance(error, UpstreamUnavailable):
            return True  # the call never left
        # A result with isError is an answer, and a refusal is too; neither comes here as one of these.
        return isinstance(error, UpstreamTimeout | UpstreamLost) and self.declared_safe and _declared_idempotent(item)


def _declared_idempotent(item: SelectableItem) -> bool:
    return not item.side_effects and item.metadata.get("idempotentHint") is True
