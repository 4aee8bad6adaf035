"""The rows of logins (ACCESS-150 to ACCESS-154).

The data of a row is a line of JSON (owner, end), then the sealed contents.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from wicketgate.login.sealed_rows import MOST_LISTED, Row, RowKind, RowSeal
from wicketgate.storage.claim import claim
from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.store import Conflict, Drop, Full, Kind, Put, Store, StoreUnavailable
from wicketgate.storage.store import Row as StoredRow

log = logging.getLogger("wicketgate.login")

LIFE_S = 400 * 86_400.0
"""The time after its last write when a row without an end is removed: no row stays in a store forever."""
_LEASE = Kind("login_lease")
_TRIES = 3


class LoginRows:
    """Implements SealedRows. *now* is the time of day in seconds."""

    def __init__(self, store: Store, seal: RowSeal, now: Callable[[], float]) -> None:
        self.seal = seal
        self._store = store
        self._now = now
        self._unavailable = False
        self._reported = False

    async def read(self, kind: RowKind, key: str) -> Row | None:
        with self._logged():
            found = await self._store.get(_kind(kind), key)
        return None if found is None else self._opened(kind, found)

    async def write(self, row: Row, *, most_of_owner: int | None = None) -> int:
        if await self._write(row, most_of_owner):
            return row.version
        for _ in range(_TRIES if row.version == 1 else 0):
            with self._logged():
                former = await self._store.get(_kind(row.kind), row.key)
            if former is None or self._opened(row.kind, former) is not None:
                return 0
            later = replace(row, version=former.version + 1)
            if await self._write(later, None):
                return later.version
        return 0

    async def _write(self, row: Row, most_of_owner: int | None) -> bool:
        kind = _kind(row.kind, most_of_owner if row.version == 1 else None)
        data = packed([row.owner, row.expires_at]) + b"\n" + self.seal.seal(row)
        life_s = LIFE_S if row.expires_at is None else row.expires_at - self._now()
        op: Put | Drop = Drop(kind, row.key, expect=row.version - 1)
        if life_s > 0:
            op = Put(kind, row.key, data, hashed(row.owner), expect=row.version - 1, life_s=life_s)
        with self._logged():
            try:
                await self._store.step([op], durable=True)
            except (Conflict, Full):
                return False
        return True

    async def delete(self, kind: RowKind, key: str) -> bool:
        with self._logged():
            (removed,) = await self._store.step([Drop(_kind(kind), key)], durable=True)
        return bool(removed)

    async def of_owner(self, kind: RowKind, owner: str | None) -> Sequence[Row]:
        with self._logged():
            found = await self._store.of_owner(_kind(kind), None if owner is None else hashed(owner), MOST_LISTED)
        opened = (self._opened(kind, each) for each in found)
        return [row for row in opened if row is not None]

    async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
        with self._logged():
            return await claim(self._store, _LEASE, f"{kind}.{key}", holder.encode(), for_s)

    async def release(self, kind: RowKind, key: str, holder: str) -> None:
        with self._logged(), suppress(Conflict):
            row = await self._store.get(_LEASE, f"{kind}.{key}")
            if row is not None and row.data == holder.encode():
                await self._store.step([Drop(_LEASE, f"{kind}.{key}", expect=row.version)])

    def _opened(self, kind: RowKind, stored: StoredRow) -> Row | None:
        """Returns None for a row that is damaged, or that no key opens."""

        def read() -> tuple[Row, bytes]:
            head, _, data = stored.data.partition(b"\n")
            owner, expires_at = unpacked(head)
            if not (isinstance(owner, str) and isinstance(expires_at, float | int | None)):
                raise TypeError
            return Row(kind, stored.key, owner, {}, stored.version, expires_at), data

        found = sound(f"login_{kind}", stored.key, read)
        opened = None if found is None else self.seal.open(*found)
        if opened is None and found is not None and not self._reported:
            self._reported = True
            log.error(
                "a login in the store cannot be opened with auth.seal_keys, so it counts as removed, and its owner must"
                " connect again. To restore it, append the key that sealed it to auth.seal_keys (logged once)"
            )
        return opened

    @contextmanager
    def _logged(self) -> Iterator[None]:
        """Logs an outage once, further failures of it for those who look closely."""
        try:
            yield
        except StoreUnavailable as error:
            level, self._unavailable = logging.DEBUG if self._unavailable else logging.ERROR, True
            log.log(level, "logins can neither be read nor kept at the moment: %s", error)
            raise
        self._unavailable = False


def _kind(kind: RowKind, most_of_owner: int | None = None) -> Kind:
    return Kind(f"login_{kind}", owner_rows=most_of_owner or 0, listed=True)
