import base64
import hashlib
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from app.results.firewall import INLINE_CHARS, MAX_REFS, seal_result
from app.results.selector import select
from tests.support.requirement import requirement

TOOL_ID = "github:read@1"


def text_result(text: str, **extra: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], **extra}


@requirement("gateway 92", "S0 §4.2")
def test_even_a_short_text_is_kept_under_a_handle_of_its_tool() -> None:
    envelope, artifacts = seal_result(
        text_result("line one\nline two\nline three\nline four\nline five"), TOOL_ID, "read"
    )
    (artifact,) = artifacts
    assert artifact.ref.handle.startswith(f"text:{TOOL_ID}:")
    assert envelope.artifacts == (artifact.ref,)
    assert select(artifact.data, artifact.ref.media_type, {"type": "head", "chars": 8}).content == "line one"
    assert envelope.summary.endswith("line five")
    assert envelope.provenance == {"tool": "read", "protocol": "mcp", "tool_id": TOOL_ID}


@requirement("gateway 95")
def test_the_handle_is_made_of_the_content() -> None:
    expected = f"text:{TOOL_ID}:{hashlib.sha256(b'same').hexdigest()[:16]}"
    assert seal_result(text_result("same"), TOOL_ID, "read")[1][0].ref.handle == expected
    assert seal_result(text_result("same"), TOOL_ID, "read")[1][0].ref.handle == expected


def test_the_digest_can_be_chosen() -> None:
    _, artifacts = seal_result(text_result("a"), TOOL_ID, "read", lambda data: "0123456789abcdef-and-more")
    assert artifacts[0].ref.handle == f"text:{TOOL_ID}:0123456789abcdef"


@requirement("gateway 96")
def test_each_call_can_be_viewed_as_what_it_was() -> None:
    _, first = seal_result({"content": [], "structuredContent": {"n": 1}}, TOOL_ID, "read")
    _, second = seal_result({"content": [], "structuredContent": {"n": 2}}, TOOL_ID, "read")
    assert first[0].ref.handle != second[0].ref.handle
    assert [json.loads(each[0].data) for each in (first, second)] == [{"n": 1}, {"n": 2}]


def test_a_text_of_1500_characters_can_be_read_without_a_second_call() -> None:
    text = "".join(f"{i:04} " for i in range(300))
    envelope, _ = seal_result(text_result(text), TOOL_ID, "read")
    note = " […goes on in facts]"
    assert envelope.summary.removesuffix(note) + envelope.facts[0].removeprefix("[…] ") == text
    assert len(envelope.summary) <= 500


def test_a_large_text_is_a_head_with_counts_and_a_way_to_the_rest() -> None:
    text = "".join(f"line {i}\n" for i in range(5_000))
    envelope, artifacts = seal_result(text_result(text), TOOL_ID, "read")
    assert len(envelope.summary) <= 500
    assert f"{len(text):,} characters, 5,000 lines" in envelope.summary
    assert envelope.facts == ()
    selector = json.loads(envelope.summary[envelope.summary.index("{") : envelope.summary.index("}") + 1])
    head = envelope.summary[: envelope.summary.index("\n[…")]
    following = select(artifacts[0].data, "text/plain", selector).content
    assert text.startswith(head + following)


def test_every_kind_of_content_gets_its_own_kind_of_handle() -> None:
    data = base64.b64encode(b"bytes").decode()
    content = [
        {"type": "text", "text": "a"},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "audio", "data": data, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "a:b", "blob": data}},
        {"type": "resource_link", "uri": "https://x.example/", "name": "X"},
        {"type": "odd"},
    ]
    envelope, artifacts = seal_result({"content": content, "structuredContent": {"a": 1}}, TOOL_ID, "t")
    kinds = [artifact.ref.handle.split(":")[0] for artifact in artifacts]
    assert kinds == ["text", "image", "audio", "resource", "resource_link", "malformed", "structured_content"]
    assert "link X: https://x.example/" in envelope.facts


def test_a_tool_name_with_colons_does_not_confuse_the_kinds() -> None:
    _, artifacts = seal_result({"content": [{"type": "resource_link", "uri": "a:b"}]}, TOOL_ID, "x:image:y")
    assert artifacts[0].ref.handle.startswith(f"resource_link:{TOOL_ID}:")


def test_the_same_image_twice_is_one_artifact() -> None:
    part = {"type": "image", "data": base64.b64encode(b"same").decode(), "mimeType": "image/png"}
    envelope, artifacts = seal_result({"content": [part, part]}, TOOL_ID, "t")
    assert (len(envelope.artifacts), len(artifacts)) == (1, 1)


def test_very_many_artifacts_are_listed_in_one_more() -> None:
    content = [{"type": "resource_link", "uri": f"https://x.example/{i}"} for i in range(200)]
    envelope, artifacts = seal_result({"content": content}, TOOL_ID, "t")
    assert (len(envelope.artifacts), len(artifacts)) == (MAX_REFS, 201)
    assert len(json.dumps(envelope.as_dict())) < 10_000
    index = envelope.artifacts[-1]
    (listing,) = [artifact.data for artifact in artifacts if artifact.ref == index]
    assert len(json.loads(listing)) == 200
    assert "/199" in select(listing, index.media_type, {"type": "rows", "start": 199}).content


@requirement("gateway 90")
def test_no_result_at_all_is_an_error_envelope() -> None:
    envelope, artifacts = seal_result(None, TOOL_ID, "t")
    assert (envelope.status, artifacts) == ("error", [])


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=INLINE_CHARS * 2), st.booleans())
def test_the_text_is_never_lost(text: str, is_error: bool) -> None:
    envelope, artifacts = seal_result(text_result(text, isError=is_error), TOOL_ID, "t")
    assert b"".join(artifact.data for artifact in artifacts) == text.encode()
    assert len(envelope.summary) <= 500
    assert envelope.status == ("error" if is_error else "ok")
