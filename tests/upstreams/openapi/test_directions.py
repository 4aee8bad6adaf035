"""Properties that only one direction has (UP-97)."""

from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.upstreams.openapi.fixtures import json_body, operation

ID = {"type": "integer", "readOnly": True}
SECRET = {"type": "string", "writeOnly": True}
NAME = {"type": "string"}
SCHEMAS: dict[str, Any] = {
    "Id": ID,
    "Plain": {"type": "string"},
    "Thing": {
        "type": "object",
        "required": ["id", "name", "secret"],
        "properties": {"id": ID, "name": NAME, "secret": SECRET},
    },
    "Loop": {"type": "object", "allOf": [{"$ref": "#/components/schemas/Loop"}, {"required": ["x"]}]},
}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def asked_and_promised(schema: dict[str, Any], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of a property ``thing`` in the body and in the answer of an operation."""
    whole = {"type": "object", "properties": {"thing": schema}}
    answers = {"200": {"content": {"application/json": {"schema": whole}}}}
    raw = {"requestBody": json_body(whole), "responses": answers}
    tool = operation(raw, components={"schemas": SCHEMAS}, **more).tool
    asked, promised = (_inlined(tool[key], tool[key]["properties"]["thing"]) for key in ("inputSchema", "outputSchema"))
    return asked, promised


def _inlined(tool: dict[str, Any], part: Any) -> Any:
    match part:
        case {"$ref": str(reference)}:
            found = tool["$defs"][reference.removeprefix("#/$defs/")]
            beside = {key: value for key, value in part.items() if key != "$ref"}
            return {**_inlined(tool, found), **beside}
        case dict():
            return {key: _inlined(tool, value) for key, value in part.items()}
        case list():
            return [_inlined(tool, each) for each in part]
    return part


@requirement("UP-97")
@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
@pytest.mark.parametrize("schema", [SCHEMAS["Thing"], ref("Thing")])
def test_a_property_of_the_other_direction_is_neither_there_nor_required(schema: dict[str, Any], version: str) -> None:
    asked, promised = asked_and_promised(schema, version=version)
    assert (list(asked["properties"]), asked["required"]) == (["name", "secret"], ["name", "secret"])
    assert (list(promised["properties"]), promised["required"]) == (["id", "name"], ["id", "name"])


@requirement("UP-97")
@pytest.mark.parametrize(
    "part",
    [
        ref("Id"),
        {"allOf": [ref("Id")]},
        {"allOf": [ref("Plain")], "readOnly": True},
        {"$ref": "#/components/schemas/Plain", "readOnly": True},
        {"anyOf": [ref("Id"), {"type": "null"}], "readOnly": True},
    ],
)
def test_the_mark_may_stand_beside_or_behind_a_reference(part: dict[str, Any]) -> None:
    asked, promised = asked_and_promised({"type": "object", "required": ["a"], "properties": {"a": part, "b": NAME}})
    assert list(asked["properties"]) == ["b"]
    assert "required" not in asked
    assert promised["required"] == ["a"]


@requirement("UP-97")
def test_what_stands_beside_a_reference_does_not_count_in_the_older_version() -> None:
    part = {"$ref": "#/components/schemas/Plain", "readOnly": True}
    asked, _ = asked_and_promised({"type": "object", "properties": {"a": part}}, version="3.0.3")
    assert list(asked["properties"]) == ["a"]


@requirement("UP-97")
@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_what_is_required_in_another_branch_counts_too(key: str) -> None:
    schema = {"allOf": [ref("Thing"), {key: [{"required": ["id", "name"]}]}], "required": ["id", "secret"]}
    asked, promised = asked_and_promised(schema)
    assert asked["required"] == ["secret"]
    assert asked["allOf"][1] == {key: [{"required": ["name"]}]}
    assert promised["required"] == ["id"]
    assert promised["allOf"][1] == {key: [{"required": ["id", "name"]}]}


@requirement("UP-97")
def test_a_name_of_one_object_is_not_that_of_an_object_inside() -> None:
    inner = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
    schema = {"allOf": [ref("Thing"), {"type": "object", "properties": {"inner": inner}}]}
    asked, _ = asked_and_promised(schema)
    assert asked["allOf"][1]["properties"]["inner"]["required"] == ["id"]


@requirement("UP-97")
def test_compositions_in_a_circle_end() -> None:
    raw = {"requestBody": json_body({"type": "object", "properties": {"l": ref("Loop")}})}
    assert operation(raw, components={"schemas": SCHEMAS}).tool["inputSchema"]["properties"]["l"] == {
        "$ref": "#/$defs/Loop"
    }
