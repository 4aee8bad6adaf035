import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.results.budget import COUNTED_CHARS, CUT, INLINE_TOKENS, MAX_REFS, TokenCount, count_within
from wicketgate.results.envelope import ArtifactRef
from wicketgate.results.firewall import Sealed, is_bulky, seal_result
from wicketgate.results.selector import select
from wicketgate.tokens import TokenCounter, shipped_token_counter

TOOL_ID = "github:read@1"
TOKENS: TokenCounter = shipped_token_counter()


def text_result(text: str, **extra: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], **extra}


def seal(result: object, tool_name: str = "read", **options: Any) -> Sealed:
    return seal_result(result, TOOL_ID, tool_name, TOKENS, **options)


def cost(sealed: Sealed) -> int:
    return TOKENS.count(sealed.page)


LONG = "line one\n" + "more words to read\n" * 400


def whole_text(sealed: Sealed) -> str:
    note = " […goes on in facts]"
    return sealed.envelope.summary.removesuffix(note) + sealed.envelope.facts[0].removeprefix("[…] ")


@requirement("EXEC-28")
def test_a_text_that_is_not_shown_whole_is_kept_under_a_handle_of_its_tool() -> None:
    sealed = seal(text_result(LONG))
    envelope, (artifact,) = sealed.envelope, sealed.artifacts
    assert artifact.ref.handle.startswith(f"text:{TOOL_ID}:")
    assert envelope.artifacts == (artifact.ref,)
    assert select(artifact.data, artifact.ref.media_type, {"type": "head", "chars": 8}).content == "line one"
    assert f"; go on: tool_view {artifact.ref.handle} {{" in sealed.page
    assert envelope.provenance == {"tool": "read", "protocol": "mcp", "tool_id": TOOL_ID}


@requirement("EXEC-28")
def test_the_handle_is_made_of_the_content() -> None:
    expected = f"text:{TOOL_ID}:{hashlib.sha256(LONG.encode()).hexdigest()[:16]}"
    assert seal(text_result(LONG)).artifacts[0].ref.handle == expected
    assert seal(text_result(LONG)).artifacts[0].ref.handle == expected


@requirement("EXEC-28")
def test_each_call_can_be_viewed_as_what_it_was() -> None:
    values = [{"n": [number] * 2_000} for number in (1, 2)]
    first, second = (seal({"content": [], "structuredContent": value}).artifacts for value in values)
    assert first[0].ref.handle != second[0].ref.handle
    assert [json.loads(each[0].data) for each in (first, second)] == values


@requirement("EXEC-25")
def test_a_text_of_1500_characters_can_be_read_without_a_second_call() -> None:
    text = "The fox jumps over the lazy dog. " * 45
    sealed = seal(text_result(text))
    assert whole_text(sealed) == text
    assert len(sealed.envelope.summary) <= 500
    assert sealed.shown_tokens <= INLINE_TOKENS


def test_what_is_given_whole_is_a_matter_of_tokens_not_of_characters() -> None:
    cheap, dear = "word " * 380, "😀" * 380
    assert whole_text(seal(text_result(cheap))) == cheap
    assert "kept out" in seal(text_result(dear)).envelope.summary
    assert "kept out" in seal(text_result(cheap), inline_tokens=300).envelope.summary
    assert seal(text_result(dear), inline_tokens=1_000).envelope.summary == dear


@requirement("EXEC-25")
def test_a_large_text_is_a_head_that_tells_what_is_kept_out_and_how_to_read_on() -> None:
    text = "".join(f"line {i}\n" for i in range(5_000))
    sealed = seal(text_result(text))
    summary = sealed.envelope.summary
    assert len(summary) <= 500
    head = summary[: summary.index("\n[…")]
    assert f"{len(text) - len(head):,} characters, {5_000 - head.count(chr(10)):,} lines, about " in summary
    assert sealed.envelope.facts == ()
    selector = json.loads(summary[summary.index("{") : summary.index("}") + 1])
    assert text.startswith(head + select(sealed.artifacts[0].data, "text/plain", selector).content)


