import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.errors import ViewFailed
from wicketgate.results.selector import FORMS, MAX_MEDIA_BYTES, select
from wicketgate.results.view import MAX_VIEW_CHARS, View

LINES = "line0\nline1\nline2\nline3\nline4"
PERSON = '{"name": "Alice", "age": 30, "role": "admin"}'


def view(content: str, selector: object, media_type: str = "text/plain") -> View:
    return select(content.encode(), media_type, selector)


def follow(data: bytes, selector: dict[str, Any], media_type: str = "text/plain") -> list[View]:
    """Every page from *selector* on."""
    pages = []
    following: dict[str, Any] | None = selector
    while following is not None:
        pages.append(select(data, media_type, following))
        following = pages[-1].next
        assert len(pages) < 5_000
    return pages


@requirement("EXEC-33")
@pytest.mark.parametrize(
    ("content", "selector", "expected"),
    [
        ("hello world from drilldown", {"type": "head", "chars": 5}, "hello"),
        ("x" * 600, {"type": "head"}, "x" * 500),
        ("hello", {"type": "head", "chars": 0}, ""),
        (LINES, {"type": "lines", "start": 1, "end": 3}, "line1\nline2"),
        (LINES, {"type": "lines"}, LINES),
        (LINES, {"type": "lines", "start": 9}, ""),
        ("header\nrow1\nrow2\nrow3", {"type": "rows", "start": 0, "end": 2}, "header\nrow1\nrow2"),
        ("only a header", {"type": "rows"}, "only a header"),
        (PERSON, {"type": "json_keys", "keys": ["name", "role"]}, '{\n  "name": "Alice",\n  "role": "admin"\n}'),
        (PERSON, {"type": "json_keys", "keys": ["nope"]}, "{}"),
    ],
)
def test_a_selector_gives_its_part(content: str, selector: object, expected: str) -> None:
    assert view(content, selector).content == expected


@requirement("EXEC-33")
@pytest.mark.parametrize("content", ["not json", "[1,2]", "a,b\n1,2\n"])
def test_keys_of_what_is_no_object_are_a_failed_view(content: str) -> None:
    with pytest.raises(ViewFailed, match="JSON object"):
        view(content, {"type": "json_keys", "keys": ["a"]})


@requirement("EXEC-33")
@pytest.mark.parametrize(
    "selector",
    [
        {},
        None,
        "head",
        [],
        {"type": "unknown"},
        {"type": "HEAD"},
        {"type": ["head"]},
        {"type": "head", "chars": "3"},
        {"type": "head", "chars": True},
        {"type": "head", "chars": -1},
        {"type": "head", "chars": 2.5},
        {"type": "head", "limit": 3},
        {"type": "lines", "start": "a"},
        {"type": "lines", "start": -1},
        {"type": "rows", "end": None},
        {"type": "json_keys"},
        {"type": "json_keys", "keys": None},
        {"type": "json_keys", "keys": [{}]},
        {"type": "json_keys", "keys": ["a"] * 101},
        {"type": "rows", "offset": -1},
        {"type": "grep"},
        {"type": "grep", "pattern": ""},
        {"type": "grep", "pattern": "a\nb"},
        {"type": "grep", "pattern": "x" * 201},
        {"type": "grep", "pattern": "a", "context": 11},
        {"type": "grep", "pattern": "a", "context": -1},
        {"type": "grep", "pattern": "a", "ignore_case": 1},
    ],
)
def test_a_bad_selector_is_refused_with_the_valid_forms(selector: object) -> None:
    with pytest.raises(ViewFailed) as failure:
        view(PERSON, selector)
    assert all(form in failure.value.message for form in FORMS)


@requirement("EXEC-33")
@pytest.mark.parametrize("form", FORMS)
def test_the_forms_that_are_offered_are_accepted(form: str) -> None:
    assert view('{"a": [{"b": "an error"}]}', json.loads(form)).total > 0


@requirement("EXEC-34")
def test_an_answer_says_how_much_there_is_and_how_to_go_on() -> None:
    assert view("abcdef", {"type": "head", "chars": 2}) == View(
        "ab", 6, "chars", {"type": "head", "start": 2, "chars": 2}
    )
    assert view(LINES, {"type": "lines", "start": 1, "end": 3}) == View(
        "line1\nline2", 5, "lines", {"type": "lines", "start": 3, "end": 5}
    )
    assert view(LINES, {"type": "lines", "start": 3}).next is None


@requirement("EXEC-34")
@pytest.mark.parametrize("selector", [{"type": "head", "chars": 10**9}, {"type": "lines"}, {"type": "rows"}])
@pytest.mark.parametrize("line", ["x" * 99 + "\n", "é" * 50_000, "{}\n"])
def test_every_answer_is_bounded(selector: dict[str, Any], line: str) -> None:
    assert len(view(line * 1_000, selector).content) <= MAX_VIEW_CHARS


