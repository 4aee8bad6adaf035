"""Tools and results of a face, fitted to the client's protocol version."""

import gc
import weakref
from collections.abc import Iterator

from tests.support.requirement import requirement
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
