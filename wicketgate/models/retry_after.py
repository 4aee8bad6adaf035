"""When a provider says it may be asked again: three headers' worth of dialects, and Google's field in the body."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def retry_after_s(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """Seconds to wait, 0 or more; None if the provider did not say. *now* is the time of day, in seconds.

    ``retry-after-ms`` is the most exact; ``retry-after`` is in seconds or a date; then ``RetryInfo`` in the body.
    """
    if (wait := _number(headers.get("retry-after-ms"))) is not None:
        return wait / 1000
    if (said := headers.get("retry-after")) is not None:
        if (wait := _number(said)) is not None:
            return wait
        if (wait := _until(said, now)) is not None:
            return wait
    return _retry_info(body)


def _number(text: str | None) -> float | None:
    try:
        wait = float(text or "")
    except ValueError:
        return None
    return max(wait, 0.0) if math.isfinite(wait) else None


def _until(date: str, now: float) -> float | None:
    try:
        at = parsedate_to_datetime(date)
    except (ValueError, OverflowError, IndexError):
        return None
    # "-0000" gives a date without a zone; HTTP knows only GMT.
    return max((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now, 0.0)


def _retry_info(body: bytes) -> float | None:
    if b"retryDelay" not in body:
        return None
    try:
        parsed: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for detail in _details(parsed):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (found := _DURATION.fullmatch(delay)):
            return float(found[1])
    return None


def _details(parsed: Any) -> Iterator[Mapping[str, Any]]:
    """The details of ``{error: {details: [...]}}``, or of the first of a list of those."""
    if isinstance(parsed, list):
        parsed = parsed[0] if parsed else None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            yield detail
