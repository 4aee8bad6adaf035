"""Slices give what one call would give (EXEC-27)."""

import base64
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.results import bulk
from wicketgate.results.bulk import (
    SLICE,
    base64_bytes,
    characters,
    count_newlines,
    json_bytes,
    outweighs,
    seems_to_outweigh,
    utf8,
)

LARGE: list[Any] = [
    {"rows": [{"id": number, "é": "x" * 20, "n": None} for number in range(3_000)], "t": 'é\n"' * 500_000},
    {str(number): [number, {}] for number in range(20_000)},
    ["😀" * (SLICE + 1), [], {}, [[["y" * 200_000]]], 1.5, True],
    "z" * 3_000_000,
]


@pytest.mark.parametrize("value", LARGE, ids=["rows", "members", "mixed", "text"])
def test_json_in_slices_is_the_json_of_the_whole(value: object) -> None:
    assert json_bytes(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_what_json_cannot_say_is_none() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    assert [json_bytes(each) for each in (cycle, deep)] == [None, None]


@requirement("EXEC-59")
def test_json_is_compact_in_its_own_order_and_loses_nothing() -> None:
    value = {"b": [1, 2.5, -0.0, 1e5, 2**70, True, None], "a": "é\u2028\x7f\x01", "": {}, "\ud800": "😀\udfff"}
    written = json_bytes(value)
    assert written is not None
    assert json.loads(written.decode("utf-8", "surrogatepass")) == value
    assert bulk.count_json_chars(written) == len(written.decode("utf-8", "surrogatepass"))
    assert written.startswith(b'{"b":[1,2.5,-0.0,100000.0,1180591620717411303424,true,null],"a":"')
    assert json_bytes([float("nan"), float("inf")]) == b"[null,null]"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=40) | st.dictionaries(st.text(max_size=20), below, max_size=40),
    max_leaves=200,
)


@requirement("EXEC-59")
@settings(max_examples=examples(60), deadline=None)
@given(JSON, st.integers(1, 40))
def test_json_in_pieces_of_any_size_is_the_same_json(value: object, units: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "_SLICE_UNITS", units)
        written = json_bytes(value)
    assert written is not None
    assert json.loads(written.decode("utf-8", "surrogatepass")) == value


@requirement("EXEC-59")
def test_no_piece_of_json_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    encode = bulk._encode

    def watched(value: object) -> bytes:
        piece = encode(value)
        pieces.append(len(piece))
        return piece

    monkeypatch.setattr(bulk, "_encode", watched)
    rows = [{"id": number, "name": f"name {number}", "v": [1, 2]} for number in range(200_000)]
    wide = [{"n": str(number), "texts": ["z" * 40_000] * 4} for number in range(40)]
    for value in (
        rows,
        {"data": {"rows": rows}},
        wide,
        {"a": {"b": [{"c": rows}]}},
        dict(enumerate(rows)),
        "é" * 9_000_000,
    ):
        assert json_bytes(value) is not None
    assert max(pieces) < 3 * bulk.SLICE
    assert len(pieces) < 5_000


@requirement("EXEC-59")
def test_a_sample_tells_what_a_value_weighs() -> None:
    rows = [{"id": number, "name": f"name {number}", "v": [1, 2]} for number in range(20_000)]
    for value in (
        rows,
        {"rows": rows},
        tuple(rows),
        "x" * 2_000_000,
        ["x" * 100] * 30_000,
        [[[[1] * 50] * 50] * 50] * 50,
    ):
        assert seems_to_outweigh(value, 100_000) is outweighs(value, 100_000) is True
    for small in (rows[:500], {"rows": rows[:500]}, "x" * 2_000, {}, 1, None):
        assert seems_to_outweigh(small, 100_000) is outweighs(small, 100_000) is False


@pytest.mark.parametrize("size", [0, 1, 2, 3, SLICE * 3 // 4, SLICE * 3 // 4 + 1, 2 * SLICE])
def test_base64_in_slices_is_that_of_the_whole_wrapped_or_not(size: int) -> None:
    data = b"\x01\xfe" * (size // 2) + b"z" * (size % 2)
    assert base64_bytes(base64.b64encode(data).decode()) == data
    assert base64_bytes(base64.encodebytes(data).decode()) == data


def test_base64_that_goes_on_after_its_padding_is_none() -> None:
    padded = "A" * (SLICE - 4) + "QQ=="
    assert base64_bytes(padded) is not None
    assert base64_bytes(padded + "QQ==") is None


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=40), st.integers(0, 20), st.integers(0, 20), st.integers(1, 3))
def test_characters_are_those_of_the_whole_text(data: bytes, start: int, count: int, times: int) -> None:
    text = (data * times).decode("utf-8", "replace")
    assert characters(data * times, start, count) == (text[start : start + count], len(text))


def test_characters_are_found_across_slices() -> None:
    text = "é€" * SLICE
    assert characters(text.encode(), SLICE - 3, 9) == (text[SLICE - 3 : SLICE + 6], len(text))
    assert utf8(text) == text.encode()
    assert count_newlines(b"\n" * (2 * SLICE + 5), 3) == 2 * SLICE + 2


def test_weight_is_found_without_looking_at_more_than_asked() -> None:
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    assert outweighs(cycle, 1_000)
    assert not outweighs({"a": ["b"] * 10}, 30)
    assert outweighs({"a": ["b"] * 10}, 20)


@requirement("EXEC-27")
def test_other_threads_run_while_large_json_is_written() -> None:
    value = {"rows": [{"id": number, "name": f"name {number}", "v": [1, 2]} for number in range(150_000)]}
    longest = 0.0
    done = threading.Event()

    def work() -> None:
        assert bulk.json_bytes(value) is not None
        done.set()

    worker = threading.Thread(target=work)
    before = time.perf_counter()
    worker.start()
    turns = 0
    while not done.is_set():
        time.sleep(0.001)
        now = time.perf_counter()
        longest = max(longest, now - before)
        before = now
        turns += 1
    worker.join()
    # One call for all of it gives no turn at all; the bound on a single pause is wide for slow machines.
    assert turns > 5
    assert longest < 0.2
