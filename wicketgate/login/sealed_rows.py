"""The rows in which logins are stored, shared by all processes of a service: their keys, and their contents, sealed
under ``auth.seal_keys`` (ACCESS-153, ACCESS-154).

Keys are hashes, so that a store shows neither actors' tool servers nor secrets of a flow. A reader of the store sees
only kinds, hashed keys and times. Rows are changed by version, so that exactly one of two concurrent writers succeeds.

A row opens only as what it was written as: its kind, key, owner, version and end are sealed along with it (AES-GCM,
additional data), so that a writer to the store can neither move a row to another owner, nor bring an older one
back as a newer, nor let one live longer.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MOST_LISTED = 10_000
_FORMAT = b"\1"
_ID_BYTES = 8
_NONCE_BYTES = 12
_HEAD_BYTES = len(_FORMAT) + _ID_BYTES + _NONCE_BYTES


def row_key(*parts: str) -> str:
    """32 hexadecimal digits for a sequence of any strings; another sequence has others."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


RowKind = Literal["registration", "grant", "flow", "browser", "id_token"]
"""A client as an issuer knows it; what an actor may do at a tool server; a login under way; a browser that has logged
in at the gate; the ID token of an actor."""


@dataclass(frozen=True, slots=True)
class Row:
    """*key* is a hash, unique in its kind. *owner* is the actor whose row it is, of a flow the actor with the tool
    server; empty for the gate's own. The contents are the JSON object *value*. *version* counts the writes, from 1.
    *expires_at*, in seconds since the epoch, is when the row ends by itself; None: never."""

    kind: RowKind
    key: str
    owner: str
    value: Mapping[str, Any] = field(repr=False)
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

    def seal(self, row: Row) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        text = json.dumps(row.value, separators=(",", ":")).encode()
        sealed = self._first.aead.encrypt(nonce, text, _bound(row))
        return _FORMAT + self._first.id + nonce + sealed

    def open(self, row: Row, data: bytes) -> Row | None:
        """Return *row* with the value that is sealed in *data*; None for what was sealed under no key of the ring, or
        as another row."""
        head, sealed = data[:_HEAD_BYTES], data[_HEAD_BYTES:]
        cipher = self._by_id.get(head[len(_FORMAT) : len(_FORMAT) + _ID_BYTES])
        if cipher is None or head[: len(_FORMAT)] != _FORMAT:
            return None
        try:
            value = json.loads(cipher.aead.decrypt(head[-_NONCE_BYTES:], sealed, _bound(row)))
        except (InvalidTag, ValueError):
            return None
        return replace(row, value=value)


class SealedRows(Protocol):
    """Rows, each written in one step, with their contents opened. Every method raises StoreUnavailable.

    A row that cannot be opened counts as gone, and is written over: the gate starts, and its owners log in again.
    """

    seal: RowSeal

    async def read(self, kind: RowKind, key: str) -> Row | None:
        """Return the row, or None if there is none or it has ended."""
        ...

    async def write(self, row: Row, *, most_of_owner: int | None = None) -> int:
        """Write *row* over the previous version; version 1 only if there is no row. Return the version that was
        written; 0 if another writer was faster, or, with version 1, if its owner has *most_of_owner* rows of this kind
        already. One of version 1 also takes the place of one that cannot be opened, and gets a version after that."""
        ...

    async def delete(self, kind: RowKind, key: str) -> bool:
        """Delete the row; false if there was none."""
        ...

    async def of_owner(self, kind: RowKind, owner: str | None) -> Sequence[Row]:
        """Return the rows of one owner, or of all with None, in no order; of at most ``MOST_LISTED`` those that can be
        opened."""
        ...

    async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
        """Take the lease on a row for this time, or longer if it is *holder*'s already. False while another has it."""
        ...

    async def release(self, kind: RowKind, key: str, holder: str) -> None:
        """Give a lease back; does nothing if another has it."""
        ...


class _Cipher:
    """Stretches a key of any length, which must be random. *id* says nothing of the key."""

    def __init__(self, key: bytes) -> None:
        self.aead = AESGCM(_stretched(key, b"wicketgate login rows 1", 32))
        self.id = _stretched(key, b"wicketgate login rows 1: id", _ID_BYTES)


def _stretched(key: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(key)


def _bound(row: Row) -> bytes:
    end = None if row.expires_at is None else float(row.expires_at)
    return json.dumps([row.kind, row.key, row.owner, row.version, end], separators=(",", ":")).encode()
