import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.streams import cut
from tests.support.requirement import requirement
from wicketgate.errors import ProviderError
from wicketgate.net.sse import SseDecoder, SseEvent


def decode(*pieces: bytes, decoder: SseDecoder | None = None) -> list[tuple[str, bytes]]:
    decoder = decoder or SseDecoder()
    events: list[SseEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    return [(event.name, event.data) for event in events]


def by_the_standard(stream: bytes) -> list[tuple[str, bytes]]:
    """The algorithm of the standard, on the whole stream at once: the judge of the incremental one."""
    events: list[tuple[str, bytes]] = []
    name, data = "", list[bytes]()
    for line in re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]:
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if line == b"":
            if data:
                events.append((name, b"\n".join(data)))
            name, data = "", []
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
    return events


LINES = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b"data",
        b"data:  c",
        b"data: \xc3\xa9",
        b"event: error",
        b"event:x",
        b": note",
        b"id: 1",
        b"",
        b"datax: no",
        b"data: \xef\xbb\xbf",
        b"\xef\xbb\xbfdata: a",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=14).map(lambda lines: b"".join(line + end for line, end in lines))


@requirement("CHAT-59")
@given(STREAMS, st.lists(st.integers(0, 400), max_size=8))
def test_however_the_bytes_are_cut_the_events_are_those_of_the_standard(stream: bytes, places: list[int]) -> None:
    expected = by_the_standard(stream)
    assert decode(*cut(stream, places)) == expected
    assert decode(*(bytes([byte]) for byte in stream)) == expected


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_no_bytes_whatever_make_the_decoder_raise(pieces: list[bytes]) -> None:
    assert decode(*pieces) == by_the_standard(b"".join(pieces))


@requirement("CHAT-59")
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_out_as_soon_as_its_blank_line_is(end: bytes) -> None:
    decoder = SseDecoder()
    assert decode(b"event: error" + end + b"data: a" + end, decoder=decoder) == []
    assert decode(end[:1], decoder=decoder) == [("error", b"a")]


def test_a_lone_cr_at_the_end_of_a_read_ends_the_line_at_once() -> None:
    decoder = SseDecoder()
    assert decode(b"data: a\r\n\r", decoder=decoder) == [("", b"a")]
    assert decode(b"\ndata: b\n\n", decoder=decoder) == [("", b"b")]


def test_data_lines_are_joined_and_comments_between_them_are_not_data() -> None:
    assert decode(b"data: one\n: keep-alive\ndata: two\n\n") == [("", b"one\ntwo")]


def test_the_name_of_one_event_is_not_that_of_the_next() -> None:
    assert decode(b"event: error\n\ndata: a\n\n") == [("", b"a")]


def test_an_event_without_its_blank_line_comes_out_at_the_close() -> None:
    decoder = SseDecoder()
    assert decode(b"data: [DO", b"NE]", decoder=decoder) == []
    assert [event.data for event in decoder.close()] == [b"[DONE]"]
    assert list(decoder.close()) == []


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_line_over_its_bound_is_refused_before_it_is_whole(size: int) -> None:
    decoder = SseDecoder(max_line_bytes=50)
    endless = b"data: " + b"x" * 60
    with pytest.raises(ProviderError):
        decode(*(endless[i : i + size] for i in range(0, len(endless), size)), decoder=decoder)


def test_a_whole_line_over_the_bound_is_refused_after_the_events_before_it() -> None:
    events = iter(SseDecoder(max_line_bytes=50).feed(b"data: a\n\ndata: " + b"x" * 60 + b"\n\n"))
    assert next(events).data == b"a"
    with pytest.raises(ProviderError):
        next(events)


def test_an_event_of_many_lines_over_its_bound_is_refused() -> None:
    with pytest.raises(ProviderError):
        decode(b"data: 0123456789\n" * 11, decoder=SseDecoder(max_event_bytes=100))
    assert decode(b"data: 0123456789\n\n" * 11, decoder=SseDecoder(max_event_bytes=100)) == [("", b"0123456789")] * 11
