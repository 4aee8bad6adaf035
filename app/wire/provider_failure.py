"""What a provider's error means: overflow, refused by a filter, or just failed (S3 "Mid-Stream Errors").

Codes first, then texts, because most compatible servers send a text only. The table covers OpenAI, Azure, Anthropic,
Gemini, Mistral, Groq, Cerebras, Bedrock, DashScope, vLLM, sglang, llama.cpp, LM Studio, Ollama, TGI and the proxies
that pass their texts through.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

FailureKind = Literal["overflow", "filtered", "failed"]

_OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "request_too_large",
    }
)
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})
# Their texts speak of sizes and tokens as well ("request too large ... tokens per minute"), so they are asked first.
_OTHER_CODES = frozenset({"rate_limit_exceeded", "insufficient_quota", "string_above_max_length", "rate_limit_error"})
_NEVER_OVERFLOW = frozenset({401, 402, 403, 404, 429})

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
_FIELDS = ("code", "type", "status", "param", "message", "msg", "detail", "error_type", "error_message", "object")


def classify(body: bytes, status: int = 200) -> FailureKind:
    """Kind of the error in *body*: JSON of any of the usual shapes, or plain text. *status* is that of HTTP."""
    try:
        error: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = body[:_MAX_TEXT_CHARS].decode(errors="replace")
    return classify_error(error, status)


def classify_error(error: object, status: int = 200) -> FailureKind:
    """The same for an error that is already parsed: an object with or without an outer ``error``, or a text."""
    texts = [text[:_MAX_TEXT_CHARS] for text in _texts(error, depth=4)]
    codes = {text.lower() for text in texts}
    if codes & _FILTER_CODES:
        return "filtered"
    if status in _NEVER_OVERFLOW or codes & _OTHER_CODES or any(_RATE_TEXT.search(text) for text in texts):
        return "failed"
    if status == 413 or codes & _OVERFLOW_CODES or any(_OVERFLOW_TEXT.search(text) for text in texts):
        return "overflow"
    return "failed"


def _texts(error: Any, depth: int) -> Iterator[str]:
    """The texts in the fields that name an error; never the others, which may echo what the user wrote."""
    if isinstance(error, str):
        yield error
    elif isinstance(error, list) and depth:
        for item in error[:4]:
            yield from _texts(item, depth - 1)
    elif isinstance(error, dict) and depth:
        for field in _FIELDS:
            yield from _texts(error.get(field), depth - 1)
        yield from _texts(error.get("error"), depth - 1)
        yield from _texts(error.get("innererror"), depth - 1)
