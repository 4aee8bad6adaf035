import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.results.envelope import ArtifactRef, ResultEnvelope, mcp_result_to_envelope, shorten

PNG = b"\x89PNG\r\n\x1a\n0000"


def result(*parts: object, **extra: object) -> dict[str, object]:
    return {"content": list(parts), **extra}


def text(value: str) -> dict[str, object]:
    return {"type": "text", "text": value}


@requirement("EXEC-18")
def test_a_text_result_gives_its_text_and_where_it_came_from() -> None:
    envelope, binaries, full = mcp_result_to_envelope(result(text("status: ok\ncount: 42")), "query")
    assert (envelope.status, envelope.summary, full) == ("ok", "status: ok\ncount: 42", "status: ok\ncount: 42")
    assert (binaries, envelope.provenance) == ({}, {"tool": "query", "protocol": "mcp"})


@requirement("EXEC-19")
def test_a_tool_that_reports_an_error_gives_status_error() -> None:
    envelope, _, full = mcp_result_to_envelope(result(text("no such file"), isError=True), "read")
    assert (envelope.status, full) == ("error", "no such file")


@requirement("EXEC-21")
def test_images_and_audio_are_decoded_into_binaries() -> None:
    image = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    audio = {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}
    envelope, binaries, _ = mcp_result_to_envelope(result(image, audio), "screenshot")
    assert binaries["mcp:screenshot:image:0"][:2] == (PNG, "image/png")
    assert binaries["mcp:screenshot:audio:1"][:2] == (b"RIFF", "audio/wav")
    assert [ref.size_bytes for ref in envelope.artifacts] == [len(PNG), 4]
    assert envelope.status == "ok"


@requirement("EXEC-21")
def test_what_is_not_base64_is_kept_as_it_came() -> None:
    part = {"type": "audio", "data": "!!not base64!!", "mimeType": "audio/wav"}
    envelope, binaries, _ = mcp_result_to_envelope(result(part), "say")
    assert binaries["mcp:say:audio:0"][0] == b"!!not base64!!"
    assert envelope.status == "partial"


def test_base64_wrapped_into_lines_is_decoded() -> None:
    wrapped = base64.encodebytes(PNG * 20).decode()
    _, binaries, _ = mcp_result_to_envelope(result({"type": "image", "data": wrapped, "mimeType": "image/png"}), "t")
    assert binaries["mcp:t:image:0"][0] == PNG * 20


@requirement("EXEC-21")
def test_a_text_resource_is_text_and_an_artifact_of_its_own_type() -> None:
    part = {"type": "resource", "resource": {"uri": "file:///a.md", "text": "# A", "mimeType": "text/markdown"}}
    envelope, binaries, full = mcp_result_to_envelope(result(text("see"), part), "read_file")
    assert full == "see\n# A"
    assert binaries["mcp:read_file:resource:1"] == (b"# A", "text/markdown", "file:///a.md")
    assert envelope.artifacts == (ArtifactRef("mcp:read_file:resource:1", "text/markdown", "file:///a.md", 3),)


