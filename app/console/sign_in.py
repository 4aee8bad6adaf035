"""The code of a sign-in link: good once, for a while, in whichever process of the service (OPS-259).

The code is shown at the start alone, where the key itself was just made, and is kept in memory only.
"""

import os
import secrets
import weakref
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from time import monotonic

GOOD_FOR_S = 600.0


class SignIn:
    """Made before workers are forked, so that of all of them one exchanges the code. *secret* is the key that it is
    exchanged for. *now* gives seconds, the same for all processes of the host."""

    def __init__(self, secret: str, now: Callable[[], float] = monotonic) -> None:
        self.code = secrets.token_urlsafe(24)
        self._secret = secret
        self._digest = sha256(self.code.encode()).digest()
        self._now = now
        self._until = now() + GOOD_FOR_S
        # A byte in a pipe is read by one process, once.
        self._token, put = os.pipe()
        os.set_blocking(self._token, False)
        os.write(put, b".")
        os.close(put)
        weakref.finalize(self, os.close, self._token)

    def exchange(self, code: str) -> str | None:
        """Returns the key for the right code, the first time and in time."""
        right = compare_digest(sha256(code.encode("utf-8", "surrogatepass")).digest(), self._digest)
        if not right or self._now() >= self._until:
            return None
        return self._secret if os.read(self._token, 1) else None
