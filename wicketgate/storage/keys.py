"""Keys that operators made, and configured keys that they suspended, as rows of a ``Store`` (ACCESS-340)."""

import secrets
from collections.abc import Sequence
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
    """*read* is called first. All methods but *among* raise StoreUnavailable. *ops* go into the step of each change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.made: tuple[HashedKey, ...] = ()
        self._suspended: frozenset[tuple[str, str]] = frozenset()

    async def read(self) -> None:
        """Reads all rows. A damaged one is logged and counts as none."""
        made, suspended = list[HashedKey](), set[tuple[str, str]]()
        for row in await self._store.of_owner(_KEY, None):
            match sound(_KEY.name, row.key, partial(_read, row.data)):
                case HashedKey() as key:
                    made.append(key)
                case (str(id), str(digest)):
                    suspended.add((id, digest))
        self.made, self._suspended = tuple(made), frozenset(suspended)

    def among(self, configured: Sequence[HashedKey]) -> list[HashedKey]:
        """Returns *configured*, suspended where an operator did so, and the keys that operators made."""
        kept = [replace(key, suspended=True) if _pair(key) in self._suspended else key for key in configured]
        return [*kept, *self.made]

    async def put(self, key: HashedKey, ops: Sequence[Op]) -> None:
        """Keeps *key*, in place of what was kept of it. Raises Full if there are ``MOST_KEYS``."""
        identity = key.identity
        whole = [identity.actor, list(identity.permissions), list(identity.roles), key.expires_at]
        await self._write(key, packed([key.id, key.sha256, key.suspended, whole]), ops)

    async def suspend(self, key: HashedKey, ops: Sequence[Op]) -> None:
        """Suspends a configured key until it is dropped here. Raises Full."""
        await self._write(key, packed([key.id, key.sha256, True, None]), ops)

    async def drop(self, key: HashedKey, ops: Sequence[Op]) -> None:
        await self._store.step([Drop(_KEY, _row_of(key)), *ops])

    async def _write(self, key: HashedKey, data: bytes, ops: Sequence[Op]) -> None:
        await self._store.step([Put(_KEY, _row_of(key), data, hashed(key.identity.actor)), *ops], durable=True)


def _pair(key: HashedKey) -> tuple[str, str]:
    return key.id, key.sha256


def _row_of(key: HashedKey) -> str:
    return hashed(f"{key.id} {key.sha256}")


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
