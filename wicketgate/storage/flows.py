"""The memories of sessions for flow rules, as rows of the store (ACCESS-262)."""

import logging
import time
from collections.abc import Callable

import msgspec

from wicketgate.access.flow import RENEWED, SessionMemory
from wicketgate.ports import owner_of
from wicketgate.storage.core import sound
from wicketgate.storage.store import Conflict, Full, Kind, Put, Row, Store, StoreUnavailable

log = logging.getLogger("wicketgate.flow")

KIND = Kind("flow", most_bytes=256 * 2**20, owner_bytes=64 * 2**20)
_TRIES = 20


class StoredFlows:
    """Implements FlowStore. *now* is the time of day in seconds.

    A damaged row is logged and kept until it expires. Until then the memory of that session is unavailable.
    """

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now

    async def read(self, session: str) -> tuple[SessionMemory | None, float]:
        try:
            row = await self._store.get(KIND, session)
        except StoreUnavailable as error:
            log.warning("what sessions have read cannot be looked up: %s", error)
            return None, 0.0
        return _opened(row), _left_s(row)

    async def change(self, session: str, life_s: float | None, change: Callable[[SessionMemory, float], bool]) -> bool:
        try:
            for _ in range(_TRIES):
                row = await self._store.get(KIND, session)
                if row is None and life_s is None:
                    return True
                if (memory := _opened(row)) is None:
                    return False
                if not change(memory, self._now()) and (life_s is None or _left_s(row) > life_s * RENEWED):
                    return True
                version, data = 0 if row is None else row.version, msgspec.msgpack.encode(memory)
                try:
                    await self._store.step([Put(KIND, session, data, owner_of(session), version, life_s)])
                except Conflict:
                    continue
                return True
            log.warning("what a session has read was not kept: other processes write at the same time")
        except (StoreUnavailable, Full) as error:
            log.warning("what a session has read was not kept: %s", error)
        return False


def _left_s(row: Row | None) -> float:
    return 0.0 if row is None else row.life_s or 0.0


def _opened(row: Row | None) -> SessionMemory | None:
    if row is None:
        return SessionMemory()
    return sound(KIND.name, row.key, lambda: msgspec.msgpack.decode(row.data, type=SessionMemory))
