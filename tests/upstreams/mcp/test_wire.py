"""Lines and messages of tool servers, whatever was cut where and whatever they hold (UP-9 to UP-14)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.mcp.wire import LineReader

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def never(head: bytes, tail: bytes) -> None:
    raise AssertionError("no line is too long here")


@given(st.lists(st.binary(max_size=20)), st.data())
def test_lines_do_not_depend_on_where_the_bytes_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"\n".join(lines)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader = LineReader(never)
    found = [line for piece in pieces for line in reader.feed(piece)]
    assert found == [line for line in stream.split(b"\n")[:-1] if line.strip()]


@requirement("UP-11")
@given(st.integers(1, 50))
def test_a_line_over_the_bound_is_shown_by_its_ends_and_the_next_one_is_whole(step: int) -> None:
    shown: list[tuple[bytes, bytes]] = []
    reader = LineReader(lambda head, tail: shown.append((head, tail)), max_bytes=1_000)
    stream = b"first\n" + b"<" + b"x" * 5_000 + b">\nlast\n"
    found = [line for at in range(0, len(stream), step) for line in reader.feed(stream[at : at + step])]
    assert found == [b"first", b"last"]
    ((head, tail),) = shown
    assert head.startswith(b"<x")
    assert tail.endswith(b"x>")


@given(VALUES)
def test_a_value_decoded_in_parts_is_the_value(value: Any) -> None:
    # Large and full of values, so that it is taken apart.
    heavy = {"a": [value, {"b": value, "c": list(range(20_000))}], "d": value, "e": "x" * 100_000}
    data = json.dumps({"id": 1, "result": heavy}).encode()
    message = wire.decode(data)
    assert message is not None
    assert isinstance(message.result, msgspec.Raw)
    assert wire.whole(message.result) == heavy


@given(st.binary(max_size=60))
def test_no_bytes_make_decoding_fail(data: bytes) -> None:
    wire.decode(data)
    wire.decode(b'{"id":1,"result":"' + data + b'"}')


@requirement("UP-64")
def test_a_damaged_message_of_more_than_4_mib_is_not_mended() -> None:
    for size, mended in ((3_000_000, True), (5_000_000, False)):
        assert (wire.decode(b'{"method":"caf\xe9","x":"' + b"x" * size + b'"}') is not None) == mended
        answer = wire.decode(b'{"id":1,"result":{"a":"caf\xe9","b":[' + b"1," * (size // 2) + b"1]}}")
        assert answer is not None
        if mended:
            assert wire.whole(answer.result)["a"] == "caf\ufffd"
        else:
            with pytest.raises(wire.DAMAGED):
                wire.whole(answer.result)


def test_a_heavy_answer_with_a_damaged_text_is_mended_too() -> None:
    data = b'{"id":1,"result":{"a":"caf\xe9","b":[' + b"1," * 50_000 + b"1]}}"
    message = wire.decode(data)
    assert message is not None
    assert wire.whole(message.result)["a"] == "caf\ufffd"


@requirement("UP-64")
def test_what_is_said_unasked_is_read_only_if_it_is_light_and_an_error_without_heavy_data() -> None:
    heavy = b"[" + b"{}," * 50_000 + b"{}]"
    light = wire.decode(b'{"method":"m","params":[{}]}')
    said = wire.decode(b'{"method":"m","params":' + heavy + b"}")
    assert light is not None and said is not None
    assert (wire.params_of(light), wire.params_of(said)) == ([{}], None)
    for error, shown in (
        (b'{"code":7,"message":"no","data":' + heavy + b"}", {"code": 7, "message": "no"}),
        (b'{"data":' + heavy + b"}", None),
        (b'{"code":7,"message":"caf\xe9"},"more":' + heavy, {"code": 7, "message": "caf\ufffd"}),
    ):
        refused = wire.decode(b'{"id":"1","error":' + error + b"}")
        assert refused is not None
        assert wire.error_of(refused) == shown
    answered = wire.decode(b'{"id":"1","error":null,"result":' + heavy + b"}")
    assert answered is not None
    assert answered.error is None
