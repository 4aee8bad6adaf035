"""The contents of rows, sealed under the keys of ``auth.seal_keys`` (ACCESS-153, ACCESS-154).

A row opens only as what it was written as: its kind, key, owner, version and end are sealed along with it (AES-GCM,
additional data), so that whoever can write to the store can neither move a row to another owner, nor bring an older one
back as a newer, nor let one live longer.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wicketgate.login.rows import Row, RowKind, RowStore

log = logging.getLogger("wicketgate.login")

_FORMAT = b"\1"
_ID_BYTES = 8
_NONCE_BYTES = 12
_HEAD_BYTES = len(_FORMAT) + _ID_BYTES + _NONCE_BYTES
_TRIES = 3


@dataclass(frozen=True, slots=True)
class OpenedRow:
    """A row whose contents are the JSON object *value*. The rest is as in ``Row``."""

    kind: RowKind
    key: str
    owner: str
    value: Mapping[str, Any]
    version: int
    expires_at: float | None = None


class RowSeal:
    """Seals with the first of *keys* and opens with all of them; without any, *own_key* seals. That one ends with the
    process, and opens until then."""

    def __init__(self, keys: Sequence[str], own_key: bytes) -> None:
        self._own = own_key
        self.replace_keys(keys)

    def replace_keys(self, keys: Sequence[str]) -> None:
        """Change the ring. What was sealed under a key that is no longer in it counts as gone."""
        self.secrets = [*(key.encode() for key in keys), self._own]
        ciphers = [_Cipher(secret) for secret in self.secrets]
        self._first = ciphers[0]
        self._by_id = {cipher.id: cipher for cipher in ciphers}

    def seal(self, row: OpenedRow) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        text = json.dumps(row.value, separators=(",", ":")).encode()
        sealed = self._first.aead.encrypt(nonce, text, _bound(row))
        return _FORMAT + self._first.id + nonce + sealed

    def open(self, row: Row) -> OpenedRow | None:
        """Return None for a row that was sealed under no key of the ring, or as another row."""
        head, sealed = row.data[:_HEAD_BYTES], row.data[_HEAD_BYTES:]
        cipher = self._by_id.get(head[len(_FORMAT) : len(_FORMAT) + _ID_BYTES])
        if cipher is None or head[: len(_FORMAT)] != _FORMAT:
            return None
        try:
            value = json.loads(cipher.aead.decrypt(head[-_NONCE_BYTES:], sealed, _bound(row)))
        except (InvalidTag, ValueError):
            return None
        return OpenedRow(row.kind, row.key, row.owner, value, row.version, row.expires_at)


class SealedRows:
    """Rows of *store* with their contents opened. Every method raises LoginsAway.

    A row that cannot be opened counts as gone, and is written over: the gate starts, and its owners log in anew.
    """

    def __init__(self, store: RowStore, seal: RowSeal) -> None:
        self.store = store
        self.seal = seal
        self._reported = False

    async def read(self, kind: RowKind, key: str) -> OpenedRow | None:
        row = await self.store.read(kind, key)
        return None if row is None else self._open(row)

    async def of_owner(self, kind: RowKind, owner: str | None) -> list[OpenedRow]:
        """Return the rows that can be opened, as ``RowStore.of_owner`` does."""
        opened = [self._open(row) for row in await self.store.of_owner(kind, owner)]
        return [row for row in opened if row is not None]

    async def write(self, row: OpenedRow, *, most_of_owner: int | None = None) -> int:
        """Write *row* as ``RowStore.write`` does. Return its version, 0 if it was not written. One of version 1 also
        takes the place of one that cannot be opened, and gets a version after that."""
        if await self._write(row, most_of_owner):
            return row.version
        for _ in range(_TRIES if row.version == 1 else 0):
            former = await self.store.read(row.kind, row.key)
            if former is None or self.seal.open(former) is not None:
                return 0
            later = OpenedRow(row.kind, row.key, row.owner, row.value, former.version + 1, row.expires_at)
            if await self._write(later, None):
                return later.version
        return 0

    async def delete(self, kind: RowKind, key: str) -> bool:
        return await self.store.delete(kind, key)

    async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
        return await self.store.lease(kind, key, holder, for_s)

    async def release(self, kind: RowKind, key: str, holder: str) -> None:
        await self.store.release(kind, key, holder)

    async def aclose(self) -> None:
        await self.store.aclose()

    async def _write(self, row: OpenedRow, most_of_owner: int | None) -> bool:
        data = self.seal.seal(row)
        sealed = Row(row.kind, row.key, row.owner, data, row.version, row.expires_at)
        return await self.store.write(sealed, most_of_owner=most_of_owner)

    def _open(self, row: Row) -> OpenedRow | None:
        opened = self.seal.open(row)
        if opened is None and not self._reported:
            self._reported = True
            log.error(
                "a login in the store cannot be opened with auth.seal_keys, and counts as gone: its owner has to"
                " connect anew. Put the key that sealed it back, behind the first one, to have it again (said once)"
            )
        return opened


class _Cipher:
    """Stretches a key of any length, which must be random. *id* says nothing of the key."""

    def __init__(self, key: bytes) -> None:
        self.aead = AESGCM(_stretched(key, b"wicketgate login rows 1", 32))
        self.id = _stretched(key, b"wicketgate login rows 1: id", _ID_BYTES)


def _stretched(key: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(key)


def _bound(row: Row | OpenedRow) -> bytes:
    end = None if row.expires_at is None else float(row.expires_at)
    return json.dumps([row.kind, row.key, row.owner, row.version, end], separators=(",", ":")).encode()
