"""Seals texts that clients carry between two requests, under a ring of keys: approvals and request states
(ACCESS-17, ACCESS-29).

A sealed text holds its purpose, its actor, the time when it expires and an id of its own, all encrypted and signed
(Fernet). Nothing of it is stored here. What may count only once is remembered by that id, never by the token's text.
Base64 reads several spellings of a token; only the one that was issued opens.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.fernet import Fernet, MultiFernet

APPROVAL_PREFIX = "apr_"
# Approvals without the digest of a definition had the purpose "approval".
_APPROVAL_PURPOSE = "approval of a definition"
_OTHERS_PURPOSE = "approval of a definition by others"
_MAX_APPROVAL_CHARS = 1_000
_DIGEST_CHARS = 43
_MAX_ID_BYTES = 256
_SHOWN_CHARS = 64
_TAG_CHARS = 32


@dataclass(frozen=True, slots=True)
class SealedText:
    """A text that was opened. *expires_at* is in seconds since the epoch; *uid* differs for every token made."""

    text: str
    expires_at: int
    uid: str


class Seal:
    """Seals with the first of *keys*, and opens with all of them.

    Without *keys* the key is *own_key*, which ends with the service. What it sealed opens until then, also after keys
    were configured. *now* is the time of day, so that replicas agree. *new_uid* gives a text that never comes again.
    The first text that is sealed or opened imports the ciphers (OPS-374).
    """

    def __init__(
        self, keys: Sequence[str], own_key: bytes, now: Callable[[], float], new_uid: Callable[[], str]
    ) -> None:
        self._own_key = own_key
        self._now = now
        self._new_uid = new_uid
        self.replace_keys(keys)

    def replace_keys(self, keys: Sequence[str]) -> None:
        """Changes the ring. A text sealed under a key that is no longer in it cannot be opened."""
        self._keys = [*(key.encode() for key in keys), self._own_key]
        self._made: MultiFernet | None = None

    def _ring(self) -> "MultiFernet":
        if self._made is None:
            from cryptography.fernet import MultiFernet

            self._made = MultiFernet([_cipher(key) for key in self._keys])
        return self._made

    def seal(self, purpose: str, actor: str, text: str, ttl_s: float) -> str:
        """Returns a token of letters, digits, ``-`` and ``_``."""
        now = int(self._now())
        inside = json.dumps([purpose, actor, int(now + ttl_s), self._new_uid(), text], separators=(",", ":"))
        return self._ring().encrypt_at_time(inside.encode(), now).decode().rstrip("=")

    def open(self, purpose: str, actor: str, token: str) -> SealedText | None:
        """Returns None for a token that was not sealed here for this purpose and actor. The text may have expired."""
        from cryptography.fernet import InvalidToken

        padded = token + "=" * (-len(token) % 4)
        try:
            issued = base64.urlsafe_b64encode(base64.urlsafe_b64decode(padded)).decode().rstrip("=")
            if issued != token:
                return None
            inside = self._ring().decrypt(padded)
        except (InvalidToken, ValueError):
            return None
        sealed_purpose, sealed_actor, expires_at, uid, text = json.loads(inside)
        matches = (sealed_purpose, sealed_actor) == (purpose, actor)
        return SealedText(text, expires_at, uid) if matches else None

    def expired(self, sealed: SealedText) -> bool:
        return self._now() >= sealed.expires_at

    def tags(self, purpose: str, text: bytes) -> list[str]:
        """Returns a digest of *text* under each key of the ring, that of the sealing key first: 32 hexadecimal digits.

        Without the key a reader of a digest cannot try texts against it.
        """
        tagged = len(purpose).to_bytes(2) + purpose.encode() + text
        return [hmac.digest(key, tagged, "sha256").hex()[:_TAG_CHARS] for key in self._keys]


def _cipher(key: bytes) -> "Fernet":
    """Stretches a key of any length, which must be random."""
    from cryptography.fernet import Fernet
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    stretched = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"wicketgate seal 1").derive(key)
    return Fernet(base64.urlsafe_b64encode(stretched))


@dataclass(frozen=True, slots=True)
class ApprovalSubject:
    """The call to be approved: the tool's id, and three digests in hex (SHA-256): of the tool's definition, of the
    arguments that would be sent, and of the call as the model made it. Opened again, a long tool id is its digest."""

    tool_id: str
    definition: str
    arguments: str
    call: str

    def is_of(self, tool_id: str) -> bool:
        """True if this opened subject is of the tool *tool_id*."""
        return self.tool_id == _bounded(tool_id)


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval id that was opened. *sealed* has its expiry, and the *uid* that must not be used twice. *by_others*:
    its actor, who holds it, cannot approve by it."""

    subject: ApprovalSubject
    sealed: SealedText
    by_others: bool = False


class ApprovalSeal:
    """Issues approval ids under *seal*, each valid for *ttl_s*.

    An id is for one actor, one tool with its definition and one set of arguments, and holds all that was asked, so
    nothing is stored. The caller makes sure that it is used once, by its *uid*.
    """

    def __init__(self, seal: Seal, *, ttl_s: float = 3_600.0) -> None:
        self._seal = seal
        self._ttl_s = ttl_s

    def issue(self, actor: str, subject: ApprovalSubject, *, by_others: bool = False) -> str:
        digests = map(_packed, (subject.definition, subject.arguments, subject.call))
        text = "".join(digests) + _bounded(subject.tool_id)
        purpose = _OTHERS_PURPOSE if by_others else _APPROVAL_PURPOSE
        return APPROVAL_PREFIX + self._seal.seal(purpose, actor, text, self._ttl_s)

    def open(self, actor: str, approval_id: str) -> Approval | None:
        """Returns None for an id that was not issued to *actor*. The approval may have expired."""
        if not approval_id.startswith(APPROVAL_PREFIX) or len(approval_id) > _MAX_APPROVAL_CHARS:
            return None
        token = approval_id.removeprefix(APPROVAL_PREFIX)
        by_others, sealed = False, self._seal.open(_APPROVAL_PURPOSE, actor, token)
        if sealed is None:
            by_others, sealed = True, self._seal.open(_OTHERS_PURPOSE, actor, token)
        if sealed is None:
            return None
        starts = range(0, 3 * _DIGEST_CHARS, _DIGEST_CHARS)
        definition, arguments, call = (_unpacked(sealed.text[start : start + _DIGEST_CHARS]) for start in starts)
        return Approval(
            ApprovalSubject(sealed.text[3 * _DIGEST_CHARS :], definition, arguments, call), sealed, by_others
        )

    def expired(self, approval: Approval) -> bool:
        return self._seal.expired(approval.sealed)


def _packed(digest: str) -> str:
    """Returns 64 hex digits in 43 characters, because the length of an approval id is bounded."""
    return base64.urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("=")


def _unpacked(text: str) -> str:
    return base64.urlsafe_b64decode(f"{text}=").hex()


def _bounded(tool_id: str) -> str:
    """Returns *tool_id*, or the beginning of its name and its digest if it is too long for an approval id.

    The short form has no colon, so it differs from every tool id.
    """
    # Measured as it is sealed, where some characters take six bytes and more.
    if ":" in tool_id and len(json.dumps(tool_id)) <= _MAX_ID_BYTES:
        return tool_id
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", tool_id.partition(":")[2])[:_SHOWN_CHARS]
    return f"{name}... (sha256 {hashlib.sha256(tool_id.encode()).hexdigest()})"
