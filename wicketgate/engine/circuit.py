"""When a provider is passed over: one that is down must not cost each request its connect timeout."""

from collections.abc import Callable

_FAILURES = 3
_REST_S = 10.0
_LONGEST_REST_S = 60.0


class Circuit:
    """Opens at the third failure in a row, for ten seconds, then twice as long each time; one call at a time tries.

    It never forbids: it tells who should be asked first. *now* is in seconds, from any origin.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._closed_from = 0.0

    def admits(self) -> bool:
        """Whether the provider is worth asking. Who is told so after a rest is the one who tries."""
        if self._now() < self._closed_from:
            return False
        if self._failures >= _FAILURES:
            self._rest()
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._closed_from = 0.0

    def failed(self, retry_after_s: float | None = None) -> None:
        """*retry_after_s* is the provider's own word, and is kept at once."""
        self._failures += 1
        if self._failures >= _FAILURES:
            self._rest()
        if retry_after_s is not None:
            self._closed_from = max(self._closed_from, self._now() + min(retry_after_s, _LONGEST_REST_S))

    def _rest(self) -> None:
        doubled = min(self._failures - _FAILURES, 8)
        self._closed_from = self._now() + min(_REST_S * 2**doubled, _LONGEST_REST_S)