@requirement("EXEC-58")
def test_what_is_kept_out_is_counted_by_a_beginning_and_told_as_about() -> None:
    for times in (300, 30_000):
        long = "The fox jumps. " * times
        sealed = seal(text_result(long))
        assert not sealed.raw.exact
        assert abs(sealed.raw.tokens / TOKENS.count(long) - 1) < 0.01
        assert ", about " in sealed.envelope.summary
        assert abs(sealed.shown_tokens / cost(sealed) - 1) < 0.2
    dear = "😀" * 400
    sealed = seal(text_result(dear))
    assert sealed.raw == TokenCount(TOKENS.count(dear), True)
    assert "about" not in sealed.envelope.summary


@requirement("EXEC-58")
def test_what_is_surely_within_the_budget_is_not_counted_at_all() -> None:
    class Uncounted:
        def count(self, text: str) -> int:
            raise AssertionError(text)

        def encode(self, text: str) -> list[int]:
            raise AssertionError

        def decode(self, tokens: Sequence[int]) -> bytes:
            raise AssertionError

    sealed = seal_result(text_result("x" * 100), TOOL_ID, "read", Uncounted())
    assert sealed.text == json.dumps(sealed.envelope.as_dict(), ensure_ascii=False, separators=(",", ":"))
    assert (sealed.page, sealed.shown_tokens, sealed.raw) == ("x" * 100, 25, TokenCount(25, False))


@requirement("EXEC-26")
def test_the_raw_result_costs_as_much_as_its_texts_or_without_any_its_structured_content() -> None:
    structured = {"a": ["the quick fox"] * 60}
    image = {"type": "image", "data": base64.b64encode(b"x" * 9_000).decode(), "mimeType": "image/png"}
    text = "The fox jumps over the lazy dog. " * 20
    for result, counted in (
        (text_result(text, structuredContent=structured), text),
        ({"content": [image], "structuredContent": structured}, json.dumps(structured, separators=(",", ":"))),
    ):
        assert abs(seal(result).raw.tokens / TOKENS.count(counted) - 1) < 0.4
    assert seal({"content": [image]}).raw.tokens == 0


def test_structured_content_that_fits_is_given_whole_and_otherwise_in_short_with_its_size() -> None:
    small = {"result": [{"id": number} for number in range(20)], "n": 20}
    whole = seal({"content": [], "structuredContent": small})
    assert json.loads(whole.page) == whole.envelope.structured_content == small
    assert (json.loads(whole.envelope.facts[0][len("result: ") :]), whole.artifacts) == (small["result"], ())
    dense = {"result": [{"id": number, "é": "😀"} for number in range(60)], "n": 60}
    envelope = seal({"content": [], "structuredContent": dense}).envelope
    assert envelope.facts == ('result: list of 60, the first: {"id":0,"é":"😀"}', "n: 60")
    assert f"{len(json.dumps(dense, ensure_ascii=False, separators=(',', ':'))):,} characters" in envelope.summary


@requirement("EXEC-27")
def test_only_a_beginning_is_ever_counted() -> None:
    class Watched:
        longest = 0

        def count(self, text: str) -> int:
            self.longest = max(self.longest, len(text))
            return TOKENS.count(text)

        def encode(self, text: str) -> list[int]:
            raise AssertionError

        def decode(self, tokens: Sequence[int]) -> bytes:
            raise AssertionError

    watched = Watched()
    for hostile in ("a" * 2_000_000, " " * 2_000_000, "😀" * 500_000, "\n" * 1_000_000):
        seal_result(text_result(hostile, structuredContent={"t": hostile}), TOOL_ID, "t", watched)
        seal_result({"content": [], "structuredContent": {hostile: hostile}}, TOOL_ID, "t", watched)
    assert COUNTED_CHARS <= watched.longest <= 8_000


@pytest.mark.parametrize(
    "large",
    [
        text_result("x" * 100_000),
        {"content": [{"type": "image", "data": "x" * 100_000}]},
        {"content": [{"type": "resource", "resource": {"blob": "x" * 100_000}}]},
        {"content": [{"type": "text", "text": ""}] * 5_000},
        {"content": [], "structuredContent": {"rows": [1] * 5_000}},
        {"content": [], "structuredContent": {"k" * 100_000: 1}},
    ],
)
def test_what_takes_long_to_seal_is_bulky_wherever_it_is_large(large: object) -> None:
    assert is_bulky(large)