@requirement("EXEC-34")
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text("aé€😀\n\r ", max_size=40), max_size=30), st.integers(1, 7))
def test_the_pages_of_a_text_give_the_whole_text(pieces: list[str], size: int) -> None:
    text = "\n".join(pieces)
    data = text.encode()
    heads = follow(data, {"type": "head", "chars": size * 20})
    assert "".join(page.content for page in heads) == text
    assert {page.total for page in heads} == {len(text)}
    lines = follow(data, {"type": "lines", "start": 0, "end": size})
    assert "\n".join(page.content for page in lines) == text.removesuffix("\n")


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_a_line_longer_than_an_answer_is_read_on_by_characters(letter: str) -> None:
    text = "first\n" + letter * (2 * MAX_VIEW_CHARS + 5)
    pages = follow(text.encode(), {"type": "lines", "start": 1})
    assert "".join(page.content for page in pages) == letter * (2 * MAX_VIEW_CHARS + 5)


def test_few_lines_of_a_large_text_are_found_where_they_are() -> None:
    data = b"".join(b"%d\n" % number for number in range(200_000))
    page = select(data, "text/plain", {"type": "lines", "start": 199_990, "end": 199_993})
    assert (page.content, page.total) == ("199990\n199991\n199992", 200_000)


@requirement("EXEC-35", "EXEC-99")
def test_every_page_of_a_table_has_its_header_which_is_no_row() -> None:
    table = "name,age\na,1\nb,2\nc,3\n"
    first, later = (view(table, {"type": "rows", "start": at, "end": at + 1}, "text/csv") for at in (0, 1))
    assert first == View("name,age\na,1", 3, "rows", {"type": "rows", "start": 1, "end": 2})
    assert later == View("name,age\nb,2", 3, "rows", {"type": "rows", "start": 2, "end": 3})
    many = "id\n" + "".join(f"{number}\n" for number in range(4_000))
    assert view(many, {"type": "rows", "end": 1}, "text/csv").total == 4_000
    assert view("id\n", {"type": "rows"}, "text/csv") == View("id", 0, "rows", None)
    # All of a header that fills a page can be read.
    wide = view("x" * 30_000, {"type": "rows"}, "text/csv")
    assert (wide.total, wide.next) == (0, {"type": "head", "start": len(wide.content), "chars": MAX_VIEW_CHARS})


@requirement("EXEC-35")
@pytest.mark.parametrize("content", ['[{"a":1},{"a":2},{"a":3}]', '{"n": 3, "result": [{"a":1},{"a":2},{"a":3}]}'])
def test_rows_of_a_json_array_are_its_elements(content: str) -> None:
    page = view(content, {"type": "rows", "start": 1, "end": 2}, "application/json")
    assert page == View('{"a":2}', 3, "rows", {"type": "rows", "start": 2, "end": 3})


def test_all_rows_of_a_large_json_array_can_be_paged_through() -> None:
    rows = [{"id": number, "text": "é" * 300} for number in range(500)]
    pages = follow(json.dumps(rows).encode(), {"type": "rows"}, "application/json")
    assert [json.loads(row) for page in pages for row in page.content.split("\n")] == rows


def test_long_members_of_an_object_are_read_in_pages() -> None:
    value = ["word"] * 10_000
    pages = follow(json.dumps({"a": value, "b": 1}).encode(), {"type": "json_keys", "keys": ["a"]}, "application/json")
    assert json.loads("".join(page.content for page in pages)) == {"a": value}
    assert (len(pages) > 1, pages[0].total, pages[0].unit) == (True, 2, "keys")


def test_members_are_written_as_json_writes_them() -> None:
    value = {"a": {"b": [1, {"c": "x\ny"}], "d": {}}, "é": None}
    page = view(json.dumps(value), {"type": "json_keys", "keys": ["a", "é", "a"]})
    assert page.content == json.dumps(value, indent=2, ensure_ascii=False)


def test_json_that_holds_nan_is_read_too() -> None:
    assert view('{"a": NaN, "b": 1}', {"type": "json_keys", "keys": ["b"]}).content == '{\n  "b": 1\n}'


def test_a_lone_surrogate_in_json_can_be_sent_on() -> None:
    assert view('{"a": "\\ud800"}', {"type": "json_keys", "keys": ["a"]}).content.encode()


@requirement("EXEC-38")
@pytest.mark.parametrize(
    ("media_type", "kind"), [("image/png", "image"), ("Audio/WAV; rate=8000", "audio"), ("image/x-odd", "image")]
)
@pytest.mark.parametrize("selector", [{"type": "head"}, {"type": "grep", "pattern": "x"}])
def test_an_image_or_a_sound_is_given_as_it_is_with_a_description(
    media_type: str, kind: str, selector: dict[str, Any]
) -> None:
    page = select(b"\x89PNG", media_type, selector)
    plain = media_type.partition(";")[0].lower()
    assert page.media is not None
    assert (page.media.kind, page.media.media_type, page.media.data) == (kind, plain, b"\x89PNG")
    assert (page.content, page.total, page.next) == (f"{kind}, {plain}, 4 bytes", 4, None)


