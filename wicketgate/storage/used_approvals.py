"""Used approvals: rows of the store, each put once (ACCESS-18, ACCESS-86, ACCESS-87)."""

import logging
import secrets
from collections.abc import Callable

from wicketgate.errors import NotAdmitted
from wicketgate.storage.claim import claim
from wicketgate.storage.encoding import hashed
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.store import Full, Kind, Store, StoreUnavailable

log = logging.getLogger("wicketgate.approvals")

SKEW_S = 300.0
"""The most by which the clocks of processes may differ: a key stays this long after its end."""
MOST_KEPT = 100_000


class UsedApprovals:
    """Implements OnceStore. *now* is the time of day in seconds.

    ``add`` raises NotAdmitted while *store* is unavailable or holds *most* keys. In the first case the key may have
    been added all the same. A key that this process has added is refused even if the store has lost it (EXEC-43).
    """

    def __init__(
        self, store: Store, now: Callable[[], float], measures: StorageMeasures, *, most: int = MOST_KEPT
    ) -> None:
        self._store = store
        self._now = now
        self._fail = measures.fail
        self._kind = Kind("used_approval", most_rows=most)
        self._own: dict[str, float] = {}

    async def add(self, key: str, until: float) -> bool:
        now = self._now()
        while self._own and next(iter(self._own.values())) <= now:
            del self._own[next(iter(self._own))]
        if key in self._own:
            return False
        life_s = max(until - now, 0.0) + SKEW_S
        try:
            added = await claim(self._store, self._kind, hashed(key), secrets.token_bytes(8), life_s)
        except (StoreUnavailable, Full) as error:
            why = f"{self._kind.most_rows} were used in a short time" if isinstance(error, Full) else error
            log.log(without_level(self._fail, "approvals"), "%s, so nothing that is approved can run", why)
            raise NotAdmitted("Approvals cannot be kept at the moment, so nothing that needs one can run.") from None
        self._fail.answered("approvals")
        if added:
            self._own[key] = until + SKEW_S
        return added
