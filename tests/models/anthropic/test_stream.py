import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.streams import CONTEXT_TOKENS, Answer, cut, read_with
from tests.support.anthropic_replies import (
    STOP,
    begin,
    block,
    end,
    event,
    text_block,
    thinking_block,
    tool_block,
)
from tests.support.requirement import requirement
from wicketgate.errors import ProviderError, ProviderUnavailable
from wicketgate.models.anthropic.stream import MessagesStream
from wicketgate.models.provider import Finish, Usage
from wicketgate.models.turn_reading import MAX_HELD_BYTES

FOLDER = Path(__file__).parent / "anthropic_streams"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
NAMES = sorted(EXPECTED)


def read(pieces: Any) -> Answer:
    return read_with(MessagesStream(CONTEXT_TOKENS, "here"), pieces)


def test_every_stream_of_the_folder_is_read() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.sse")) == NAMES


@requirement("CHAT-32", "CHAT-49", "CHAT-57", "CHAT-58")
@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_read_the_same_whole_and_byte_by_byte(name: str) -> None:
    data = (FOLDER / f"{name}.sse").read_bytes()
    assert read([data]).summary() == EXPECTED[name]
    assert read(bytes([byte]) for byte in data).summary() == EXPECTED[name]


@requirement("CHAT-34")
def test_what_cannot_be_a_count_of_tokens_is_counted_as_none() -> None:
    answer = read([begin(-3, cache_read_input_tokens=-5), *text_block(0, "x"), *end("end_turn", 7)])
    assert answer.end == Finish("stop", Usage(0, 7))


@requirement("CHAT-59")
@given(st.sampled_from(NAMES), st.lists(st.integers(0, 2000), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_stream_is_read_the_same_however_it_is_cut(name: str, places: list[int], line_end: bytes) -> None:
    data = b"\xef\xbb\xbf" + (FOLDER / f"{name}.sse").read_bytes().replace(b"\n", line_end)
    assert read(cut(data, places)).summary() == EXPECTED[name]


def test_all_prompt_tokens_count_and_caches_are_counted_apart() -> None:
    usage = begin(3, cache_creation_input_tokens=40, cache_read_input_tokens=1000)
    answer = read([usage, *text_block(0, "x"), *end("end_turn", 7)])
    assert answer.end == Finish("stop", Usage(1043, 7, cached_tokens=1000, cache_write_tokens=40))


def test_thoughts_and_signatures_of_a_tool_turn_are_kept_as_they_came() -> None:
    answer = read(
        [
            begin(),
            *thinking_block(0, "Hm.", "sig=="),
            *block(1, {"type": "redacted_thinking", "data": "opaque"}),
            *text_block(2, "Let me ", "look."),
            *tool_block(3, "toolu_1", "tool_browse", {"path": "/"}),
            *end("tool_use"),
        ]
    )
    assert answer.end is not None and answer.end.kept is not None
    assert answer.end.kept.origin == "here"
    assert answer.end.kept.data["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "tool_browse", "input": {"path": "/"}},
    ]


@pytest.mark.parametrize("last", [text_block(1, "x"), tool_block(1, "toolu_1", "now", {})])
def test_a_turn_without_thoughts_or_without_calls_keeps_nothing(last: list[bytes]) -> None:
    first = thinking_block(0, "Hm.", "sig") if b"tool_use" not in b"".join(last) else []
    answer = read([begin(), *first, *last, *end("end_turn")])
    assert answer.end is not None and answer.end.kept is None


@requirement("CHAT-58")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, ProviderUnavailable),
        ({"type": "rate_limit_error", "message": "slow down"}, ProviderUnavailable),
        ({"type": "api_error", "message": "oops"}, ProviderUnavailable),
        ({"type": "invalid_request_error", "message": "Your credit balance is too low"}, ProviderError),
        ({"type": "authentication_error", "message": "invalid x-api-key"}, ProviderError),
    ],
)
def test_an_error_in_the_stream_tells_whether_asking_again_may_help(
    error: dict[str, str], kind: type[ProviderError]
) -> None:
    assert type(read([begin(), event("error", error=error)]).failure) is kind


def test_what_is_held_in_memory_is_bounded() -> None:
    piece = event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "x" * 900_000})
    stream = MessagesStream(CONTEXT_TOKENS)
    stream.feed(begin())
    for _ in range(MAX_HELD_BYTES // len(piece) + 1):
        assert stream.feed(piece) == []
    assert isinstance(stream.failure, ProviderError)


def test_pings_are_not_seen_and_events_are() -> None:
    stream = MessagesStream(CONTEXT_TOKENS)
    seen = []
    for piece in (b'event: ping\ndata: {"type":"ping"}\n\n', b": wait\n\n", begin(), *text_block(0, "x"), STOP):
        stream.feed(piece)
        seen.append(stream.events_seen)
    assert seen == [0, 0, 1, 2, 3, 4, 5]
