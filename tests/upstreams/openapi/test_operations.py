"""Operations as tools: names, arguments, schemas, hints, and what is left out (CARD-18, UP-28 to UP-30)."""

from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.upstreams.openapi.fixtures import document, json_body, operation, reading
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.errors import ArgsInvalid
from wicketgate.schemas.validation import compile_schema
from wicketgate.upstreams.openapi.operations import MAX_OPERATIONS, read_operations
from wicketgate.upstreams.openapi.security import Configured


def schema_of(raw: dict[str, Any], **more: Any) -> Any:
    return operation(raw, **more).tool["inputSchema"]


def accepts(schema: Any, args: dict[str, Any]) -> bool:
    try:
        compile_schema(schema, path="t").check(args, path="t")
    except ArgsInvalid:
        return False
    return True


@requirement("UP-28")
def test_an_operation_becomes_a_tool_with_name_description_and_hints() -> None:
    raw = {"operationId": "listPets", "summary": "List pets", "description": "In any order.", "deprecated": True}
    read = reading({"/pets": {"get": raw, "delete": {}, "put": {}, "post": {}}}).operations
    assert list(read) == ["listPets", "put_pets", "post_pets", "delete_pets"]
    assert read["listPets"].tool["description"] == "Deprecated.\n\nList pets\n\nIn any order."
    hints = {name: each.tool["annotations"] for name, each in read.items()}
    assert hints["listPets"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "title": "List pets",
    }
    assert hints["delete_pets"]["destructiveHint"] and hints["delete_pets"]["idempotentHint"]
    assert not hints["post_pets"]["readOnlyHint"] and not hints["post_pets"]["idempotentHint"]
    assert hints["put_pets"]["idempotentHint"]


@requirement("UP-261")
@pytest.mark.parametrize(
    ("name", "description", "shown"),
    [
        ("create_ticket_tickets__id__post", "Open a ticket.", "Open a ticket."),
        ("create_ticket_tickets__id__post", "", "Create Ticket"),
        ("create_ticket", "Open a ticket.", "Create Ticket\n\nOpen a ticket."),
    ],
)
def test_a_summary_that_the_framework_made_of_the_name_is_omitted(name: str, description: str, shown: str) -> None:
    raw = {"operationId": name, "summary": "Create Ticket", "description": description}
    read = reading({"/tickets/{id}": {"post": raw}}).operations
    assert read[name].tool["description"] == shown


@requirement("UP-28")
def test_names_are_legal_unique_and_do_not_depend_on_their_order() -> None:
    paths = {
        "/a": {"get": {"operationId": "same"}},
        "/b": {"get": {"operationId": "same"}},
        "/ä/{x}": {"get": {"operationId": "über alles/2"}},
        "/a-b": {"get": {}},
        "/a_b": {"get": {"operationId": 5}},
        "/a.b": {"get": {}},
    }
    read = reading(paths).operations
    turned = reading(dict(reversed(paths.items()))).operations
    assert {name: each.template for name, each in read.items()} == {
        name: each.template for name, each in turned.items()
    }
    assert len(read) == 6
    assert {"get_a", "get_b", "ber_alles_2"} <= set(read)


