import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.streams import HTTP_ERRORS
from tests.support.requirement import requirement
from wicketgate.models.failures import FailureKind, classify, classify_error, failure, retry_after_s

OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "Please reduce the length of the messages or completion.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "the request exceeds the available context size, try increasing it",
    "The input token count (1300000) exceeds the maximum number of tokens allowed (1048576).",
    "The input (90000 tokens) is longer than the model's context length (32768 tokens).",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "Current length is 9000 while limit is 8192",
    "Input is too long for requested model.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
    "Range of input length should be [1, 30720]",
    "the input length exceeds the context length",
    "prompt too long; exceeded max context length by 12 tokens",
    "Your request exceeded model token limit: 8192",
    "Prompt exceeds max length",
    "Trying to keep the first 5000 tokens when context the overflows.",
]
OTHERS = [
    "Invalid 'user': string too long. Expected a string with maximum length 64",
    "invalid token",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    "Rate limit reached on tokens per min (TPM): Limit 6000, Requested 9000. Please reduce the length of the messages.",
    "You exceeded your current quota, please check your plan and billing details.",
    "The model `m` does not exist",
    "The server had an error",
]


@requirement("CHAT-56", "CHAT-57")
@pytest.mark.parametrize("error", HTTP_ERRORS, ids=lambda error: json.dumps(error["body"])[:60])
def test_recorded_errors_get_the_code_of_the_contract(error: dict[str, Any]) -> None:
    kind = classify(json.dumps(error["body"]).encode(), error["status"])
    assert failure(kind, "").code == error["code"]


@pytest.mark.parametrize("text", OVERFLOWS)
def test_an_overflow_is_known_by_its_text_in_every_shape_of_error(text: str) -> None:
    shapes: list[Any] = [
        {"error": {"message": text, "type": "BadRequestError", "code": 400}},
        {"error": text},
        {"object": "error", "message": text},
        {"detail": text},
        {"error_type": "bad_request", "error_message": text},
        [{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}],
        {"error": {"message": "Provider returned error", "code": 400, "innererror": {"message": text}}},
    ]
    assert {classify(json.dumps(shape).encode(), 400) for shape in shapes} == {"overflow"}
    assert classify(text.encode(), 500) == "overflow"
    assert classify_error(text) == "overflow"


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors_that_speak_of_tokens_and_lengths_are_no_overflow(text: str) -> None:
    assert classify(json.dumps({"error": {"message": text}}).encode(), 400) == "failed"


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429])
def test_some_statuses_are_never_an_overflow(status: int) -> None:
    assert classify(json.dumps({"error": {"message": OVERFLOWS[0]}}).encode(), status) != "overflow"


def test_a_body_too_large_is_an_overflow_unless_it_names_a_rate_limit() -> None:
    assert classify(b"<html>413 Request Entity Too Large</html>", 413) == "overflow"
    assert classify(b'{"error":{"code":"rate_limit_exceeded","message":"too large"}}', 413) == "failed"


def test_what_the_server_echoes_from_the_request_decides_nothing() -> None:
    echo = {"detail": [{"loc": ["body"], "msg": "extra field", "input": OVERFLOWS[0]}], "request": OVERFLOWS[1]}
    assert classify(json.dumps(echo).encode(), 422) == "failed"


@pytest.mark.parametrize("code", ["content_filter", "ResponsibleAIPolicyViolation"])
def test_a_content_filter_is_its_own_kind(code: str) -> None:
    error = {"error": {"message": "filtered", "code": "x", "innererror": {"code": code}}}
    assert classify(json.dumps(error).encode(), 400) == "filtered"


@given(st.binary(max_size=200), st.integers(200, 599))
def test_no_body_whatever_makes_it_raise(body: bytes, status: int) -> None:
    assert classify(body, status) in get_args(FailureKind)


@requirement("CHAT-56")
@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (429, {"code": "rate_limit_exceeded", "message": "Rate limit reached on tokens per min"}, "unavailable"),
        (429, {"status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota"}, "unavailable"),
        (429, {"type": "rate_limit_error", "message": "slow down"}, "unavailable"),
        (503, {"code": "server_is_overloaded", "message": "..."}, "unavailable"),
        (529, {"type": "overloaded_error", "message": "Overloaded"}, "unavailable"),
        (504, {"type": "timeout_error", "message": "..."}, "unavailable"),
        (500, "it broke", "unavailable"),
        (200, {"code": 502, "message": "Provider returned error"}, "unavailable"),
        (429, {"code": "insufficient_quota", "message": "..."}, "failed"),
        (429, {"code": "billing_hard_limit_reached", "message": "..."}, "failed"),
        (429, {"code": "project_spend_limit_exceeded", "message": "..."}, "failed"),
        (429, {"message": "You exceeded your current quota, please check your plan and billing details."}, "failed"),
        (400, {"type": "invalid_request_error", "message": "Your credit balance is too low"}, "failed"),
        (402, {"type": "billing_error", "message": "..."}, "failed"),
        (401, {"code": "invalid_api_key", "message": "..."}, "failed"),
        (404, {"code": "model_not_found", "message": "..."}, "failed"),
        (400, {"code": "tool_use_failed", "failed_generation": "f{"}, "bad_call"),
    ],
)
def test_only_failures_that_may_pass_count_as_unavailable(status: int, error: Any, kind: str) -> None:
    assert classify(json.dumps({"error": error}).encode(), status) == kind


NOW = 1_800_000_000.0


def google(delay: object) -> bytes:
    return json.dumps([{"error": {"details": [{"@type": "x"}, {"retryDelay": delay}]}}]).encode()


@pytest.mark.parametrize(
    ("headers", "body", "wait"),
    [
        ({}, b"", None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, b"", 1.5),
        ({"retry-after": "7"}, b"", 7.0),
        ({"retry-after": "0.25"}, b"", 0.25),
        ({"retry-after": "-3"}, b"", 0.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:20 GMT"}, b"", 20.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, b"", 0.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:20 -0000"}, b"", 20.0),
        ({"retry-after": "soon"}, b"", None),
        ({"retry-after": "nan"}, b"", None),
        ({"retry-after": "inf"}, b"", None),
        ({"retry-after-ms": "x", "retry-after": "3"}, b"", 3.0),
        ({}, google("34.074824224s"), 34.074824224),
        ({}, json.dumps({"error": {"details": [{"retryDelay": "12s"}]}}).encode(), 12.0),
        ({}, google(5), None),
        ({}, google("5 minutes"), None),
        ({}, b'{"retryDelay', None),
        ({}, b'["retryDelay"]', None),
    ],
)
def test_the_wait_that_a_provider_asks_for_is_read(headers: dict[str, str], body: bytes, wait: float | None) -> None:
    assert retry_after_s(headers, body, NOW) == wait


@given(st.text(), st.binary())
def test_no_header_or_body_makes_it_raise(said: str, body: bytes) -> None:
    wait = retry_after_s({"retry-after": said, "retry-after-ms": said}, b'"retryDelay"' + body, NOW)
    assert wait is None or wait >= 0
