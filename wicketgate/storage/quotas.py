"""Executions counted over all processes that share a store (ACCESS-93), and by each process alone while that is
unavailable (ACCESS-94).

A window is approximate: ``Store.count`` keeps two buckets of a minute, and the events of the one before count as if
they had come evenly up to the last of them. So no actor ever gets more than its limit in one bucket.
"""

import logging
from collections.abc import Sequence

from wicketgate.call_state import WINDOW_S, Full, Window
from wicketgate.errors import NotAdmitted
from wicketgate.storage.encoding import hashed
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Store, StoreUnavailable
from wicketgate.storage.store import Window as CountedWindow

log = logging.getLogger("wicketgate.quota")

_LATE_S = 0.001
"""Added to each wait, so that rounding does not refuse a caller who comes back exactly then."""


class StoredQuotas:
    """Implements QuotaStore over *store*. *modes* decide over ``quotas`` while it is unavailable.

    What the store admits is counted in this process too, so that an outage does not begin with an empty window. What
    is counted during an outage is not added to the store afterwards.
    """

    def __init__(self, store: Store, modes: FailModes | None = None) -> None:
        self._store = store
        self._modes = modes or FailModes()
        # A store in memory is never unavailable.
        self._own = store if isinstance(store, MemoryStore) else MemoryStore()
        self._unavailable = False

    async def take(self, actor: str, windows: Sequence[Window], *, count: bool = True) -> Full | None:
        key = hashed(actor)
        asked = [CountedWindow(f"quota.{key}.{hashed(each.name)}", each.most, WINDOW_S) for each in windows]
        try:
            refused = await self._store.count(asked, peek=not count)
        except StoreUnavailable as error:
            refused = await self._alone(error).count(asked, peek=not count)
        else:
            self._modes.answered("quotas")
            self._unavailable = False
            if self._own is not self._store and count and refused is None:
                await self._own.count(asked)
        return None if refused is None else Full(windows[refused.index], refused.retry_after_s + _LATE_S)

    def _alone(self, error: StoreUnavailable) -> Store:
        """Returns what counts in place of the store. Raises NotAdmitted."""
        is_open = self._modes.without("quotas") == "open"
        if not self._unavailable:
            outcome = "each process counts alone" if is_open else "nothing that has a quota runs"
            log.error("executions cannot be counted for all processes: %s; %s", error, outcome)
        self._unavailable = True
        if not is_open:
            raise NotAdmitted("Quotas cannot be counted at the moment, so nothing that has one can run.")
        return self._own
