"""The weight of values, and their bytes (EXEC-27, EXEC-59)."""

import base64
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.results import bulk
from wicketgate.results.bulk import (
    base64_bytes,
    characters,
    json_bytes,
    outweighs,
    seems_to_outweigh,
)


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


def test_base64_is_read_wrapped_or_not_and_never_after_its_padding() -> None:
    data = b"\x01\xfe" * 4_000
    assert base64_bytes(base64.b64encode(data).decode()) == base64_bytes(base64.encodebytes(data).decode()) == data
    assert [base64_bytes(text) for text in ("QQ==", "QQ==QQ==", "é", "QQ")] == [b"A", None, None, None]


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=40), st.integers(0, 20), st.integers(0, 20))
def test_characters_are_those_of_the_text(data: bytes, start: int, count: int) -> None:
    text = data.decode("utf-8", "replace")
    assert characters(data, start, count) == (text[start : start + count], len(text))


def test_weight_is_found_without_looking_at_more_than_asked() -> None:
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    assert outweighs(cycle, 1_000)
    assert not outweighs({"a": ["b"] * 10}, 30)
    assert outweighs({"a": ["b"] * 10}, 20)
