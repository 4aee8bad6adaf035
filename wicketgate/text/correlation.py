"""The correlation id: its grammar, and the one of the request that is being served (S3 "Security Requirements")."""

import re
from contextvars import ContextVar

CORRELATION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

META_KEY = "wicketgate/correlation_id"
"""Under this key the id travels in ``_meta`` of every MCP tool call."""

HEADER = "X-Correlation-ID"

correlation_id: ContextVar[str] = ContextVar("correlation_id", default="-")
"""Read by the log formatter; set by the correlation middleware and, once the body is known, by the engine's route."""


def is_correlation_id(text: str) -> bool:
    return CORRELATION_ID.fullmatch(text) is not None
