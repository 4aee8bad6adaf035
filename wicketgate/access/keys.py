"""API keys: made once, shown once, stored only as SHA-256 (DESIGN §2 "auth").

A key is ``wg_<id>_<43 random characters>``. 256 random bits need no slow hash, which would only let any client spend
the service's CPU.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from wicketgate.access.identity import Identity


@dataclass(frozen=True, slots=True)
class HashedKey:
    """*sha256* is the hex digest of the whole key."""

    id: str
    sha256: str
    identity: Identity
    suspended: bool = False


def new_key(key_id: str) -> tuple[str, str]:
    """Returns a new key and its hash."""
    key = f"wg_{key_id}_{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KeyRing:
    """The keys that are accepted, found by their hash."""

    def __init__(self, keys: Iterable[HashedKey]) -> None:
        self.replace(keys)

    def replace(self, keys: Iterable[HashedKey]) -> None:
        """Accept these keys and no others, from the next request on."""
        self._by_hash = {key.sha256: key for key in keys}

    def find(self, key: str) -> HashedKey | None:
        """Returns the key's entry. The look-up goes by hash, so the time it takes reveals nothing about any key."""
        return self._by_hash.get(hash_key(key))
