"""The correlation id: its grammar, and the id of the request being served (S3 "Security Requirements")."""

import re
from contextvars import ContextVar

CORRELATION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

META_KEY = "wicketgate/correlation_id"
"""The key of the id in ``_meta`` of every MCP tool call."""

HEADER = "X-Correlation-ID"

correlation_id: ContextVar[str] = ContextVar("correlation_id", default="-")
"""The log formatter reads it. The correlation middleware sets it, and the engine's route once the body is known."""


def is_correlation_id(text: str) -> bool:
    return CORRELATION_ID.fullmatch(text) is not None
