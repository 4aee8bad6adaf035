"""Tools and results of a face, fitted to the client's protocol version."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp_types.methods import serialize_server_result
from pydantic import ValidationError

from tests.support.requirement import requirement
from wicketgate.faces.mcp import fit
from wicketgate.faces.mcp.fit import ToolNames, as_it_came
from wicketgate.faces.surface import SurfaceTool


class Listed(list[SurfaceTool]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[SurfaceTool]:
        self.times += 1
        return super().__iter__()


@requirement("ROUTE-12")
def test_a_result_without_content_gets_the_empty_list_that_the_protocol_wants() -> None:
    for content in ({}, {"content": None}, {"content": "x"}):
        assert as_it_came({**content, "structuredContent": {"n": 1}}, "2026-07-28")["content"] == []
    kept = [{"type": "text", "text": "a"}]
    assert as_it_came({"content": kept}, "2026-07-28")["content"] == kept


def test_a_structured_value_that_is_no_object_stays_with_clients_that_know_it() -> None:
    assert as_it_came({"content": [], "structuredContent": [1]}, "2026-07-28")["structuredContent"] == [1]
    assert "structuredContent" not in as_it_came({"content": [], "structuredContent": [1]}, "2025-11-25")


def test_lists_of_callers_who_take_turns_are_gone_through_once_each() -> None:
    lists = [Listed([SurfaceTool("common", str(n), {}), SurfaceTool(f"own_{n}", "d", {})]) for n in range(4)]
    names = ToolNames()
    for _ in range(3):
        for n, tools in enumerate(lists):
            assert names.find(tools, "common") is tools[0]
            assert names.find(tools, f"own_{n}") is tools[1]
            assert names.find(tools, "other") is None
    assert [tools.times for tools in lists] == [1, 1, 1, 1]


def test_lists_that_were_left_long_ago_are_let_go() -> None:
    names = ToolNames()

    def ask(n: int) -> weakref.ref[Listed]:
        tools = Listed([SurfaceTool("common", str(n), {})])
        found = names.find(tools, "common")
        assert found is not None and found.description == str(n)
        return weakref.ref(tools)

    asked = [ask(n) for n in range(100)]
    gc.collect()
    assert sum(each() is not None for each in asked) <= 8


ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 1, 0.5, "x", "\ud800", [], {}, ["user"], {"a": None}])
META = st.dictionaries(st.sampled_from(["mine/x", "io.modelcontextprotocol/serverInfo"]), ODD, max_size=2)
NOTES = st.fixed_dictionaries(
    {}, optional={"audience": st.just(["user"]) | ODD, "priority": st.just(1) | ODD, "lastModified": ODD, "x": ODD}
)
ON_ALL: dict[str, st.SearchStrategy[Any]] = {"annotations": NOTES | ODD, "_meta": META | ODD, "unheard": ODD}
TEXT = st.just("a") | ODD
CONTENTS = st.fixed_dictionaries(
    {"uri": TEXT}, optional={"text": TEXT, "blob": TEXT, "mimeType": TEXT, "_meta": META, "x": ODD}
)
PICTURES = st.lists(
    st.fixed_dictionaries({"src": TEXT}, optional={"sizes": st.just(["1x1"]) | ODD, "theme": st.just("dark") | ODD})
)
BLOCKS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}, optional=ON_ALL),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["image", "audio", "video"]), "data": TEXT, "mimeType": TEXT}, optional=ON_ALL
    ),
    st.fixed_dictionaries(
        {"type": st.just("resource_link"), "uri": TEXT, "name": TEXT},
        optional={**ON_ALL, "title": TEXT, "size": st.just(5) | ODD, "icons": PICTURES | ODD},
    ),
    st.fixed_dictionaries({"type": st.just("resource"), "resource": CONTENTS | ODD}, optional=ON_ALL),
    ODD,
)
RESULTS = st.fixed_dictionaries(
    {"resultType": st.sampled_from(["complete", "complete", "complete", "task"]), "content": st.lists(BLOCKS)},
    optional={"structuredContent": st.just({"a": None}) | ODD, "isError": st.booleans() | ODD, "x": ODD},
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.sampled_from(["object", "object", "array"])},
    optional={
        "properties": st.just({"a": {"default": None}, "b": True}) | ODD,
        "required": st.just(["a"]) | ODD,
        "$schema": TEXT,
        "default": ODD,
    },
)
LISTED = st.fixed_dictionaries(
    {"name": TEXT, "description": TEXT, "inputSchema": SCHEMAS},
    optional={
        "title": TEXT,
        "outputSchema": SCHEMAS | ODD,
        "annotations": st.fixed_dictionaries({}, optional={"readOnlyHint": ODD, "title": TEXT, "x": ODD}) | ODD,
        "_meta": META | ODD,
        "icons": PICTURES,
    },
)
WHOLE_LIST = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def with_sdk(method: str, version: str, answer: dict[str, Any]) -> Any:
    try:
        return serialize_server_result(method, version, answer)
    except ValidationError:
        return None


@requirement("FACE-243")
@given(RESULTS, st.sampled_from(["2026-07-28", "2025-11-25", "2024-11-05"]))
@example({"resultType": "complete", "content": [{"type": "image", "data": "a", "mimeType": "b"}]}, "2025-11-25")
def test_a_plain_result_is_what_the_sdk_makes_of_it(result: dict[str, Any], version: str) -> None:
    plain = fit._read_plain(result, version)
    if plain is not None and not any("\ud800" in str(value) for value in plain.values()):
        assert plain == with_sdk("tools/call", version, result)


@requirement("FACE-243")
@given(LISTED, st.sampled_from(["2026-07-28", "2025-11-25", "2024-11-05"]))
def test_a_plain_tool_is_what_the_sdk_makes_of_it(tool: dict[str, Any], version: str) -> None:
    if fit._is_plain_tool(tool) and "\ud800" not in str(tool):
        assert with_sdk("tools/list", version, {**WHOLE_LIST, "tools": [tool]})["tools"] == [tool]


@requirement("FACE-243")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "a", "mimeType": "b", "annotations": {"priority": 0.5, "audience": ["user"]}},
        {"type": "resource", "resource": {"uri": "a", "text": "b", "_meta": {"c": 1}}},
        {"type": "resource_link", "uri": "a", "name": "b", "size": 1, "icons": [{"src": "c", "sizes": ["1x1"]}]},
        {"type": "text", "text": "a", "unheard": 1},
    ],
)
def test_usual_content_is_plain(block: dict[str, Any]) -> None:
    for version in ("2026-07-28", "2025-11-25"):
        assert fit._read_plain({"resultType": "complete", "content": [block]}, version) is not None