def test_parameters_and_body_properties_stand_side_by_side() -> None:
    raw = {
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "verbose", "in": "query", "description": "More.", "schema": {"type": "boolean"}},
            {"name": "X-Trace", "in": "header", "required": True, "schema": {"type": "string"}},
        ],
        "requestBody": json_body(
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "id_": {"readOnly": True, "type": "string"}},
                "required": ["name", "id_"],
            }
        ),
    }
    schema = schema_of(raw, path="/things/{id}")
    assert list(schema["properties"]) == ["id", "verbose", "X-Trace", "name"]
    assert schema["required"] == ["id", "X-Trace", "name"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["verbose"]["description"] == "More."
    assert accepts(schema, {"id": "1", "X-Trace": "t", "name": "n"})
    assert not accepts(schema, {"id": "", "X-Trace": "t", "name": "n"})
    assert not accepts(schema, {"id": "1", "X-Trace": "t", "name": "n", "naem": "typo"})


@pytest.mark.parametrize(
    "body",
    [
        json_body({"type": "array", "items": {"type": "string"}}),
        json_body({"type": "object", "properties": {"id": {"type": "string"}}}),  # a name used twice
        json_body({"type": "object", "additionalProperties": {"type": "string"}}),
        json_body({"type": "object", "properties": {"a": {}}, "additionalProperties": True}),
        json_body({"type": "object", "properties": {"a": {}}, "required": ["a"]}, required=False),
        json_body({"type": "object", "properties": {"a": {}}, "minProperties": 1}),
        json_body({"oneOf": [{"type": "object"}, {"type": "string"}]}),
        {"content": {"text/plain": {"schema": {"type": "string"}}}},
        {"content": {"application/pdf": {}}},
    ],
)
def test_any_other_body_is_one_argument(body: dict[str, Any]) -> None:
    raw = {"parameters": [{"name": "id", "in": "query"}], "requestBody": body}
    assert list(schema_of(raw)["properties"]) == ["id", "body"]


def test_the_same_name_in_two_places_becomes_two_arguments() -> None:
    raw = {
        "parameters": [
            {"name": "id", "in": "query"},
            {"name": "id", "in": "header"},
            {"name": "body", "in": "query"},
        ],
        "requestBody": json_body({"type": "array"}),
    }
    assert list(schema_of(raw)["properties"]) == ["id", "header_id", "body", "request_body"]


def test_parameters_of_the_path_are_taken_over_and_overridden() -> None:
    shared = [{"name": "q", "in": "query", "schema": {"type": "string"}}, {"name": "page", "in": "query"}]
    own = {"operationId": "it", "parameters": [{"name": "q", "in": "query", "schema": {"type": "integer"}}]}
    read = reading({"/a/{undeclared}": {"parameters": shared, "get": own}}).operations["it"]
    properties = read.tool["inputSchema"]["properties"]
    assert properties["q"] == {"type": "integer"}
    assert list(properties) == ["q", "page", "undeclared"]
    assert read.tool["inputSchema"]["required"] == ["undeclared"]


@requirement("UP-29")
def test_what_authenticates_is_never_an_argument() -> None:
    raw = {
        "security": [{"key": []}, {"cookie": []}],
        "parameters": [
            {"name": "API_KEY", "in": "query"},
            {"name": "x-api-key", "in": "header"},
            {"name": "session", "in": "cookie"},
            *({"name": name, "in": "header"} for name in ("Authorization", "Accept", "Content-Type", "Host", "Cookie")),
            {"name": "bad\r\nname", "in": "header"},
            {"name": "q", "in": "query"},
        ],
    }
    schemes = {
        "key": {"type": "apiKey", "in": "query", "name": "API_KEY"},
        "head": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "session"},
        "odd": 5,
    }
    assert list(schema_of(raw, components={"securitySchemes": schemes})["properties"]) == ["q"]


@requirement("UP-29")
def test_headers_that_are_configured_are_not_asked_for() -> None:
    raw = {"get": {"operationId": "it", "parameters": [{"name": "X-Tenant", "in": "header", "required": True}]}}
    read = read_operations(document({"/a": raw}), Configured(frozenset({"x-tenant"})))
    assert read.operations["it"].tool["inputSchema"]["properties"] == {}


def test_schemas_of_3_0_are_translated() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "nullable": True, "enum": ["x"], "example": "x"},
            "b": {"type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False},
            "c": {"allOf": [{"$ref": "#/components/schemas/C"}], "nullable": True},
            "d": {"$ref": "#/components/schemas/C", "nullable": True},
        },
    }
    read = schema_of(
        {"requestBody": json_body(schema)}, version="3.0.3", components={"schemas": {"C": {"type": "integer"}}}
    )
    assert read["properties"]["a"] == {"type": ["string", "null"], "enum": ["x", None], "examples": ["x"]}
    assert read["properties"]["b"] == {"type": "number", "exclusiveMinimum": 1, "maximum": 5}
    assert read["properties"]["d"] == {"$ref": "#/$defs/C"}
    assert accepts(read, {"a": None, "b": 1.5, "c": None, "d": 3})
    assert not accepts(read, {"b": 1})
    assert not accepts(read, {"c": "text"})


def test_schemas_of_3_1_are_kept() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "const": "x"},
            "b": {"exclusiveMinimum": 1, "prefixItems": [{"type": "string"}]},
            "c": {"$ref": "#/components/schemas/C", "description": "Beside."},
        },
    }
    read = schema_of({"requestBody": json_body(schema)}, components={"schemas": {"C": {"type": "integer"}}})
    assert read["properties"]["a"] == {"type": ["string", "null"], "const": "x"}
    assert read["properties"]["b"] == {"exclusiveMinimum": 1, "prefixItems": [{"type": "string"}]}
    assert read["properties"]["c"] == {"$ref": "#/$defs/C", "description": "Beside."}


def test_recursive_schemas_keep_their_definitions() -> None:
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/T"}}},
    }
    read = schema_of(
        {"requestBody": json_body({"$ref": "#/components/schemas/T"})}, components={"schemas": {"T": tree}}
    )
    assert list(read["$defs"]) == ["T"]
    assert accepts(read, {"children": [{"children": [{}]}]})
    assert not accepts(read, {"children": [{"children": [{"children": "no"}]}]})


def test_a_schema_that_grows_without_end_is_cut_and_its_tool_stays() -> None:
    schemas: dict[str, Any] = {
        f"S{n}": {
            "type": "object",
            "properties": {f"p{m}": {"$ref": f"#/components/schemas/S{n + 1}"} for m in range(50)},
        }
        for n in range(100)
    }
    schemas["S100"] = {"type": "string"}
    read = schema_of({"requestBody": json_body({"$ref": "#/components/schemas/S0"})}, components={"schemas": schemas})
    assert accepts(read, {"p0": {"p1": {}}})