@pytest.mark.parametrize("small", [None, "x", {}, text_result("x" * 10_000), {"structuredContent": {"a": [1] * 100}}])
def test_what_is_sealed_at_once_is_not_bulky(small: object) -> None:
    assert not is_bulky(small)


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
    sealed = seal({"content": content, "structuredContent": {"a": 1}})
    kinds = [artifact.ref.handle.split(":")[0] for artifact in sealed.artifacts]
    assert kinds == ["image", "audio", "resource", "malformed"], "what the page shows is not kept"
    assert "link: X | https://x.example/" in sealed.envelope.facts
    large = {"content": [{"type": "text", "text": LONG}, *content[1:]], "structuredContent": {"a": 1}}
    sealed = seal(large)
    kinds = [artifact.ref.handle.split(":")[0] for artifact in sealed.artifacts]
    assert kinds == [
        *("text", "image", "audio", "resource", "resource_link", "malformed", "structured_content", "index")
    ]


def test_a_tool_name_with_colons_does_not_confuse_the_kinds() -> None:
    links = [{"type": "resource_link", "uri": f"a:{number}"} for number in range(21)]
    sealed = seal({"content": links}, "x:image:y")
    assert sealed.artifacts[0].ref.handle.startswith(f"resource_link:{TOOL_ID}:")


def test_the_same_image_twice_is_one_artifact() -> None:
    part = {"type": "image", "data": base64.b64encode(b"same").decode(), "mimeType": "image/png"}
    sealed = seal({"content": [part, part]})
    assert (len(sealed.envelope.artifacts), len(sealed.artifacts)) == (1, 1)


def test_the_same_bytes_under_another_name_or_type_are_a_second_artifact() -> None:
    data = base64.b64encode(b"same").decode()

    def blob(uri: str, media_type: str) -> dict[str, object]:
        return {"type": "resource", "resource": {"uri": uri, "blob": data, "mimeType": media_type}}

    parts = [blob("a:one", "image/png"), blob("a:two", "image/png"), blob("a:one", "image/gif")]
    sealed = seal({"content": [*parts, parts[0]]}, inline_tokens=2_000)
    assert len({artifact.ref.handle for artifact in sealed.artifacts}) == 3
    assert [ref.label for ref in sealed.envelope.artifacts] == [artifact.ref.label for artifact in sealed.artifacts]
    alone = {artifact.ref.handle for part in parts for artifact in seal({"content": [part]}).artifacts}
    assert alone == {artifact.ref.handle for artifact in sealed.artifacts}, "independent of the rest of the result"


@pytest.mark.parametrize("budget", [300, 500, 1_000, 2_500, 10_000])
@pytest.mark.parametrize("name_chars", range(1, 60, 7))
def test_the_list_of_all_takes_the_place_of_a_reference_and_not_the_room_of_the_text(
    budget: int, name_chars: int
) -> None:
    def cost_of(ref: ArtifactRef) -> int:
        return TOKENS.count(json.dumps(ref.as_dict(), ensure_ascii=False, separators=(",", ":")))

    content = [{"type": "resource_link", "uri": f"a:{i}", "name": "n" * name_chars + str(i)} for i in range(60)]
    listed = seal({"content": content}, inline_tokens=budget).envelope.artifacts
    assert listed[-1].handle.startswith("index:")
    assert 2 <= len(listed) <= MAX_REFS
    # The words for the list may cost a few tokens more than the name of the reference that gave way to it.
    assert sum(map(cost_of, listed)) <= budget * 2 // 5 + 10


def test_very_many_artifacts_are_listed_in_one_more() -> None:
    content = [{"type": "resource_link", "uri": f"https://x.example/{i}"} for i in range(200)]
    sealed = seal({"content": content})
    assert len(sealed.artifacts) == 201
    assert sealed.shown_tokens <= INLINE_TOKENS
    index = sealed.envelope.artifacts[-1]
    (listing,) = [artifact.data for artifact in sealed.artifacts if artifact.ref == index]
    assert len(json.loads(listing)) == 200
    assert "/199" in select(listing, index.media_type, {"type": "rows", "start": 199}).content


@requirement("EXEC-24")
def test_no_result_at_all_is_an_error_envelope() -> None:
    sealed = seal(None)
    assert (sealed.envelope.status, sealed.artifacts) == ("error", ())


