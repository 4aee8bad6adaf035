import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wicketgate.models.retry_after import retry_after_s

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
def test_the_providers_word_on_when_to_come_again_is_understood(
    headers: dict[str, str], body: bytes, wait: float | None
) -> None:
    assert retry_after_s(headers, body, NOW) == wait


@given(st.text(), st.binary())
def test_no_word_makes_it_fail(said: str, body: bytes) -> None:
    wait = retry_after_s({"retry-after": said, "retry-after-ms": said}, b'"retryDelay"' + body, NOW)
    assert wait is None or wait >= 0
