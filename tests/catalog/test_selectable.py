from typing import Any

import pytest

from tests.catalog.fixtures import definition, item, vectors
from tests.support.requirement import requirement
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.errors import CatalogError


@requirement("CARD-4", "CARD-7")
@pytest.mark.parametrize("row", vectors("tool_id_from_tool"), ids=lambda row: row["expected"])
def test_the_id_comes_from_the_definition(row: dict[str, Any]) -> None:
    assert mcp_tool_to_selectable(row["tool"]).id == row["expected"]


@requirement("CARD-12")
@pytest.mark.parametrize(
    ("annotations", "tags", "side_effects"),
    [
        ({}, ("mcp",), True),
        ({"readOnlyHint": True}, ("mcp", "read-only"), False),
        ({"destructiveHint": True}, ("destructive", "mcp"), True),
        ({"readOnlyHint": True, "destructiveHint": True}, ("destructive", "mcp", "read-only"), False),
        ({"readOnlyHint": "true", "destructiveHint": 1}, ("mcp",), True),
    ],
)
def test_hints_become_tags_and_side_effects(annotations: Any, tags: tuple[str, ...], side_effects: bool) -> None:
    made = item("read", annotations=annotations)
    assert (made.tags, made.side_effects) == (tags, side_effects)


@requirement("CARD-18")
@pytest.mark.parametrize(
    ("more", "operation"),
    [
        ({}, "mutation"),
        ({"annotations": {"readOnlyHint": True}}, "query"),
        ({"annotations": {"readOnlyHint": "true"}}, "mutation"),
        ({"_meta": {"wicketgate/operation": "subscription"}, "annotations": {"readOnlyHint": True}}, "subscription"),
        ({"_meta": {"wicketgate/operation": ["subscription"]}}, "mutation"),
        ({"_meta": {"wicketgate/operation": "query"}}, "mutation"),
    ],
)
def test_a_tool_is_a_query_a_mutation_or_a_subscription(more: Any, operation: str) -> None:
    assert item("read", **more).operation == operation


@requirement("CARD-12")
@pytest.mark.parametrize(
    ("hint", "cost"), [(0.1, 0.1), (2, 2.0), (-1, 0.0), (True, 0.0), ("0.1", 0.0), (float("inf"), 0.0), (10**400, 0.0)]
)
def test_a_cost_hint_is_a_finite_number_above_zero_or_nothing(hint: object, cost: float) -> None:
    made = item("read", annotations={"costHint": hint, "title": "Read", "openWorldHint": True})
    assert made.cost_hint == cost
    assert made.metadata == {"title": "Read", "openWorldHint": True}


@requirement("CARD-13")
def test_an_output_schema_is_kept_as_it_is_and_absent_otherwise() -> None:
    assert item("read", outputSchema={"type": "object"}).output_schema == {"type": "object"}
    assert item("read", outputSchema={}).output_schema == {}
    assert item("read").output_schema is None


@requirement("CARD-10")
def test_a_tool_without_description_or_schema_is_a_tool() -> None:
    made = mcp_tool_to_selectable({"name": "read"}, "files")
    assert (made.description, made.args_schema, made.namespace, made.server) == ("", {}, "files", "files")


@requirement("CARD-11")
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"description": "no name"}, "name"),
        ({"name": "  "}, "name"),
        ({"name": 5}, "name"),
        ({"name": "x", "description": ["a"]}, "description"),
        ({"name": "x", "inputSchema": True}, "inputSchema"),
        ({"name": "x", "inputSchema": {"properties": ["a"]}}, "inputSchema.properties"),
        ({"name": "x", "outputSchema": []}, "outputSchema"),
        ({"name": "x", "annotations": "x"}, "annotations"),
        ({"name": "x", "_meta": 1}, "_meta"),
    ],
)
def test_a_definition_that_is_not_well_formed_names_its_field(wrong: Any, field: str) -> None:
    with pytest.raises(CatalogError, match=f"^{field}: "):
        mcp_tool_to_selectable(wrong, "files")


@requirement("CARD-10")
def test_a_schema_that_only_a_validator_would_refuse_is_registered() -> None:
    assert item("read", inputSchema={"type": "strnig"}).args_schema == {"type": "strnig"}


@requirement("CARD-4")
@pytest.mark.parametrize(
    ("version", "ending"),
    [("2.1.0", "@2.1.0"), (2, "@2"), (1.5, "@1.5"), (True, "#"), (None, "#"), ("", "#"), ({}, "#")],
)
def test_a_version_is_a_text_or_a_number(version: object, ending: str) -> None:
    tool_id = item("read", _meta={"version": version}).id
    assert tool_id.startswith(f"github:read{ending}")


@requirement("CARD-8")
def test_with_infer_the_name_tells_the_namespace_and_the_server_stays() -> None:
    made = mcp_tool_to_selectable(definition("slack_send_message"), "gw", infer=True)
    assert (made.namespace, made.server, made.name) == ("slack", "gw", "slack_send_message")


@requirement("CARD-5")
def test_the_id_does_not_depend_on_the_description() -> None:
    assert item("read", description="One.").id == item("read", description=None).id
