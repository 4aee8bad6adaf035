"""The cipher of approvals: AES-256-GCM of the ``cryptography`` package."""

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_TAG_BYTES = 16


class AesGcm:
    """Implements Cipher. *secret* must be random; its SHA-256 is the key, so any length will do."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESGCM(hashlib.sha256(secret).digest())

    def seal(self, nonce: bytes, text: bytes, bound_to: bytes) -> bytes:
        return self._cipher.encrypt(nonce, text, bound_to)

    def open(self, nonce: bytes, sealed: bytes, bound_to: bytes) -> bytes | None:
        if len(sealed) < _TAG_BYTES:
            return None
        try:
            return self._cipher.decrypt(nonce, sealed, bound_to)
        except InvalidTag:
            return None
