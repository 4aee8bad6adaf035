"""Masks credentials in log lines, known ones and those recognised by their shape (S3 "Logging")."""

import json
import re
from collections.abc import Iterable

MASK = "[redacted]"

# Shapes, not words: none begins like plain text.
_SHAPES = re.compile(
    r"(?i:\b(?:token|secret|password|passwd|api[_-]?key)[\"']?\s?[=:]\s?)[^\s\"',;&]{4,}"
    r"|://[^\s/:@]+:[^\s/@]+@"
    r"|(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|\bwg_[a-z0-9-]{1,32}_[A-Za-z0-9_-]{20,}"
    r"|\bsk-[A-Za-z0-9_-]{8,}"
    r"|\bgh[opsur]_[A-Za-z0-9]{20,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
)

_SHORTEST_SECRET = 6


class Redactor:
    """Masks the *secrets* of the configuration and all texts that look like one. Linear in the text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these too from now on, beside those learned before."""
        # Very short values would mask words. Text quoted in a message may hold a secret escaped.
        plain = self._secrets = self._secrets.union(s for s in secrets if len(s) >= _SHORTEST_SECRET)
        escaped = {json.dumps(secret)[1:-1] for secret in plain}
        # Longest first, so that a secret that contains another is masked whole.
        known = sorted(plain | escaped, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return _SHAPES.sub(MASK, text)
