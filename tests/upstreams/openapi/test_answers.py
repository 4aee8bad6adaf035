"""HTTP answers as results of tools (UP-31)."""

import base64
import json
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.net import Reply
from wicketgate.results.envelope import mcp_result_to_envelope
from wicketgate.upstreams.openapi.exchange import answer_to_result

URI = "openapi://shop/it"


def result(body: bytes, content_type: str = "", status: int = 200, cut: bool = False, **headers: str) -> dict[str, Any]:
    all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if content_type:
        all_headers["content-type"] = content_type
    return answer_to_result(Reply(status, all_headers, body, cut), URI)


def texts(found: dict[str, Any]) -> list[str]:
    return [part["text"] for part in found["content"]]


@requirement("UP-31")
@pytest.mark.parametrize("content_type", ["application/json", "application/hal+json; charset=utf-8", "", "text/json"])
def test_a_json_object_is_structured_content_and_text(content_type: str) -> None:
    found = result(b'{"a": [1, "\xc3\xa9"]}', content_type)
    assert found == {"content": [{"type": "text", "text": '{"a": [1, "é"]}'}], "structuredContent": {"a": [1, "é"]}}


@pytest.mark.parametrize("body", [b"[1, 2]", b'"x"', b"3", b"null"])
def test_any_other_json_is_text(body: bytes) -> None:
    assert result(body, "application/json") == {"content": [{"type": "text", "text": body.decode()}]}


def test_half_a_surrogate_pair_gets_a_mark_and_a_whole_one_is_read() -> None:
    found = result(b'{"a": "x\\ud800y", "b": "\\ud83d\\ude00", "c": "\\\\ud800"}', "application/json")
    assert found["structuredContent"] == {"a": "x?y", "b": "\U0001f600", "c": "\\ud800"}


@pytest.mark.parametrize("body", [b"{broken", b'{"a": NaN}', b'{"a": [1e999]}', b'{"a":' * 100_000])
def test_what_is_no_json_in_spite_of_its_type_is_text(body: bytes) -> None:
    assert texts(result(body, "application/json")) == [body.decode()]


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"h\xe9", "text/plain; charset=ISO-8859-1", "hé"),
        (b"h\xe9", "text/plain; charset=nonsense", "h\ufffd"),
        (b"hey", "text/plain; charset=punycode", "hey"),
        (b"\x83e", "text/plain; charset=windows-1252; x=y", "\u0192e"),
        (b"<a/>", "application/atom+xml", "<a/>"),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        (b"plain", "", "plain"),
    ],
)
def test_text_is_text(body: bytes, content_type: str, text: str) -> None:
    assert result(body, content_type) == {"content": [{"type": "text", "text": text}]}


def test_images_sounds_and_other_data_keep_their_bytes() -> None:
    data = bytes(range(256))
    for content_type, handle in (
        ("image/png", "mcp:t:image:0"),
        ("audio/wav", "mcp:t:audio:0"),
        ("application/pdf", "mcp:t:resource:0"),
        ("", "mcp:t:resource:0"),
    ):
        envelope, binaries, _ = mcp_result_to_envelope(result(data, content_type), "t")
        assert envelope.status == "ok"
        assert binaries[handle][:2] == (data, content_type or "application/octet-stream")
    assert result(data)["content"][0]["resource"]["uri"] == URI
    assert base64.b64decode(result(data)["content"][0]["resource"]["blob"]) == data


@pytest.mark.parametrize("status", [200, 202, 204])
def test_an_answer_without_a_body_is_an_empty_ok(status: int) -> None:
    assert result(b"", "application/json", status) == {"content": []}


def test_where_a_new_thing_is_can_be_seen() -> None:
    assert texts(result(b"", "", 201, location="/orders/5")) == ["Location: /orders/5"]


@requirement("UP-31")
@pytest.mark.parametrize(("status", "phrase"), [(400, "Bad Request"), (404, "Not Found"), (500, "Internal"), (599, "")])
def test_a_refusal_is_an_error_result_with_status_and_body(status: int, phrase: str) -> None:
    found = result(b'{"detail": "no such pet"}', "application/problem+json", status)
    assert found["isError"] is True
    assert texts(found)[0].startswith(f"HTTP {status} {phrase}".strip())
    assert found["structuredContent"] == {"detail": "no such pet"}
    assert json.loads(texts(found)[1]) == {"detail": "no such pet"}


@pytest.mark.parametrize("status", [429, 503])
def test_the_time_of_the_next_try_is_in_the_result(status: int) -> None:
    assert "Retry-After: 30" in texts(result(b"", "", status, retry_after="30"))[0]


def test_a_long_refusal_is_cut() -> None:
    found = result(b"x" * 100_000, "text/html", 500)
    assert len(texts(found)[1]) < 17_000 and texts(found)[1].endswith("(cut)")
    assert "structuredContent" not in result(b'{"a": "' + b"x" * 100_000 + b'"}', "application/json", 500)
    assert "(cut)" in texts(result(b"short", "text/plain", 500, cut=True))[1]


def test_binary_data_of_a_refusal_is_not_shown() -> None:
    assert len(result(b"\x89PNG", "image/png", 500)["content"]) == 1


def test_a_redirect_is_reported_without_its_target() -> None:
    found = result(b"", "", 302, location="https://elsewhere.example/?token=secret")
    assert found["isError"] is True
    assert "elsewhere" not in json.dumps(found)
