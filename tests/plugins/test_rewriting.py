"""The tool manager hides tools and gives them other names (ROUTE-23, ROUTE-24)."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.requirement import requirement
from wicketgate.plugin_api import UPSTREAM_NAME_KEY
from wicketgate.plugins.rewriting import ToolEntry, ToolManager, ToolManagerConfig

TOOLS = [{"name": "echo", "description": "Echo."}, {"name": "add"}, {"name": "_private"}, {"name": "big"}]


def shown(config: dict[str, Any]) -> list[dict[str, Any]]:
    manager = ToolManager(ToolManagerConfig.model_validate(config))
    return [dict(tool) for tool in manager.on_tools("alpha", TOOLS)]


@requirement("ROUTE-23")
def test_only_tools_of_the_allowlist_exist_in_either_way_of_writing() -> None:
    assert [tool["name"] for tool in shown({"tools": [{"tool": "add"}, "echo"]})] == ["echo", "add"]
    assert [tool["name"] for tool in shown({"mode": "allowlist", "tools": ["add"]})] == ["add"]


@requirement("ROUTE-23")
def test_an_empty_allowlist_hides_every_tool() -> None:
    assert shown({"tools": []}) == []


@requirement("ROUTE-23")
def test_a_denylist_hides_what_it_names_and_patterns_fit_several() -> None:
    assert [tool["name"] for tool in shown({"mode": "denylist", "tools": ["_*", "big"]})] == ["echo", "add"]


def test_a_name_with_brackets_is_denied_by_itself() -> None:
    manager = ToolManager(ToolManagerConfig(mode="denylist", tools=(ToolEntry(tool="run[x]"), ToolEntry(tool="why?*"))))
    tools = [{"name": name} for name in ("run[x]", "runx", "why?", "whyx")]
    assert [tool["name"] for tool in manager.on_tools("alpha", tools)] == ["runx", "whyx"]


@requirement("ROUTE-23")
def test_a_tool_is_shown_under_another_name_and_keeps_its_own_for_the_call() -> None:
    (renamed,) = shown({"tools": [{"tool": "echo", "display_name": "say", "display_description": "SAY"}]})
    assert renamed == {"name": "say", "description": "SAY", "_meta": {UPSTREAM_NAME_KEY: "echo"}}
    assert TOOLS[0] == {"name": "echo", "description": "Echo."}  # the server's own definition is left as it was


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tools": ["echo"], "modes": "allowlist"},
        {"tools": [5]},
        {"tools": ["echo", {"tool": "add", "display_name": "echo"}]},
        {"tools": [{"tool": "e*", "display_name": "say"}]},
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ToolManagerConfig.model_validate(config)


def test_definitions_that_are_no_objects_are_left_out_without_harm() -> None:
    manager = ToolManager(ToolManagerConfig.model_validate({"tools": ["*"]}))
    assert manager.on_tools("alpha", [5, {"name": None}, {"name": "echo"}]) == [{"name": "echo"}]  # type: ignore[list-item]
