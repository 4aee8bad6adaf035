"""The correlation id of a request, and masking of credentials in log lines (OPS-13, OPS-14)."""

import json
import re
from collections.abc import Iterable
from contextvars import ContextVar

CORRELATION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

META_KEY = "wicketgate/correlation_id"
"""The key of the id in ``_meta`` of every MCP tool call."""

HEADER = "X-Correlation-ID"

_NO_REQUEST = "-"

correlation_id: ContextVar[str] = ContextVar("correlation_id", default=_NO_REQUEST)
"""The log formatter reads it. The correlation middleware sets it, and the engine's route once the body is known."""


def is_correlation_id(text: str) -> bool:
    """Returns false also for ``-``, which the log writes outside of requests."""
    return text != _NO_REQUEST and CORRELATION_ID.fullmatch(text) is not None


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
_SHORT_CHARS = 256
_MOST_CLEAN = 1_000


class Redactor:
    """Masks the *secrets* of the configuration and all texts that look like one. Linear in the text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        # Short texts without anything to mask: most lines of a log are made of a few.
        self._clean: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these too from now on, beside those learned before."""
        # Very short values would mask words. Text quoted in a message may hold a secret escaped.
        plain = self._secrets = self._secrets.union(s for s in secrets if len(s) >= _SHORTEST_SECRET)
        escaped = {json.dumps(secret)[1:-1] for secret in plain}
        # Longest first, so that a secret that contains another is masked whole.
        known = sorted(plain | escaped, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        # After the pattern: what another thread finds clean by the pattern before goes into the set before.
        self._clean = set()

    def __call__(self, text: str) -> str:
        clean = self._clean
        if text in clean:
            return text
        masked = text if self._known is None else self._known.sub(MASK, text)
        masked = _SHAPES.sub(MASK, masked)
        if masked == text and len(text) <= _SHORT_CHARS:
            if len(clean) >= _MOST_CLEAN:
                clean.clear()
            clean.add(text)
        return masked
