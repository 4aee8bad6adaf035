"""Wrong answers to the question who one is, counted by where they come from (ACCESS-188, ACCESS-226)."""

from collections import Counter
from collections.abc import Callable

from wicketgate.net.addresses import network_of

_WINDOW_S = 60.0
_OF_SOURCE = 10
_IN_ALL = 300
_MOST_SOURCES = 10_000


class LoginTries:
    """Wrong keys of late, and answers of issuers that did not hold, by the networks that they came from. *clock* is
    monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._by_source: Counter[str] = Counter()

    def may(self, source: str) -> bool:
        """Returns whether the address *source* may try now. One that has not been wrong may at any time: strangers keep
        nobody else out."""
        if self._clock() - self._since >= _WINDOW_S:
            self._since = self._clock()
            self._by_source.clear()
        wrong = self._by_source[network_of(source)]
        return wrong < (_OF_SOURCE if self._by_source.total() < _IN_ALL else 1)

    def wrong(self, source: str) -> None:
        network = network_of(source)
        if network in self._by_source or len(self._by_source) < _MOST_SOURCES:
            self._by_source[network] += 1