@requirement("EXEC-21")
def test_the_bytes_of_a_blob_resource_are_kept() -> None:
    part = {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": base64.b64encode(b"\0\1\2").decode()}}
    _, binaries, full = mcp_result_to_envelope(result(part), "read_file")
    assert (binaries["mcp:read_file:resource:0"][0], full) == (b"\0\1\2", "")


@requirement("EXEC-21")
@pytest.mark.parametrize(("extra", "label"), [({"name": "Report"}, "Report"), ({}, "https://x.example/r")])
def test_a_resource_link_keeps_its_address(extra: dict[str, str], label: str) -> None:
    part = {"type": "resource_link", "uri": "https://x.example/r", **extra}
    envelope, binaries, _ = mcp_result_to_envelope(result(part), "find")
    assert binaries["mcp:find:resource_link:0"] == (b"https://x.example/r", "text/uri-list", label)
    assert envelope.artifacts[0].size_bytes == len("https://x.example/r")


@requirement("EXEC-18", "EXEC-22")
def test_structured_content_is_an_artifact_and_its_top_level_becomes_facts() -> None:
    structured = {"count": 42, "status": "done", "open": True, "owner": None}
    envelope, binaries, _ = mcp_result_to_envelope(result(text("done"), structuredContent=structured), "query")
    data, media_type, _ = binaries["mcp:query:structured_content"]
    assert (json.loads(data), media_type) == (structured, "application/json")
    assert envelope.facts == ("count: 42", "status: done", "open: true", "owner: null")


def test_large_structured_content_gives_short_and_few_facts() -> None:
    structured = {"rows": list(range(5_000)), "page": {"n": "x" * 900}, "body": "b" * 10_000} | {
        f"k{i}": i for i in range(100)
    }
    envelope, _, _ = mcp_result_to_envelope(result(structuredContent=structured), "query")
    assert envelope.facts[:4] == (
        "rows: list of 5,000, the first: 0",
        "page: object of 1 keys: n",
        "body: text of 10,000 characters",
        "k0: 0",
    )
    assert envelope.facts[-1] == "(83 more keys)"
    assert len(envelope.facts) == 21


def test_small_structured_content_is_given_whole() -> None:
    structured = {"result": [{"id": i, "name": "n" * 20} for i in range(30)]}
    envelope, _, _ = mcp_result_to_envelope(result(structuredContent=structured), "query")
    assert json.loads(envelope.facts[0].removeprefix("result: ")) == structured["result"]


@requirement("EXEC-22")
@pytest.mark.parametrize(("value", "fact"), [([1, 2], "value: [1,2]"), (42, "value: 42"), ("a", "value: a")])
def test_structured_content_of_the_newer_era_need_not_be_an_object(value: object, fact: str) -> None:
    envelope, binaries, _ = mcp_result_to_envelope(result(structuredContent=value), "query")
    assert json.loads(binaries["mcp:query:structured_content"][0]) == value
    assert (envelope.status, envelope.facts) == ("ok", (fact,))


@requirement("EXEC-18", "EXEC-23")
def test_annotations_of_parts_are_collected_with_their_index() -> None:
    noted = {**text("b"), "annotations": {"audience": ["user"], "priority": 0.9, "odd": object}}
    envelope, _, _ = mcp_result_to_envelope(result(text("a"), noted), "t")
    assert envelope.provenance["content_annotations"] == [{"part_index": 1, "audience": ["user"], "priority": 0.9}]
    assert "content_annotations" not in mcp_result_to_envelope(result(text("a")), "t")[0].provenance


@requirement("EXEC-20")
def test_text_parts_are_joined_by_newlines_and_nothing_is_said_to_be_nothing() -> None:
    assert mcp_result_to_envelope(result(text("a"), text("b")), "t")[2] == "a\nb"
    assert mcp_result_to_envelope(result(), "t")[0].summary == "(no content)"


@requirement("EXEC-18", "EXEC-20")
def test_the_summary_has_at_most_500_characters_and_the_full_text_is_complete() -> None:
    envelope, _, full = mcp_result_to_envelope(result(text("x" * 3_000)), "t")
    assert (len(envelope.summary), full) == (500, "x" * 3_000)


@requirement("EXEC-24")
@pytest.mark.parametrize(
    ("broken", "status"),
    [
        (None, "error"),
        ("text", "error"),
        ([], "error"),
        ({"content": None}, "partial"),
        ({"content": 5}, "partial"),
        ({"content": [{"type": "text", "text": None}]}, "partial"),
        ({"content": [None]}, "partial"),
        ({"content": [{"text": "a"}]}, "partial"),
        ({"content": [{"type": "hologram", "data": "x"}]}, "partial"),
        ({"content": [{"type": "resource", "resource": {"uri": "a:b"}}]}, "partial"),
        ({"content": [], "isError": "yes"}, "error"),
    ],
)
def test_a_malformed_result_is_an_envelope_that_says_so(broken: object, status: str) -> None:
    envelope, _, _ = mcp_result_to_envelope(broken, "t")
    assert envelope.status == status
    assert envelope.provenance["problems"]


@requirement("EXEC-24")
def test_text_of_a_malformed_content_is_still_text() -> None:
    assert mcp_result_to_envelope({"content": "plain"}, "t")[2] == "plain"
    assert mcp_result_to_envelope({"content": text("one")}, "t")[2] == "one"


def test_a_part_of_unknown_type_is_kept_as_json() -> None:
    part = {"type": "hologram", "data": "deadbeef"}
    _, binaries, _ = mcp_result_to_envelope(result(part), "t")
    assert json.loads(binaries["mcp:t:malformed:0"][0]) == part


@requirement("CARD-27")
def test_special_tokens_of_a_model_are_ordinary_text() -> None:
    assert mcp_result_to_envelope(result(text("<|endoftext|>")), "t")[0].summary == "<|endoftext|>"


def test_text_with_a_lone_surrogate_can_be_sent_on() -> None:
    envelope, _, _ = mcp_result_to_envelope(result(text("a\ud800b"), structuredContent={"k": "\ud800"}), "t")
    assert json.dumps(envelope.as_dict(), ensure_ascii=False).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "other"]) | JSON},
    optional=dict.fromkeys(("text", "data", "mimeType", "resource", "uri", "name", "annotations"), JSON),
)


@requirement("EXEC-24")
@settings(max_examples=examples(150), deadline=None)
@given(
    JSON
    | st.fixed_dictionaries(
        {"content": st.lists(PARTS | JSON, max_size=4) | JSON}, optional={"isError": JSON, "structuredContent": JSON}
    )
)
def test_any_answer_of_an_upstream_gives_an_envelope_within_its_bounds(answer: Any) -> None:
    envelope, binaries, _ = mcp_result_to_envelope(answer, "t")
    assert len(envelope.summary) <= 500
    assert {ref.handle: ref.size_bytes for ref in envelope.artifacts} == {k: len(v[0]) for k, v in binaries.items()}
    assert json.dumps(envelope.as_dict(), ensure_ascii=False).encode()


@requirement("EXEC-18")
def test_the_wire_shape_has_exactly_the_fields_of_the_design() -> None:
    envelope = ResultEnvelope("ok", "s", ("f",), (ArtifactRef("h", "text/plain", "l", 3),), {"tool": "t"})
    assert envelope.as_dict() == {
        "status": "ok",
        "summary": "s",
        "facts": ["f"],
        "artifacts": [{"handle": "h", "media_type": "text/plain", "label": "l", "size_bytes": 3}],
        "provenance": {"tool": "t"},
    }


@pytest.mark.parametrize(("limit", "short"), [(5, "abcde"), (4, "abc…"), (1, "…"), (0, "")])
def test_shortened_text_ends_in_an_ellipsis(limit: int, short: str) -> None:
    assert shorten("abcde", limit) == short
