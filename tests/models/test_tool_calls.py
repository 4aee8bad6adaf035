import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.models.tool_calls import CallAssembly, unreadable_call

Fragment = tuple[int | None, str | None, str | None, object]


def assemble(*fragments: Fragment, cut: bool = False) -> list[tuple[str, str, dict[str, Any] | None]]:
    assembly = CallAssembly()
    for fragment in fragments:
        assembly.add(*fragment)
    return [(call.id, call.name, call.arguments) for call in assembly.finished(cut=cut)]


ONE_AND_TWO: list[tuple[str, str, dict[str, Any] | None]] = [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]


@requirement("CHAT-49")
@pytest.mark.parametrize(
    "fragments",
    [
        pytest.param([(0, "a", "f", '{"x":1}'), (0, "b", "g", '{"y":2}')], id="ollama: index 0 for all"),
        pytest.param([(None, "a", "f", '{"x":1}'), (None, "b", "g", '{"y":2}')], id="gemini: no index"),
        pytest.param(
            [(None, "a", "f", '{"x"'), (None, None, None, ":1}"), (None, "b", "g", ""), (None, None, None, '{"y":2}')],
            id="gemini: no index, split",
        ),
        pytest.param(
            [(None, "a", "f", '{"x"'), (None, "b", "g", '{"y"'), (None, "a", None, ":1}"), (None, "b", None, ":2}")],
            id="no index, interleaved by id",
        ),
        pytest.param(
            [(0, "a", "f", ""), (0, "", None, '{"x":1}'), (1, "b", "g", ""), (1, "", None, '{"y":2}')],
            id="vllm: id emptied",
        ),
        pytest.param(
            [(0, "a", "f", '{"x"'), (0, "a", "f", ":1}"), (1, "b", "g", '{"y"'), (1, "b", "g", ":2}")],
            id="sglang: id and name repeated",
        ),
        pytest.param(
            [(0, "a", "f", '{"x"'), (0, "new1", None, ":1}"), (1, "b", "g", '{"y"'), (1, "new2", "", ":2}")],
            id="a new id for every piece",
        ),
        pytest.param([(0, "a", "f", {"x": 1}), (1, "b", "g", {"y": 2})], id="arguments as objects"),
        pytest.param(
            [(0, None, "f", None), (0, "a", None, '{"x":1}'), (1, None, "g", ""), (1, "b", None, '{"y":2}')],
            id="the id after the name",
        ),
    ],
)
def test_fragments_of_every_kind_of_server_make_the_same_two_calls(fragments: list[Fragment]) -> None:
    assert assemble(*fragments) == ONE_AND_TWO


def test_calls_without_any_id_are_separated_by_whole_arguments_or_a_different_name() -> None:
    assert assemble((0, None, "f", '{"x":1}'), (0, None, "f", '{"x":2}'), (0, None, "g", "")) == [
        ("call_0", "f", {"x": 1}),
        ("call_1", "f", {"x": 2}),
        ("call_2", "g", {}),
    ]


def test_a_name_repeated_before_the_arguments_are_whole_is_the_same_call() -> None:
    assert assemble((0, None, "f", '{"x"'), (0, None, "f", ":{"), (0, None, "f", "}}")) == [("call_0", "f", {"x": {}})]


@requirement("CHAT-48")
@pytest.mark.parametrize("call_id", [None, "", "null"])
def test_a_call_without_an_id_gets_one(call_id: str | None) -> None:
    assert assemble((0, "real", "f", "{}"), (1, call_id, "g", "{}")) == [("real", "f", {}), ("call_1", "g", {})]


@requirement("CHAT-46")
@pytest.mark.parametrize("raw", ['{"path":', "[1]", '"text"', "null", "7", "{'a': 1}", "{}{}", "[" * 5000, '"\\ud800"'])
def test_arguments_that_are_no_object_are_none_and_their_text_is_kept(raw: str) -> None:
    assembly = CallAssembly()
    assembly.add(0, "c", "f", raw)
    (call,) = assembly.finished(cut=False)
    assert (call.arguments, call.raw) == (None, raw)


@requirement("CHAT-46")
@pytest.mark.parametrize("arguments", ["", None, "  ", "{}"])
def test_no_arguments_are_an_empty_object(arguments: object) -> None:
    assert assemble((0, "c", "f", arguments)) == [("c", "f", {})]


def test_in_a_turn_that_was_cut_arguments_that_never_came_are_not_an_empty_object() -> None:
    assert assemble((0, "a", "f", '{"x":1}'), (1, "b", "g", ""), cut=True) == [("a", "f", {"x": 1}), ("b", "g", None)]


def test_an_empty_fragment_is_no_call() -> None:
    assembly = CallAssembly()
    assembly.add(0, None, None, None)
    assert not assembly
    assert assembly.finished(cut=False) == []


def test_half_an_emoji_at_the_end_of_a_piece_is_joined_with_the_next() -> None:
    assert assemble((0, "c", "f", '{"x":"\ud83d'), (0, None, None, '\ude00"}')) == [("c", "f", {"x": "\U0001f600"})]


JSON_OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(st.none() | st.integers() | st.text(max_size=8), st.lists, max_leaves=4),
    max_size=4,
)


@given(st.lists(JSON_OBJECTS, min_size=1, max_size=4), st.randoms(use_true_random=False), st.booleans())
def test_parallel_calls_survive_any_split_and_any_interleaving(
    objects: list[dict[str, Any]], random: Any, ascii_only: bool
) -> None:
    waiting: list[list[Fragment]] = []
    for index, arguments in enumerate(objects):
        raw = json.dumps(arguments, ensure_ascii=ascii_only)
        step = random.randint(1, 9)
        pieces = [raw[i : i + step] for i in range(0, len(raw), step)]
        waiting.append([(index, f"id{index}", f"f{index}", ""), *((index, None, None, piece) for piece in pieces)])
    assembly = CallAssembly()
    for queue in waiting:
        assembly.add(*queue.pop(0))
    while any(waiting):
        assembly.add(*random.choice([queue for queue in waiting if queue]).pop(0))
    assert [call.arguments for call in assembly.finished(cut=False)] == objects


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('<function=tool_browse{"path": "/"}</function>', "tool_browse"),
        ('[{"name": "tool_execute", "parameters": {}}]', "tool_execute"),
        ('web_search{"query": 1}</function>', "web_search"),
        ("Tool use failed: no such", "unreadable_call"),
        (None, "unreadable_call"),
    ],
)
def test_a_call_that_the_server_could_not_read_has_no_arguments_and_its_name_where_that_shows(
    written: str | None, name: str
) -> None:
    call = unreadable_call({"error": {"code": "tool_use_failed", "failed_generation": written}})
    assert (call.name, call.arguments) == (name, None)
