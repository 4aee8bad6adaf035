"""Seals what clients carry for us between two requests, under a ring of keys.

A sealed text holds its purpose, its actor, the time when it lapses and an id of its own, all encrypted and signed
(Fernet). Nothing is kept of it. What may count only once is remembered by that id, never by the token's text. A token
has one spelling besides: base64 reads several, and only the one that was issued opens.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


@dataclass(frozen=True, slots=True)
class Sealed:
    """What was sealed. *expires_at* is in seconds since the epoch; *uid* differs for every token made."""

    text: str
    expires_at: int
    uid: str


class Seal:
    """The first of *keys* seals, all of them open.

    Without *keys* the key is *own_key*, which ends with the process; what it sealed opens until then, also after keys
    were configured. *now* is the time of day, so that replicas agree. *new_uid* gives a text that never comes again.
    """

    def __init__(
        self, keys: Sequence[str], own_key: bytes, now: Callable[[], float], new_uid: Callable[[], str]
    ) -> None:
        self._own = _cipher(own_key)
        self._now = now
        self._new_uid = new_uid
        self.follow(keys)

    def follow(self, keys: Sequence[str]) -> None:
        """Changes the ring. What was sealed under a key that is no longer in it opens no more."""
        self._ring = MultiFernet([*(_cipher(key.encode()) for key in keys), self._own])

    def seal(self, purpose: str, actor: str, text: str, ttl_s: float) -> str:
        """Returns a token of letters, digits, ``-`` and ``_``."""
        now = int(self._now())
        inside = json.dumps([purpose, actor, int(now + ttl_s), self._new_uid(), text], separators=(",", ":"))
        return self._ring.encrypt_at_time(inside.encode(), now).decode().rstrip("=")

    def open(self, purpose: str, actor: str, token: str) -> Sealed | None:
        """Returns None for what was not sealed here for this purpose and actor. What opens may have expired."""
        padded = token + "=" * (-len(token) % 4)
        try:
            respelled = base64.urlsafe_b64encode(base64.urlsafe_b64decode(padded)).decode().rstrip("=")
            if respelled != token:
                return None
            inside = self._ring.decrypt(padded)
        except (InvalidToken, ValueError):
            return None
        for_purpose, for_actor, expires_at, uid, text = json.loads(inside)
        return Sealed(text, expires_at, uid) if (for_purpose, for_actor) == (purpose, actor) else None

    def expired(self, sealed: Sealed) -> bool:
        return self._now() >= sealed.expires_at


def _cipher(key: bytes) -> Fernet:
    """A key of any length is stretched; it must be random."""
    stretched = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"wicketgate seal 1").derive(key)
    return Fernet(base64.urlsafe_b64encode(stretched))