def test_an_answer_that_is_an_object_gives_the_output_schema() -> None:
    def output(schema: dict[str, Any], status: str = "200") -> Any:
        content = {"application/problem+json": {"schema": schema}}
        raw = {"responses": {"404": {"content": {}}, status: {"content": content}}}
        return operation(raw, components={"schemas": {"P": {"type": "object", "properties": {"a": {}}}}}).tool.get(
            "outputSchema"
        )

    pet = {"$ref": "#/components/schemas/P"}
    assert output(pet) == {
        "type": "object",
        "$ref": "#/$defs/P",
        "$defs": {"P": {"type": "object", "properties": {"a": {}}}},
    }
    assert output(pet, "201") is not None
    assert output({"type": "array"}) is None
    assert output({"type": "object"}, "404") is None
    assert output({"$ref": "elsewhere.yaml"}) is None


@requirement("CARD-18", "UP-30")
@pytest.mark.parametrize(
    ("raw", "streams"),
    [
        ({"responses": {"200": {"content": {"text/event-stream": {}}}}}, True),
        ({"responses": {"200": {"content": {"application/x-ndjson; charset=utf-8": {}}}}}, True),
        ({"responses": {"200": {"content": {"application/jsonl": {}}}}}, True),
        ({"x-streaming": True}, True),
        ({"responses": {"200": {"content": {"text/event-stream": {}, "application/json": {}}}}}, False),
        ({"responses": {"200": {"description": "ok"}}}, False),
    ],
)
def test_what_only_streams_is_a_subscription(raw: dict[str, Any], streams: bool) -> None:
    read = operation(raw)
    assert read.streams is streams
    assert (mcp_tool_to_selectable(read.tool, "shop").operation == "subscription") is streams
    assert "event-stream" not in read.accept and "ndjson" not in read.accept


def test_what_its_author_keeps_inside_is_left_out() -> None:
    read = reading(
        {
            "/a": {
                "get": {"x-internal": True},
                "post": {"x-mcp": False},
                "put": {"operationId": "put"},
                "options": {},
                "trace": {},
            }
        }
    )
    assert list(read.operations) == ["put"]
    assert read.skipped == ()


@requirement("UP-28")
@pytest.mark.parametrize(
    "bad",
    [
        None,
        "text",
        {"parameters": 5},
        {"parameters": [5]},
        {"parameters": [{"in": "query"}]},
        {"parameters": [{"name": "a", "in": "body"}]},
        {"parameters": [{"name": "a", "in": []}]},
        {"parameters": [{"$ref": "other.yaml#/x"}]},
        {"parameters": [{"$ref": "#/nowhere"}]},
        {"requestBody": {"$ref": "https://evil.example/"}},
        {"requestBody": json_body({"$ref": "other.json"})},
        {"requestBody": json_body({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Loop"}}})},
        {"parameters": [{"name": f"p{n}", "in": "query"} for n in range(400)]},
    ],
)
def test_one_bad_operation_costs_no_other(bad: Any) -> None:
    loop = {"schemas": {"Loop": {"$ref": "#/components/schemas/Loop"}}}
    read = reading({"/bad": {"get": bad}, "/good": {"get": {"operationId": "good"}}, "/worse": 7}, components=loop)
    assert list(read.operations) == ["good"]
    assert read.skipped[0].startswith("GET /bad: ")


@pytest.mark.parametrize(
    "path",
    [
        "relative",
        "/a/../b",
        "/..?x=1",
        "/./a",
        "/a?x={y}",
        "/a{?x}",
        "/a?x#b",
        "/a#b",
        "/a\\b",
        "/a?x\\b",
        "/a\nb",
        "/{a",
    ],
)
def test_a_path_that_is_none_is_left_out(path: str) -> None:
    assert len(reading({path: {"get": {}}}).skipped) == 1


@pytest.mark.parametrize("odd", [5, "x", [], None, [1], {"a": 5}, True])
@pytest.mark.parametrize(
    "key", ["parameters", "requestBody", "responses", "operationId", "summary", "tags", "security"]
)
def test_pieces_of_the_wrong_kind_never_raise(key: str, odd: Any) -> None:
    read = reading({"/a": {"get": {key: odd}}, "/b": odd}, components=odd, servers=odd)
    assert len(read.operations) + len(read.skipped) >= 1


def test_of_very_many_operations_the_first_ten_thousand_are_read() -> None:
    paths: dict[str, Any] = {f"/p{n}": {"get": {}} for n in range(MAX_OPERATIONS + 5)}
    read = reading(paths)
    assert len(read.operations) == MAX_OPERATIONS
    assert len(read.skipped) == 1


def test_operations_with_servers_of_their_own_need_a_base_url() -> None:
    own = document({"/a": {"get": {"servers": [{"url": "https://other.example"}]}}})
    assert read_operations(own, Configured(), own_servers=True).operations == {}
    assert len(read_operations(own, Configured()).operations) == 1
