"""Results of tools that the operator named, given again while they are fresh (gateway 132).

Only answers of tools that are declared read-only are kept, never errors, and only as long as the catalog is the same.
The upstream's own result is kept, not the envelope: its artifacts are stored anew for each caller. A result belongs to
the actor who got it, unless the operator shares the results of an upstream. Permissions are no part of the key, because
they are checked at each call before a kept result is looked for, and no upstream sees them.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.gateway.digest import arguments_digest
from wicketgate.ports import CallContext

Key = tuple[str | None, str, str, str, str, str, str]


class ResultCache:
    """*max_results* bounds the number. The caller decides which results are too bulky to be kept."""

    def __init__(self, now: Callable[[], float], *, max_results: int = 1_000) -> None:
        self._now = now
        self._max_results = max_results
        self._results: OrderedDict[Key, tuple[float, Mapping[str, Any]]] = OrderedDict()

    def key(
        self,
        catalog: Catalog,
        item: SelectableItem,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        shared: bool = False,
    ) -> Key | None:
        """None for a call whose result is never kept: the tool is not declared read-only, or the call carries the
        answers of a person. *shared*: one actor's result serves all actors."""
        if item.side_effects or context.answers is not None:
            return None
        return (
            None if shared else context.identity.actor,
            # A server may answer a client that it cannot ask in its own way.
            context.caller.answers,
            catalog.version,
            item.id,
            # A plugin may send a call elsewhere, each caller's to another place.
            item.server,
            item.upstream_name,
            arguments_digest(arguments),
        )

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
