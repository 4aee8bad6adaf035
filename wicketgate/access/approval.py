"""Sealed approvals: an id that only we can have made, for one actor, one tool, one set of arguments, for some time
(DESIGN §3 "Approval").

Nothing is kept of what was asked: the id itself says what it stands for. That it is used once is the business of
whoever takes it up, by its *uid*.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

NONCE_BYTES = 12
PREFIX = "apr_"
_MAX_ID_CHARS = 1_000
_DIGEST_BYTES = 32
_EXPIRY_BYTES = 8


class Cipher(Protocol):
    """Authenticated encryption with 12 bytes of nonce, such as AES-GCM."""

    def seal(self, nonce: bytes, text: bytes, bound_to: bytes) -> bytes: ...

    def open(self, nonce: bytes, sealed: bytes, bound_to: bytes) -> bytes | None:
        """None for what was not sealed with this key, nonce and *bound_to*."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be approved: the tool by its id, whose hash ends with its schema; the digest in hex of the arguments
    that would be sent; and the digest of the call as the model made it."""

    tool_id: str
    arguments: str
    call: str


@dataclass(frozen=True, slots=True)
class Approval:
    """An id that was opened. *expires_at* is in seconds since the epoch; *uid* is what must not be used twice."""

    asked: Asked
    expires_at: float
    uid: str


class ApprovalSeal:
    """*now* is the time of day, so that replicas agree; *nonce* gives 12 bytes that never come again."""

    def __init__(
        self, cipher: Cipher, now: Callable[[], float], nonce: Callable[[], bytes], *, ttl_s: float = 3_600.0
    ) -> None:
        self._cipher = cipher
        self._now = now
        self._nonce = nonce
        self._ttl_s = ttl_s

    def issue(self, actor: str, asked: Asked) -> str:
        nonce = self._nonce()
        expires_at = int(self._now() + self._ttl_s).to_bytes(_EXPIRY_BYTES, "big")
        digests = bytes.fromhex(asked.arguments) + bytes.fromhex(asked.call)
        sealed = self._cipher.seal(nonce, expires_at + digests + asked.tool_id.encode(), _bound_to(actor))
        return PREFIX + base64.urlsafe_b64encode(nonce + sealed).decode("ascii").rstrip("=")

    def open(self, actor: str, approval_id: str) -> Approval | None:
        """None for what we did not issue to *actor*. It may have expired."""
        raw = _decoded(approval_id)
        if raw is None:
            return None
        nonce, sealed = raw[:NONCE_BYTES], raw[NONCE_BYTES:]
        text = self._cipher.open(nonce, sealed, _bound_to(actor))
        if text is None:
            return None
        expires_at, rest = text[:_EXPIRY_BYTES], text[_EXPIRY_BYTES:]
        arguments, call = rest[:_DIGEST_BYTES], rest[_DIGEST_BYTES : 2 * _DIGEST_BYTES]
        asked = Asked(rest[2 * _DIGEST_BYTES :].decode(), arguments.hex(), call.hex())
        return Approval(asked, float(int.from_bytes(expires_at, "big")), nonce.hex())

    def expired(self, approval: Approval) -> bool:
        return self._now() >= approval.expires_at


def _bound_to(actor: str) -> bytes:
    return b"wicketgate approval 1\0" + actor.encode()


def _decoded(approval_id: str) -> bytes | None:
    text = approval_id.removeprefix(PREFIX)
    if text == approval_id or len(approval_id) > _MAX_ID_CHARS:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    # Several texts can spell the same bytes; only the one that was issued counts.
    spelled = base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
    return raw if spelled == text and len(raw) > NONCE_BYTES else None