@requirement("EXEC-38")
def test_an_image_that_is_too_large_to_be_shown_is_bytes() -> None:
    data = b"\x89" * (MAX_MEDIA_BYTES + 1)
    page = select(data, "image/png", {"type": "head", "chars": 4})
    assert (page.media, page.content, page.total) == (None, "89898989", len(data))


@requirement("EXEC-21", "EXEC-38")
def test_bytes_that_are_no_text_are_read_in_hexadecimal_and_none_is_lost() -> None:
    data = bytes(range(256)) * 40
    pages = follow(data, {"type": "head", "chars": 1_000_000}, "application/octet-stream")
    assert bytes.fromhex("".join(page.content for page in pages)) == data
    assert (len(pages) > 1, pages[0].total, pages[0].unit) == (True, len(data), "bytes")
    assert all(len(page.content) <= MAX_VIEW_CHARS for page in pages)
    with pytest.raises(ViewFailed, match="no text"):
        select(data, "application/octet-stream", {"type": "lines"})


@pytest.mark.parametrize("media_type", ["image/svg+xml", "application/octet-stream", "application/vnd.x+json", "odd"])
def test_text_is_viewed_whatever_it_is_called(media_type: str) -> None:
    assert select("<é/>".encode(), media_type, {"type": "head"}).content == "<é/>"


def test_bytes_that_are_not_utf8_are_shown_as_far_as_they_can_be() -> None:
    assert select(b"a\xffb", "text/plain", {"type": "head"}).content == "a\ufffdb"


@requirement("EXEC-35")
def test_a_row_is_a_line_whatever_its_quotes() -> None:
    table = b'name,note\nann,"one\ntwo"\n5" pipe\n'
    pages = follow(table, {"type": "rows", "start": 0, "end": 2}, "text/csv")
    assert [page.content for page in pages] == ['name,note\nann,"one\ntwo"', 'name,note\n5" pipe']
    assert {page.total for page in pages} == {3}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text('ab," é', min_size=1, max_size=9), min_size=1, max_size=15), st.integers(1, 4))
def test_the_pages_of_a_table_give_all_its_rows(lines: list[str], size: int) -> None:
    header, *rows = lines
    pages = follow("\n".join(lines).encode(), {"type": "rows", "start": 0, "end": size}, "text/csv")
    shown = [row for page in pages for row in page.content.split("\n")[1:]]
    assert (shown, {page.total for page in pages}) == (rows, {len(rows)})
    assert all(page.content.split("\n")[0] == header for page in pages)


def test_an_element_longer_than_an_answer_is_read_in_parts_and_then_the_next_ones() -> None:
    elements = [1, {"text": "é" * 2 * MAX_VIEW_CHARS}, "last"]
    for data in (elements, {"n": 3, "result": elements}):
        pages = follow(json.dumps(data, ensure_ascii=False).encode(), {"type": "rows"})
        assert all(len(page.content) <= MAX_VIEW_CHARS for page in pages)
        first, *parts, last = pages
        assert first.content == "1"
        assert json.loads("".join(part.content for part in [*parts, last]).removesuffix('\n"last"')) == elements[1]
        assert last.content.endswith('\n"last"')


JSON = json.dumps({"a": [1, 2, 3]}).encode()


@requirement("EXEC-33")
@pytest.mark.parametrize("huge", [2**31, 2**63, 2**64, 10**30])
@pytest.mark.parametrize(
    "selector",
    [
        {"type": "head"},
        {"type": "lines"},
        {"type": "rows"},
        {"type": "json_keys", "keys": ["a"]},
        {"type": "json_path", "path": "$.a[*]"},
        {"type": "grep", "pattern": "a"},
    ],
    ids=lambda selector: str(selector["type"]),
)
def test_any_count_however_large_is_answered(selector: dict[str, object], huge: int) -> None:
    view = select(JSON, "application/json", {**selector, "start": huge})
    assert view.content == ""
    assert view.next is None


def test_names_that_would_swell_the_answer_are_refused() -> None:
    with pytest.raises(ViewFailed, match="together"):
        select(JSON, "application/json", {"type": "json_keys", "keys": ["k" * 1_000] * 3})


def test_a_byte_order_mark_is_no_part_of_the_data() -> None:
    marked = b"\xef\xbb\xbf" + JSON
    assert select(marked, "application/json", {"type": "json_path", "path": "$.a[0]"}).content == "1"
    assert select(marked, "application/json", {"type": "json_keys", "keys": ["a"]}).content != ""
    assert select(b"\xef\xbb\xbfid,x\n1,2", "text/csv", {"type": "rows", "start": 0}).content == "id,x\n1,2"


def test_json_lines_have_no_header_to_repeat() -> None:
    lines = b'{"a":1}\n{"a":2}\n{"a":3}'
    assert select(lines, "text/plain", {"type": "rows", "start": 1, "end": 2}).content == '{"a":2}'
