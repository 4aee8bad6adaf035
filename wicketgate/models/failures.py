"""The meaning of a provider's error, and when it says to ask again (CHAT-37).

An error is an overflow, a refusal by a filter, an unreadable call, unavailability for now, or a plain failure. Codes
are read first, then texts, because most compatible servers send a text only. The table covers OpenAI, Azure, Anthropic,
Gemini, Mistral, Groq, Cerebras, Bedrock, DashScope, vLLM, sglang, llama.cpp, LM Studio, Ollama, TGI and the proxies
that pass their texts through.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec

from wicketgate.errors import ContextOverflow, ProviderError, ProviderUnavailable

FailureKind = Literal["overflow", "filtered", "bad_call", "unavailable", "failed"]
"""*filtered* ends the turn and is no failure; so does *bad_call*, a tool call that the server itself could not read."""

_OVERFLOW_CODES = frozenset(
    (
        *("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error"),
        *("model_context_window_exceeded", "request_too_large"),
    )
)
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})
# Their texts speak of sizes and tokens as well ("request too large ... tokens per minute"), so they are checked first.
_OTHER_CODES = frozenset({"rate_limit_exceeded", "insufficient_quota", "string_above_max_length", "rate_limit_error"})
_NEVER_OVERFLOW = frozenset({401, 402, 403, 404, 429})

_UNAVAILABLE_STATUSES = frozenset({429, 500, 502, 503, 504, 529})
# The same, reported inside a stream that began with 200; OpenRouter puts the status in the code.
_UNAVAILABLE_CODES = frozenset(
    (
        *map(str, _UNAVAILABLE_STATUSES),
        *("api_error", "internal_server_error", "server_error", "timeout_error"),
        *("overloaded_error", "engine_overloaded_error", "server_is_overloaded", "service_unavailable", "unavailable"),
        *("rate_limit_error", "rate_limit_exceeded", "resource_exhausted"),
    )
)
# Exhausted quotas: waiting does not help.
_QUOTA_CODES = re.compile(r"insufficient_quota|billing_hard_limit_reached|billing_error|\w*spend_limit_exceeded")
_QUOTA_TEXT = re.compile(
    r"current quota|credit balance|insufficient (?:balance|credits|funds)|spend limit", re.IGNORECASE
)

_RATE_TEXT = re.compile(r"tokens per (?:min|day)|rate limit|quota", re.IGNORECASE)
_OVERFLOW_TEXT = re.compile(
    r"maximum context length"
    r"|maximum (?:model|prompt) length"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)"
    r"|(?:prompt|input) (?:is )?too long"
    r"|prompt exceeds max length"
    r"|exceed(?:s|ed)? (?:the |your |this |our )?(?:model'?s? |available |maximum |max )*"
    r"(?:context|(?:total )?tokens? limit|token limit|number of tokens)"
    r"|input token count"
    r"|token count of \S+ exceeds"
    r"|longer than the model'?s? (?:maximum )?context"
    r"|context (?:length|window|size|limit) (?:is |was )?(?:exceed|overflow)"
    r"|context (?:the )?overflow"
    r"|current length is \S+ while limit is"
    r"|range of input length should be"
    r"|too many tokens"
    r"|inputs. (?:tokens \+|must have less than)",
    re.IGNORECASE,
)

_MAX_TEXT_CHARS = 4000
_FIELDS = (
    *("code", "type", "status", "status_code", "param"),
    *("message", "msg", "detail", "error_type", "error_message", "object", "error", "innererror"),
)

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def classify(body: bytes, status: int = 200) -> FailureKind:
    """Kind of the error in *body*: JSON of any of the usual shapes, or plain text. *status* is that of HTTP."""
    error = _json(body)
    return classify_error(body[:_MAX_TEXT_CHARS].decode(errors="replace") if error is None else error, status)


def classify_error(error: object, status: int = 200) -> FailureKind:
    """The same for an error that is already parsed: an object with or without an outer ``error``, or a text."""
    # Codes that decide alone, whatever the status.
    texts = [text[:_MAX_TEXT_CHARS] for text in _texts(error, depth=4)]
    codes = {text.lower() for text in texts}
    if codes & _FILTER_CODES:
        return "filtered"
    if "tool_use_failed" in codes:
        return "bad_call"
    # An overflow may be named by the status, a code or a text, unless the error is of a kind with similar texts.
    is_other = status in _NEVER_OVERFLOW or codes & _OTHER_CODES or any(_RATE_TEXT.search(text) for text in texts)
    if not is_other and (
        status == 413 or codes & _OVERFLOW_CODES or any(_OVERFLOW_TEXT.search(text) for text in texts)
    ):
        return "overflow"
    # Unavailability that may pass; an exhausted quota does not.
    if (status in _UNAVAILABLE_STATUSES or (status == 200 and codes & _UNAVAILABLE_CODES)) and not _is_quota(texts):
        return "unavailable"
    return "failed"


def failure(kind: FailureKind, detail: str, retry_after_s: float | None = None) -> ProviderError | ContextOverflow:
    """The exception to raise for an error of that kind. *detail* is for the log."""
    if kind == "overflow":
        return ContextOverflow(detail)
    return ProviderUnavailable(detail, retry_after_s) if kind == "unavailable" else ProviderError(detail)


def retry_after_s(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """Seconds to wait, 0 or more; None if the provider gave none. *now* is the time of day, in seconds.

    ``retry-after-ms`` is the most exact; ``retry-after`` is in seconds or a date; then Google's ``RetryInfo`` in the
    body.
    """
    if (wait := _number(headers.get("retry-after-ms"))) is not None:
        return wait / 1000
    if (given := headers.get("retry-after")) is not None:
        if (wait := _number(given)) is not None:
            return wait
        if (wait := _seconds_until(given, now)) is not None:
            return wait
    return _retry_info(body)


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_quota(texts: list[str]) -> bool:
    # Google calls its rate limits quotas too, and then says when to ask again.
    if any(_QUOTA_CODES.fullmatch(text.lower()) for text in texts):
        return True
    return any(_QUOTA_TEXT.search(text) for text in texts) and "RESOURCE_EXHAUSTED" not in texts


def _texts(error: Any, depth: int) -> Iterator[str]:
    """The texts in the fields that name an error; never the others, which may echo what the user wrote."""
    if isinstance(error, str):
        yield error
    elif isinstance(error, int):
        yield str(error)
    elif isinstance(error, list | dict) and depth:
        for part in error[:4] if isinstance(error, list) else (error.get(field) for field in _FIELDS):
            yield from _texts(part, depth - 1)


def _number(text: str | None) -> float | None:
    try:
        wait = float(text or "")
    except ValueError:
        return None
    return max(wait, 0.0) if math.isfinite(wait) else None


def _seconds_until(date: str, now: float) -> float | None:
    try:
        at = parsedate_to_datetime(date)
    except (ValueError, OverflowError, IndexError):
        return None
    # "-0000" gives a date without a zone; HTTP knows only GMT.
    return max((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now, 0.0)


def _retry_info(body: bytes) -> float | None:
    """The first readable ``retryDelay`` in ``{error: {details: [...]}}``, or in the first of a list of those."""
    if b"retryDelay" not in body:
        return None
    parsed = _json(body)
    if isinstance(parsed, list):
        parsed = parsed[0] if parsed else None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (found := _DURATION.fullmatch(delay)):
            return float(found[1])
    return None
