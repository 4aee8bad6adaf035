"""``rows`` of tables whose fields hold line breaks, and of arrays whose elements are longer than an answer."""

import csv
import io
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.results.selector import select
from wicketgate.results.view import MAX_VIEW_CHARS, View

TABLE = 'name,note\nann,"one\ntwo"\nbob,plain\neve,"a ""b""\n\nc"\n'


def follow(data: bytes, selector: dict[str, Any]) -> list[View]:
    pages = [select(data, "text/csv", selector)]
    while pages[-1].next is not None:
        pages.append(select(data, "text/csv", pages[-1].next))
        assert len(pages) < 2_000
    return pages


@requirement("DESIGN §3 Results")
def test_a_line_break_inside_quotes_does_not_end_a_row() -> None:
    page = select(TABLE.encode(), "text/csv", {"type": "rows", "start": 1, "end": 2})
    assert page == View('name,note\nann,"one\ntwo"', 4, "rows", {"type": "rows", "start": 2, "end": 3})
    last = select(TABLE.encode(), "text/csv", {"type": "rows", "start": 3})
    assert last == View('name,note\neve,"a ""b""\n\nc"', 4, "rows", None)


def test_a_quote_that_opens_no_field_is_text() -> None:
    for text in ('5" pipe\n6" pipe\nend', 'He said, "this is\nover two lines".\nend', 'a,"never closed\nb,c\nend'):
        assert select(text.encode(), "text/plain", {"type": "rows"}).total == 3


CELLS = st.text('ab,"\n é', max_size=5)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=2, max_size=3), min_size=1, max_size=15), st.integers(1, 4))
def test_rows_are_the_records_that_were_written(records: list[list[str]], size: int) -> None:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(records)
    data = written.getvalue().encode()
    pages = follow(data, {"type": "rows", "start": 0, "end": size})
    header = written.getvalue()[: len(select(data, "text/csv", {"type": "rows", "end": 1}).content)]
    bodies = [pages[0].content, *(page.content.removeprefix(header + "\n") for page in pages[1:])]
    assert list(csv.reader(io.StringIO("\n".join(bodies)))) == records
    assert {page.total for page in pages} == {len(records)}


def test_an_element_longer_than_an_answer_is_read_in_parts_and_then_the_next_ones() -> None:
    elements = [1, {"text": "é" * 2 * MAX_VIEW_CHARS}, "last"]
    for data in (elements, {"n": 3, "result": elements}):
        pages = follow(json.dumps(data, ensure_ascii=False).encode(), {"type": "rows"})
        assert all(len(page.content) <= MAX_VIEW_CHARS for page in pages)
        first, *parts, last = pages
        assert first.content == "1"
        assert json.loads("".join(part.content for part in [*parts, last]).removesuffix('\n"last"')) == elements[1]
        assert last.content.endswith('\n"last"')