def test_notes_on_very_many_parts_are_counted_not_repeated() -> None:
    part = {"type": "text", "text": "", "annotations": {"priority": 0.5}}
    provenance = seal({"content": [part] * 1_000}).envelope.provenance
    assert provenance.get("content_annotations_left_out", 1_000) > 900


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=4_000), st.booleans())
def test_the_text_is_never_lost(text: str, is_error: bool) -> None:
    sealed = seal(text_result(text, isError=is_error))
    page = sealed.page.removeprefix("[the tool reports an error]").removeprefix("\n" if is_error else "")
    kept = b"".join(artifact.data for artifact in sealed.artifacts)
    assert kept == text.encode() if kept else page == (text or "(no content)")
    assert len(sealed.envelope.summary) <= 500
    assert sealed.envelope.status == ("error" if is_error else "ok")


WORDS = st.sampled_from(
    [
        "a",
        "word ",
        "😀",
        "\n",
        '"',
        "ก",
        "}{",
        "a\u0301",
        " ",
        "1",
        "\\",
        "é",
        "\t,",
        "漢字かな",
        "。",
        "한국어 ",
        "👩‍👩‍👧",
        "\r\n ",
        "iVBORw0KGgoAAAANSUhEUgAA",
        "  ",
        "\u00a0",
        "don't ",
        "Ωλ",
        "\u3000",
        "١٢٣",
        "ſ's",
        "\x1f",
        "_",
        "0x1F,",
        "'S",
        "²",
    ]
)
TEXTS = st.builds(lambda pieces, times: "".join(pieces) * times, st.lists(WORDS, max_size=8), st.integers(1, 500))
PARTS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text, "annotations": {"priority": 1}}, TEXTS),
    st.builds(lambda text: {"type": "resource_link", "uri": text, "name": text, "description": text}, TEXTS),
    st.builds(lambda text: {"type": "resource", "resource": {"uri": text, "text": text}}, TEXTS),
    st.builds(lambda text: {"type": text}, TEXTS),
)
STRUCTURED = st.none() | TEXTS | st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=5), max_size=40)


@requirement("EXEC-57")
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(TEXTS, max_size=6).map("".join), st.integers(20, 1_200))
def test_a_text_counted_in_pieces_has_the_tokens_of_the_whole(text: str, limit: int) -> None:
    counted = TOKENS.count(text)
    found = count_within(text, limit, TOKENS)
    assert found.fits is (counted <= limit)
    assert not found.fits or (found.tokens, found.chars) == (counted, len(text))


@requirement("EXEC-57")
def test_a_text_without_a_cut_is_counted_whole_and_one_beyond_its_limit_is_not_read_to_its_end() -> None:
    for uncut in ("abc" * 700, " " * 2_800):
        pieces = sum(TOKENS.count(uncut[at : at + COUNTED_CHARS]) for at in range(0, len(uncut), COUNTED_CHARS))
        assert pieces != TOKENS.count(uncut)
        assert count_within(uncut, 5_000, TOKENS).tokens == TOKENS.count(uncut)
    assert count_within("word " * 20_000, 500, TOKENS).chars < 4_000
    assert count_within("漢字" * 20_000, 500, TOKENS).chars < 4_000


@requirement("EXEC-57")
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=40).map("".join), st.text(max_size=30), st.integers(0, 60))
def test_a_cut_is_where_every_text_is_parted(words: str, foreign: str, at: int) -> None:
    text = words + foreign + words
    if (cut := CUT.search(text, at)) is not None:
        left, right = text[: cut.end()], text[cut.end() :]
        assert TOKENS.encode(text) == TOKENS.encode(left) + TOKENS.encode(right)


@requirement("EXEC-25", "EXEC-57")
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(PARTS, max_size=25), STRUCTURED, st.sampled_from([300, 500, 1_000]))
def test_an_envelope_never_costs_more_than_its_budget(parts: list[object], structured: object, budget: int) -> None:
    sealed = seal({"content": parts, "structuredContent": structured}, inline_tokens=budget)
    assert cost(sealed) <= budget
    assert sealed.text == json.dumps(sealed.envelope.as_dict(), ensure_ascii=False, separators=(",", ":"))
    assert len(sealed.envelope.summary) <= 500
    for ref in sealed.envelope.artifacts:
        assert ref.handle in {artifact.ref.handle for artifact in sealed.artifacts}
