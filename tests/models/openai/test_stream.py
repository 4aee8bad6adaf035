import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.streams import EXPECTED, Answer, context_tokens, cut, expected, read, stream_bytes
from tests.support.model_server import DONE, chunk, usage_chunk
from tests.support.requirement import requirement
from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.models.openai.stream import ChatStream
from wicketgate.models.provider import Finish, Usage
from wicketgate.models.turn_reading import MAX_BODY_BYTES, MAX_HELD_BYTES

NAMES = sorted(EXPECTED)


def tool_delta(*fragments: dict[str, Any]) -> bytes:
    return chunk({"tool_calls": list(fragments)})


STOP = chunk({}, "stop")


@requirement("CHAT-34", "CHAT-49", "CHAT-58")
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_is_read_the_same_whole_and_byte_by_byte(name: str) -> None:
    data = stream_bytes(name)
    assert read([data], context_tokens(name)).summary() == expected(name)
    assert read((bytes([byte]) for byte in data), context_tokens(name)).summary() == expected(name)


@given(st.sampled_from(NAMES), st.lists(st.integers(0, 1500), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_recorded_stream_is_read_the_same_however_it_is_cut(name: str, places: list[int], end: bytes) -> None:
    data = b"\xef\xbb\xbf" + stream_bytes(name).replace(b"\n", end)
    assert read(cut(data, places), context_tokens(name)).summary() == expected(name)


@given(st.text(), st.lists(st.integers(0, 3000), max_size=5))
def test_text_comes_through_whole_and_in_its_order(text: str, places: list[int]) -> None:
    deltas = [text[i : i + 3] for i in range(0, len(text), 3)]
    data = b"".join([chunk({"content": delta}) for delta in deltas] + [chunk({"content": "."}), STOP, DONE])
    answer = read(cut(data, places))
    assert (answer.text, answer.end) == (text + ".", Finish("stop", None))


@requirement("CHAT-31")
def test_an_emoji_cut_into_two_deltas_is_one_again() -> None:
    halves = chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b"})
    assert b"\\ud83d" in halves[0]
    assert read([*halves, STOP, DONE]).text == "a\U0001f600b"


def test_half_an_emoji_that_stays_alone_becomes_a_replacement_character() -> None:
    assert read([chunk({"content": "a\ud83d"}), STOP, DONE]).text == "a\ufffd"
    assert read([chunk({"content": "\ud83d"}), chunk({"content": "b"}), STOP, DONE]).text == "\ufffdb"


def test_bytes_that_are_not_utf8_are_replaced_and_do_not_end_the_answer() -> None:
    assert read([b'data: {"choices":[{"delta":{"content":"a\xff"}}]}\n\n', STOP, DONE]).text == "a\ufffd"


@requirement("CHAT-58")
@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b": OPENROUTER PROCESSING\n\n"],
        [b"<html>not a model</html>"],
        [chunk({"content": "par"})],
        [chunk({"content": "par"}), STOP[: len(STOP) // 2]],
        [tool_delta({"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}})],
    ],
)
def test_a_stream_that_breaks_off_is_a_failure_and_gives_no_calls(pieces: list[bytes]) -> None:
    answer = read(pieces)
    assert isinstance(answer.failure, ProviderError)
    assert (answer.end, answer.calls) == (None, [])


@pytest.mark.parametrize("tail", [b"", b"data: [DO", b"data: [DONE]", b"data: [DONE]\n", b": bye"])
def test_once_the_model_has_finished_a_ragged_end_changes_nothing(tail: bytes) -> None:
    answer = read([chunk({"content": "x"}), STOP, usage_chunk(3, 4), tail])
    assert (answer.text, answer.end, answer.failure) == ("x", Finish("stop", Usage(3, 4)), None)


@requirement("CHAT-34")
@pytest.mark.parametrize("count", ["-1", "NaN", "Infinity", "1e300", "1" * 400])
def test_what_cannot_be_a_count_of_tokens_is_counted_as_none(count: str) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":%b,"completion_tokens":4}}\n\n' % count.encode()
    answer = read([chunk({"content": "x"}), STOP, usage, DONE])
    assert (answer.text, answer.failure) == ("x", None)
    assert answer.end in (Finish("stop", Usage(0, 4)), Finish("stop", None))


def test_a_last_event_without_its_blank_line_counts() -> None:
    assert read([chunk({"content": "x"}), STOP.rstrip()]).end == Finish("stop", None)


def test_nothing_after_the_done_mark_is_read() -> None:
    data = chunk({"content": "x"}) + STOP + DONE + chunk({"content": "late"}) + b"data: {broken\n\n"
    answer = read([data])
    assert (answer.text, answer.failure) == ("x", None)


@pytest.mark.parametrize(
    ("usage", "finish", "outcome"),
    [
        (usage_chunk(8192, 0), "stop", ContextOverflow),
        (usage_chunk(9000, 0), None, ContextOverflow),
        (usage_chunk(9000, 0), "length", ContextOverflow),
        (usage_chunk(8191, 0), "stop", ProviderError),
        (b"", "stop", ProviderError),
        (b"", "tool_calls", ProviderError),
    ],
)
def test_silence_is_an_overflow_when_the_prompt_filled_the_window_and_a_failure_otherwise(
    usage: bytes, finish: str | None, outcome: type[Exception]
) -> None:
    answer = read([chunk({"role": "assistant", "content": ""}, finish), usage, DONE])
    assert (type(answer.failure), answer.end) == (outcome, None)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_reason_to_say_nothing_is_an_answer(reason: str) -> None:
    answer = read([chunk({"content": None}, reason), usage_chunk(5, 0), DONE])
    assert (answer.failure, answer.end) == (None, Finish(reason, Usage(5, 0)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("reason", "arguments"), [("length", None), ("content_filter", None), ("stop", {})])
def test_a_call_whose_arguments_were_cut_off_is_not_one_without_arguments(
    reason: str, arguments: dict[str, Any] | None
) -> None:
    begun = tool_delta({"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}})
    answer = read([begun, chunk({}, reason), DONE])
    assert [call.arguments for call in answer.calls] == [arguments]


@pytest.mark.parametrize(
    ("sent", "read_as"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        ("", "stop"),
    ],
)
def test_finish_reasons_of_all_servers_become_those_of_the_contract(sent: str, read_as: str) -> None:
    answer = read([chunk({"content": "x"}, sent), DONE])
    assert answer.end is not None
    assert answer.end.reason == read_as


@pytest.mark.parametrize("reason", ["error", "abort", "network_error"])
def test_a_finish_reason_that_tells_of_a_failure_is_one(reason: str) -> None:
    answer = read([chunk({"content": "x"}, reason), DONE])
    assert (answer.text, type(answer.failure)) == ("x", ProviderError)


@requirement("CHAT-58")
@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": "overloaded"}\n\n',
        b'data: {"error_type": "server", "error_message": "no"}\n\n',
        b'data: {"object": "error", "message": "no", "code": 500}\n\n',
        b'event: error\ndata: {"message": "no"}\n\n',
        b"event: error\ndata: it broke\n\n",
        b'data: {"choices": [], "x_groq": {"error": "over capacity"}}\n\n',
        b"data: null\n\n",
        b"data: [1]\n\n",
        b"data: hello\n\n",
        b'data: {"choices": 5}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_an_error_inside_the_stream_fails_it_after_what_was_said(event: bytes) -> None:
    answer = read([chunk({"content": "x"}) + event + STOP + DONE])
    assert (answer.text, isinstance(answer.failure, ProviderError), answer.end) == ("x", True, None)


@requirement("CHAT-57")
@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b'data: {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}\n\n', ContextOverflow),
        (b"event: error\ndata: context length exceeded\n\n", ContextOverflow),
        (b'data: {"error": {"message": "invalid token", "code": 401}}\n\n', ProviderError),
        (b'data: {"choices":[{"delta":{"content":"the maximum context length is\n\n', ProviderError),
    ],
)
def test_an_overflow_inside_the_stream_differs_from_other_errors(event: bytes, kind: type[Exception]) -> None:
    assert type(read([event]).failure) is kind


def test_a_filter_inside_the_stream_ends_the_turn_with_that_reason() -> None:
    answer = read([chunk({"content": "x"}), b'data: {"error": {"code": "content_filter", "message": "no"}}\n\n'])
    assert (answer.text, answer.end, answer.failure) == ("x", Finish("content_filter", None), None)


def test_pings_comments_and_chunks_with_nulls_are_passed_over() -> None:
    noise = b'event: ping\ndata: now\n\n: keep-alive\n\ndata:\n\ndata: {"choices":[{"delta":null}]}\n\n' + chunk({})
    assert read([noise, chunk({"content": "x"}), b'data: {"choices":[{}]}\n\n', STOP, DONE]).text == "x"


def test_content_in_parts_is_text_and_thinking() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        {"type": "image", "image": 1},
        "odd",
        {"type": "text", "text": "b"},
    ]
    answer = read([chunk({"content": parts}), STOP, DONE])
    assert (answer.text, answer.reasoning) == ("ab", "hm")


@pytest.mark.parametrize(
    "usages",
    [
        [
            {"usage": {"prompt_tokens": 3, "completion_tokens": 1}},
            {"usage": {"prompt_tokens": 3, "completion_tokens": 4}},
        ],
        [
            {"usage": {"prompt_tokens": 3, "completion_tokens": 4}},
            {"usage": {"prompt_tokens": 0, "completion_tokens": 0}},
        ],
        [{"x_groq": {"id": "r", "usage": {"prompt_tokens": 3.0, "completion_tokens": 4}}}, {"usage": None}],
        [{"usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}}],
        [{"choices": [{"delta": {}, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}]}],
    ],
)
def test_usage_is_found_wherever_it_is_reported(usages: list[dict[str, Any]]) -> None:
    reports = [b"data: " + json.dumps(usage).encode() + b"\n\n" for usage in usages]
    end = read([chunk({"content": "x"}), STOP, *reports, DONE]).end
    assert end is not None and end.usage is not None
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (3, 4)


def test_other_choices_than_the_first_are_not_mixed_in() -> None:
    other = b'data: {"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"x"}}]}\n\n'
    assert read([other, STOP, DONE]).text == "x"


def body(message: dict[str, Any], finish_reason: str = "stop") -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}).encode()


def test_a_server_that_does_not_stream_is_understood() -> None:
    assert read([b"\n\n ", body({"content": "x"})]).summary() == Answer("x", end=Finish("stop", Usage(1, 2))).summary()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    answer = read([body({"content": None, "tool_calls": [call]}, "tool_calls")])
    assert [(call.name, call.arguments) for call in answer.calls] == [("f", {"a": 1})]


@pytest.mark.parametrize(
    "data", [b'{"choices":[{"message":{"content":"x', b'{"ok":true}', b'[{"error":{"message":"no"}}]']
)
def test_a_body_that_is_no_answer_is_a_failure(data: bytes) -> None:
    assert type(read([data]).failure) is ProviderError


def test_what_is_held_in_memory_is_bounded() -> None:
    piece = tool_delta({"index": 0, "id": "c", "function": {"name": "f", "arguments": "x" * 900_000}})
    stream = ChatStream(8192)
    for _ in range(MAX_HELD_BYTES // len(piece) + 1):
        assert stream.feed(piece) == []
    assert isinstance(stream.failure, ProviderError)

    stream = ChatStream(8192)
    stream.feed(b"{")
    for _ in range(MAX_BODY_BYTES // 1_000_000 + 1):
        stream.feed(b" " * 1_000_000)
    assert isinstance(stream.failure, ProviderError)


def test_it_tells_when_the_server_has_begun_and_when_the_model_has_finished() -> None:
    stream = ChatStream(8192)
    seen = []
    for piece in (b": wait\n\n", chunk({"content": "x"}), STOP, DONE):
        stream.feed(piece)
        seen.append((stream.events_seen > 0, stream.answered, stream.ended))
    assert seen == [(False, False, False), (True, False, False), (True, True, False), (True, True, True)]


def test_thoughts_and_signatures_of_a_tool_turn_are_kept_under_the_names_that_the_server_uses() -> None:
    function = {"name": "f", "arguments": "{}"}
    signed = {"index": 1, "id": "b", "function": function, "extra_content": {"google": {"thought_signature": "S"}}}
    pieces = [
        chunk({"reasoning": "H", "reasoning_details": [{"type": "reasoning.text", "text": "H"}]}),
        chunk({"reasoning": "m"}),
        tool_delta({"index": 0, "id": "a", "function": function}, signed),
        chunk({}, "tool_calls"),
        DONE,
    ]
    end = read(pieces).end
    assert end is not None and end.kept is not None
    assert (end.kept.text, end.kept.data) == (
        "Hm",
        {
            "reasoning": "Hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "H"}],
            "extra_content": [None, {"google": {"thought_signature": "S"}}],
        },
    )
    spoken = read([chunk({"reasoning": "H"}), chunk({"content": "x"}), STOP, DONE]).end
    assert spoken is not None and spoken.kept is None


def test_cached_and_reasoning_tokens_are_counted_apart() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 3}}
    for cached in (details, {**details, "prompt_tokens_details": None, "prompt_cache_hit_tokens": 2}):
        report = chunk(usage={"prompt_tokens": 5, "completion_tokens": 4, **cached})
        end = read([chunk({"content": "x"}), STOP, report, DONE]).end
        assert end is not None and end.usage == Usage(5, 4, cached_tokens=2, reasoning_tokens=3)


def test_a_call_that_the_server_could_not_read_ends_the_turn_as_a_call() -> None:
    error = {"code": "tool_use_failed", "failed_generation": '<function=f>{"a"'}
    answer = read([chunk({"content": "x"}), b"event: error\ndata: " + json.dumps({"error": error}).encode() + b"\n\n"])
    assert (answer.text, answer.end) == ("x", Finish("tool_calls", None))
    assert [(call.name, call.arguments) for call in answer.calls] == [("f", None)]
