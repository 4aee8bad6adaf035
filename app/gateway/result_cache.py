"""Results of tools that the operator named, given again while they are fresh (gateway 132).

Only answers of tools that are declared read-only are kept, never errors, and only as long as the catalog is the same.
The upstream's own result is kept, not the envelope: its artifacts are stored anew for whoever asks.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from app.catalog.catalog import Catalog
from app.catalog.selectable import SelectableItem
from app.gateway.digest import arguments_digest

Key = tuple[str, str, str, str, str]


class ResultCache:
    """*max_results* bounds the number; what is too bulky to be kept is the caller's to decide."""

    def __init__(self, now: Callable[[], float], *, max_results: int = 1_000) -> None:
        self._now = now
        self._max_results = max_results
        self._results: OrderedDict[Key, tuple[float, Mapping[str, Any]]] = OrderedDict()

    def key(self, catalog: Catalog, item: SelectableItem, arguments: Mapping[str, Any]) -> Key | None:
        """None for a tool that is not declared read-only: its result is never kept."""
        if item.side_effects:
            return None
        # A plugin may send a call elsewhere, each caller's to another place.
        return (catalog.version, item.id, item.server, item.upstream_name, arguments_digest(arguments))

    def clear(self) -> None:
        """Called at each refresh: tools that announce a change may also answer differently."""
        self._results.clear()

    def get(self, key: Key) -> Mapping[str, Any] | None:
        kept = self._results.get(key)
        if kept is None:
            return None
        fresh_until, result = kept
        if self._now() >= fresh_until:
            del self._results[key]
            return None
        return result

    def put(self, key: Key, result: Mapping[str, Any], ttl_s: float) -> None:
        if result.get("isError"):
            return
        self._results[key] = (self._now() + ttl_s, result)
        self._results.move_to_end(key)
        while len(self._results) > self._max_results:
            self._results.popitem(last=False)
