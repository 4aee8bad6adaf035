"""Keys that operators made, and configured keys that they suspended, as rows of a ``Store`` (ACCESS-340)."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from wicketgate.access.identity import KEY_PREFIX, HashedKey, Identity, hash_key
from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.store import Drop, Kind, Op, Put, Store

MOST_KEYS = 1_000
_KEY = Kind("key", most_rows=MOST_KEYS, listed=True)


def new_key(key_id: str) -> tuple[str, str]:
    """Returns a new key and its hash."""
    key = f"{KEY_PREFIX}{key_id}_{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


class StoredKeys:
    """*read* is called first. All methods but *among* raise StoreUnavailable. *ops* go into the step of each change,
    which raises Conflict if another process has changed the row since it was read here."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.made: tuple[HashedKey, ...] = ()
        self._suspended: frozenset[tuple[str, str]] = frozenset()
        self._versions: Mapping[str, int] = {}
        self._reading = asyncio.Lock()

    async def read(self) -> None:
        """Reads all rows. A damaged one is logged and counts as none."""
        made, suspended = list[HashedKey](), set[tuple[str, str]]()
        # One after the other, so that an older reading never comes behind a newer one.
        async with self._reading:
            rows = await self._store.of_owner(_KEY, None)
            for row in rows:
                match sound(_KEY.name, row.key, partial(_read, row.data)):
                    case HashedKey() as key:
                        made.append(key)
                    case (str(id), str(digest)):
                        suspended.add((id, digest))
            suspended.update(_pair(key) for key in made if key.suspended)
            self.made, self._suspended = tuple(made), frozenset(suspended)
            self._versions = {row.key: row.version for row in rows}

    def among(self, configured: Sequence[HashedKey]) -> list[HashedKey]:
        """Returns *configured*, suspended where an operator did so, and the other keys that operators made."""
        kept = [replace(key, suspended=True) if _pair(key) in self._suspended else key for key in configured]
        digests = {key.sha256 for key in configured}
        return [*kept, *(key for key in self.made if key.sha256 not in digests)]

    async def put(self, key: HashedKey, ops: Sequence[Op]) -> None:
        """Keeps *key*, in place of what was kept of it. Raises Full if there are ``MOST_KEYS``."""
        identity = key.identity
        whole = [identity.actor, list(identity.permissions), list(identity.roles), key.expires_at]
        await self._write(key, _row_of(key.id), packed([key.id, key.sha256, key.suspended, whole]), ops)

    async def suspend(self, key: HashedKey, ops: Sequence[Op]) -> None:
        """Suspends a configured key until it is dropped here. Raises Full."""
        await self._write(key, _row_of(*_pair(key)), packed([key.id, key.sha256, True, None]), ops)

    async def drop(self, key: HashedKey, ops: Sequence[Op]) -> None:
        """Forgets a key that an operator made, or that a configured one is suspended."""
        row = _row_of(key.id) if any(_pair(key) == _pair(made) for made in self.made) else _row_of(*_pair(key))
        await self._store.step([Drop(_KEY, row, self._versions.get(row, 0)), *ops], durable=True)

    async def _write(self, key: HashedKey, row: str, data: bytes, ops: Sequence[Op]) -> None:
        put = Put(_KEY, row, data, hashed(key.identity.actor), expect=self._versions.get(row, 0))
        await self._store.step([put, *ops], durable=True)


def _pair(key: HashedKey) -> tuple[str, str]:
    return key.id, key.sha256


def _row_of(*parts: str) -> str:
    return hashed(" ".join(parts))


def _read(data: bytes) -> HashedKey | tuple[str, str]:
    """Returns a key, or which configured one is suspended. Raises ValueError and TypeError for damaged *data*."""
    id, digest, suspended, whole = unpacked(data)
    if not (isinstance(id, str) and isinstance(digest, str) and type(suspended) is bool):
        raise TypeError
    if whole is None:
        return id, digest
    actor, permissions, roles, expires_at = whole
    if not all(isinstance(each, str) for each in (actor, *permissions, *roles)):
        raise TypeError
    identity = Identity(actor, tuple(permissions), id, tuple(roles))
    return HashedKey(id, digest, identity, suspended, None, None if expires_at is None else float(expires_at))
