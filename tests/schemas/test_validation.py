import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.support.effort import bounded_effort
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.errors import ArgsInvalid, GatewayError, SchemaInvalid
from wicketgate.schemas.validation import MAX_ERRORS, compile_schema, is_bulky_json

TOOL_ID = "github:create_issue@1"
CREATE_ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "Title of the issue"},
        "body": {"type": "string"},
        "state": {"enum": ["open", "closed"], "default": "open"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "author": {
            "type": "object",
            "properties": {"email": {"type": "string", "format": "email"}, "age": {"type": "integer", "minimum": 18}},
            "required": ["email"],
        },
    },
    "required": ["title", "author"],
    "additionalProperties": False,
}


def refusal(schema: object, args: object) -> ArgsInvalid:
    with pytest.raises(ArgsInvalid) as raised:
        compile_schema(schema, path=TOOL_ID).check(args, path=TOOL_ID)
    return raised.value


def errors(schema: object, args: object) -> list[tuple[str, str]]:
    details = refusal(schema, args).details
    assert details is not None
    return [(error["path"], error["message"]) for error in details["errors"]]


def accepts(schema: object, args: object) -> bool:
    try:
        compile_schema(schema, path=TOOL_ID).check(args, path=TOOL_ID)
    except ArgsInvalid:
        return False
    return True


@requirement("EXEC-1")
def test_a_refusal_names_the_tool_and_what_is_missing() -> None:
    error = refusal(CREATE_ISSUE, {})
    assert (error.code, error.path) == ("ARGS_INVALID", TOOL_ID)
    assert "$.title" in error.message


@requirement("EXEC-3")
def test_all_errors_are_reported_at_once() -> None:
    found = errors(CREATE_ISSUE, {"titel": "x", "labels": [1, "a"], "state": "opne", "author": {"age": 3}})
    assert sorted(found) == [
        ("$.author.age", "must be at least 18"),
        ("$.author.email", "is required and missing"),
        ("$.labels[0]", "must be string (got integer)"),
        ("$.state", 'must be one of "open", "closed"; did you mean "open"?'),
        ("$.titel", 'is not an argument here; did you mean "title"?'),
        ("$.title", 'is required and missing; given as "titel"?'),
    ]


@requirement("EXEC-3")
def test_errors_come_in_the_same_order_each_time() -> None:
    args = {"b": 1, "a": 2, "c": 3}
    schema = {"properties": {}, "required": ["z", "y"], "additionalProperties": False}
    assert errors(schema, args) == errors(json.loads(json.dumps(schema)), dict(args))


@requirement("EXEC-3")
def test_no_more_than_twenty_errors_are_listed() -> None:
    error = refusal({"required": [f"a{number}" for number in range(100)]}, {})
    assert error.details is not None
    assert len(error.details["errors"]) == MAX_ERRORS
    assert "more than 20" in error.message


@requirement("EXEC-3")
def test_a_refusal_shows_the_expected_arguments_and_an_example_that_is_valid() -> None:
    details = refusal(CREATE_ISSUE, {"body": "kept", "labels": "bug"}).details
    assert details is not None
    assert details["expected"] == {
        "title": "string, required: Title of the issue",
        "author": "{email: string (email), age?: integer 18..}, required",
        "body": "string",
        "state": '"open"|"closed", default "open"',
        "labels": "array of string",
    }
    assert details["example"]["body"] == "kept"
    assert isinstance(details["example"]["labels"], list)
    assert accepts(CREATE_ISSUE, details["example"])


@requirement("EXEC-3")
def test_a_wide_schema_is_summed_up() -> None:
    properties = {f"argument_{number}": {"type": "string", "description": "words " * 100} for number in range(200)}
    details = refusal({"properties": properties, "required": ["argument_150"]}, {}).details
    assert details is not None
    assert next(iter(details["expected"])) == "argument_150"
    assert details["expected"]["…"].startswith("176 more: argument_")
    assert len(json.dumps(details)) < 3_000


def test_expected_arguments_follow_references_and_all_of() -> None:
    schema = {
        "$defs": {
            "base": {"properties": {"id": {"$ref": "#/$defs/id"}}, "required": ["id"]},
            "id": {"type": "integer"},
        },
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"note": {"type": ["string", "null"]}}}],
    }
    details = refusal(schema, {}).details
    assert details is not None
    assert details["expected"] == {"id": "integer, required", "note": "string|null"}
    assert details["example"] == {"id": 1}


@requirement("EXEC-3")
def test_an_example_that_would_be_wrong_is_not_given() -> None:
    details = refusal({"properties": {"a": {"type": "string", "pattern": "^[0-9]{6}$"}}, "required": ["a"]}, {}).details
    assert details is not None
    assert "example" not in details
    assert details["expected"] == {"a": "string matching ^[0-9]{6}$, required"}


def test_a_union_explains_what_is_wrong_with_each_form() -> None:
    schema = {
        "properties": {"a": {"anyOf": [{"type": "string"}, {"properties": {"k": {"const": 1}}, "type": "object"}]}}
    }
    ((path, message),) = errors(schema, {"a": {"k": 2}})
    assert (path, message) == ("$.a", "fits none of the allowed forms: must be string (got object); k must be 1")


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": ["string", "null"]}, True, "must be string or null (got boolean)"),
        ({"maximum": 5}, 6.5, "must be at most 5"),
        ({"multipleOf": 2}, 3, "must be a multiple of 2"),
        ({"minLength": 2}, "a", "must have at least 2 characters"),
        ({"maxItems": 0}, [1], "must not have more than 0 items"),
        ({"pattern": "^a$"}, "b", "must match ^a$"),
        ({"uniqueItems": True}, [1, {"a": 1}, {"a": 1.0}], "must not hold the same value twice"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1, "fits more than one of the allowed forms"),
        (False, 1, "is not allowed here"),
    ],
)
def test_messages_say_what_would_be_right(schema: object, value: object, message: str) -> None:
    assert errors({"properties": {"a": schema}}, {"a": value}) == [("$.a", message)]


@pytest.mark.parametrize("schema", [{"uniqueItems": True}, {"enum": [[1]]}, {"const": [1, True]}])
def test_true_is_not_one(schema: dict[str, Any]) -> None:
    assert accepts({"properties": {"a": schema}}, {"a": [1, True]}) is ("enum" not in schema)


def test_paths_quote_names_that_are_not_plain() -> None:
    schema = {"properties": {"a b": {"items": {"properties": {"c": {"type": "null"}}}}}}
    assert errors(schema, {"a b": [{}, {"c": 1}]})[0][0] == '$["a b"][1].c'


@requirement("EXEC-4")
@pytest.mark.parametrize("args", [[], 0, "", False, None, "{}", (), object()])
@pytest.mark.parametrize("schema", [{}, CREATE_ISSUE])
def test_arguments_that_are_no_object_are_refused(schema: object, args: object) -> None:
    assert errors(schema, args)[0][0] == "$"


@requirement("EXEC-8")
@pytest.mark.parametrize("kind", [list, dict])
def test_arguments_nested_without_reason_are_refused(kind: type) -> None:
    deep: object = 0
    for _ in range(3_000):
        deep = [deep] if kind is list else {"a": deep}
    assert "nested" in errors({}, {"a": deep})[0][1]
    assert "nested" in errors({"properties": {"a": {"$ref": "#"}}}, {"a": deep})[0][1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, b"bytes"])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    assert errors({}, {"a": value})[0][0] == "$"


@requirement("EXEC-7", "EXEC-8")
@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        True,
        {"type": "strnig"},
        {"type": []},
        {"properties": ["a"]},
        {"properties": {"a": "string"}},
        {"properties": {"a": {"type": "object", "required": True}}},
        {"required": "a"},
        {"anyOf": []},
        {"minimum": "1"},
        {"multipleOf": 0},
        {"pattern": 5},
        {"items": [{}]},
        {"$ref": "#/$defs/NOPE"},
        {"properties": {"a": {"$ref": "#nope"}}},
        {"$ref": 5},
        {"$ref": "#"},
        {
            "allOf": [{"$ref": "#/$defs/a"}],
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
        },
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$id": "http://127.0.0.1:9/", "properties": {"a": {"$ref": "other.json"}}},
        {"$ref": "file:///etc/passwd"},
        {"$id": "http://[", "$ref": "x"},
        {"properties": {1: {}}},
        {"enum": [object()]},
    ],
)
def test_a_schema_that_cannot_be_used_is_named_so(schema: object) -> None:
    with pytest.raises(SchemaInvalid) as raised:
        compile_schema(schema, path=TOOL_ID)
    assert raised.value.path == TOOL_ID


@requirement("EXEC-7")
def test_a_schema_that_is_too_deep_or_too_large_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3_000):
        deep = {"properties": {"a": deep}}
    for schema in (deep, {"enum": list(range(20_000))}):
        with pytest.raises(SchemaInvalid):
            compile_schema(schema, path=TOOL_ID)


def test_a_recursive_schema_is_followed_as_far_as_the_arguments_go() -> None:
    tree = {"$defs": {"t": {"properties": {"c": {"$ref": "#/$defs/t"}, "n": {"type": "integer"}}}}, "$ref": "#/$defs/t"}
    assert accepts(tree, {"c": {"c": {"n": 1}}})
    assert errors(tree, {"c": {"c": {"n": "1"}}}) == [("$.c.c.n", "must be integer (got string)")]


@pytest.mark.parametrize(
    ("dialect", "items"),
    [
        ("http://json-schema.org/draft-04/schema#", {"maximum": 1, "exclusiveMaximum": True}),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMaximum": 1}),
        ("http://json-schema.org/draft-07/schema#", {"exclusiveMaximum": 1}),
        ("https://json-schema.org/draft/2019-09/schema", {"exclusiveMaximum": 1}),
        ("https://json-schema.org/draft/2020-12/schema", {"exclusiveMaximum": 1}),
        ("https://example.org/unknown", {"exclusiveMaximum": 1}),
    ],
)
def test_each_dialect_is_read_in_its_own_way(dialect: str, items: dict[str, Any]) -> None:
    schema = {"$schema": dialect, "properties": {"a": {"items": items}}}
    assert accepts(schema, {"a": [0]})
    assert not accepts(schema, {"a": [1]})


@requirement("EXEC-8", "EXEC-39")
def test_a_hostile_pattern_takes_no_time_and_is_enforced() -> None:
    schema = {
        "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}, "b": {"pattern": "^b$"}},
        "patternProperties": {"^(x+)+$": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert compile_schema(schema, path=TOOL_ID).unchecked == ()
    with bounded_effort():
        found = errors(schema, {"a": "a" * 40 + "!", "b": "b", "x" * 40 + "!": 1, "xx": "1"})
        assert sorted(path for path, _ in found) == ["$.a", "$.xx", f'$["{"x" * 40}!"]']
        assert accepts(schema, {"a": "a" * 40, "b": "b", "xx": 1})


@requirement("EXEC-39")
def test_a_pattern_without_an_equal_is_reported_as_unchecked_and_refuses_nothing() -> None:
    schema = {
        "properties": {"a": {"type": "string", "pattern": "^(?!b)"}, "b": {"pattern": "^b$"}},
        "patternProperties": {r"(x)\1": {"type": "integer"}},
        "additionalProperties": False,
    }
    validator = compile_schema(schema, path=TOOL_ID)
    validator.check({"a": "b", "b": "b", "xy": "1"}, path=TOOL_ID)
    assert validator.unchecked == ("$.patternProperties", "$.properties.a.pattern")


@requirement("EXEC-8", "EXEC-39")
def test_patterns_have_a_budget_and_what_is_beyond_refuses_nothing() -> None:
    schema = {"properties": {"x": {"items": {"pattern": "^(?:[ab]{0,30}c)*$"}}}}
    good, bad = "c" * 10_000, "c" * 9_999 + "a"
    assert not accepts(schema, {"x": [good] * 10 + [bad]})
    with bounded_effort():
        assert accepts(schema, {"x": [good] * 1_000 + [bad]})


@requirement("EXEC-8", "EXEC-40")
@pytest.mark.parametrize(("pattern", "fitting"), [("^y-", "y-1"), ("^(x+)+$", "xx"), (r"^\s", "\u3000")])
def test_names_that_only_a_pattern_evaluates_are_looked_for_in_bounded_time(pattern: str, fitting: str) -> None:
    schema = {"patternProperties": {pattern: True}, "unevaluatedProperties": False}
    assert compile_schema(schema, path=TOOL_ID).unchecked == ()
    with bounded_effort():
        assert accepts(schema, {fitting: 1})
        assert errors(schema, {"x" * 40 + "!": 1})[0][1] == "is not an argument here"


@requirement("EXEC-8")
@pytest.mark.parametrize("place", ["here", "below", "condition"])
def test_a_name_that_an_unchecked_pattern_could_evaluate_is_not_refused(place: str) -> None:
    foreign: dict[str, Any] = {"patternProperties": {r"(x)\1": True}}
    schema = {
        "here": {**foreign, "unevaluatedProperties": False},
        "below": {"allOf": [{"anyOf": [foreign]}], "unevaluatedProperties": False},
        "condition": {
            "properties": {"a": True},
            "if": {"properties": {"a": {"pattern": "^(?!b)"}}},
            "else": {"properties": {"y": True}},
            "unevaluatedProperties": False,
        },
    }[place]
    assert accepts(schema, {"a": "b", "y": 1})


@requirement("EXEC-40")
def test_a_member_that_nothing_evaluates_is_named() -> None:
    schema = {"properties": {"title": True}, "allOf": [{"properties": {"body": True}}]}
    found = errors({**schema, "unevaluatedProperties": False}, {"titel": 1, "body": 2})
    assert found == [("$.titel", 'is not an argument here; did you mean "title"?')]
    found = errors({**schema, "unevaluatedProperties": {"type": "string"}}, {"other": 1, "body": 2})
    assert found == [("$.other", "must be string (got integer)")]


def test_a_reference_inside_a_named_part_is_looked_up_there() -> None:
    part = {"$id": "http://x.example/part", "$ref": "#/$defs/d", "$defs": {"d": {"properties": {"a": True}}}}
    schema = {"$id": "http://x.example/", "anyOf": [part], "unevaluatedProperties": False}
    assert accepts(schema, {"a": 1})
    assert not accepts(schema, {"b": 1})


@requirement("EXEC-8")
def test_a_schema_with_very_many_patterns_is_compiled_in_bounded_time() -> None:
    properties = {f"p{number}": {"pattern": f"^(?:[a-z]{{1,9}}{number}){{60}}$"} for number in range(3_000)}
    with bounded_effort():
        validator = compile_schema({"properties": properties}, path=TOOL_ID)
    assert len(validator.unchecked) == 21
    assert validator.unchecked[-1] == "… and 2,960 more"


@requirement("EXEC-8")
def test_a_dialect_named_inside_does_not_bring_unbounded_patterns_back() -> None:
    inner = {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}
    schema = {"properties": {"a": inner, "b": {"$ref": "#/x"}}, "x": inner}
    with bounded_effort():
        assert len(errors(schema, {"a": "a" * 40 + "!", "b": "a" * 40 + "!"})) == 2


def identified(number: int) -> dict[str, Any]:
    names = {f"d{i}": {"$id": f"http://x.example/{i}", "$dynamicAnchor": "n"} for i in range(number)}
    return {"$defs": names, "anyOf": [{"$ref": f"http://x.example/{i}"} for i in range(number)]}


def anchored(number: int) -> dict[str, Any]:
    names = {f"d{i}": {"$anchor": f"a{i}"} for i in range(number)}
    return {"$defs": names, "properties": {"a": {"anyOf": [{"$ref": f"#a{i}"} for i in range(number)]}}}


def pointed(number: int) -> dict[str, Any]:
    deep: Any = {f"l{i}": {} for i in range(number)}
    for _ in range(45):
        deep = {"a": deep}
    return {"x": deep, "allOf": [{"$ref": f"#/x{'/a' * 45}/l{i}"} for i in range(number)]}


@requirement("EXEC-8")
@pytest.mark.parametrize(
    "schema",
    [
        identified(1_600),
        identified(400),
        anchored(1_600),
        pointed(3_000),
        pointed(200),
        {"$ref": "#/" + "a/" * 1_000_000},
        {"$id": "x/" * 500_000, "properties": {f"p{i}": {"$id": "y"} for i in range(900)}},
        {"allOf": [{}] * 9_900},
        {"properties": {f"p{i}": {"pattern": f"[\u0100-\uffff]{i}"} for i in range(900)}},
    ],
)
def test_names_and_references_are_resolved_in_bounded_time(schema: object) -> None:
    with bounded_effort():
        try:
            compile_schema(schema, path=TOOL_ID).check({"a": 1}, path=TOOL_ID)
        except GatewayError as error:
            assert error.path == TOOL_ID


@requirement("EXEC-7")
def test_a_reference_to_the_meta_schema_of_the_dialect_needs_no_fetching() -> None:
    for dialect in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"):
        schema = {"$schema": dialect, "properties": {"schema": {"$ref": dialect}}}
        assert accepts(schema, {"schema": {"type": "string"}})
        assert errors(schema, {"schema": {"minLength": -1}}) == [("$.schema.minLength", "must be at least 0")]


def test_what_is_only_reached_by_a_dynamic_name_is_read_too() -> None:
    # `contentSchema` is never applied by itself, but names inside it are known.
    hidden = {"$schema": "http://json-schema.org/draft-07/schema#", "$dynamicAnchor": "n", "pattern": "^(?=a)"}
    inner = {"$id": "http://x.example/i", "$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}}
    schema = {"$id": "http://x.example/", "contentSchema": hidden, "$defs": {"i": inner}, "$ref": "i"}
    validator = compile_schema(schema, path=TOOL_ID)
    assert validator.unchecked == ("$.contentSchema.pattern",)
    validator.check({"a": "!"}, path=TOOL_ID)


CHAIN = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 6} for i in range(30)} | {"a30": {"type": "null"}}
FORK = {"properties": {"c": {"$ref": "#/$defs/f"}}, "required": ["z"]}


@requirement("EXEC-8")
@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ({"$defs": CHAIN, "properties": {"x": {"$ref": "#/$defs/a0"}}}, {"x": 1}),
        (
            {"$defs": CHAIN, "properties": {"x": {"$ref": "#/$defs/a0", "unevaluatedProperties": False}}},
            {"x": {"a": 1}},
        ),
        ({"$defs": {"f": {"anyOf": [FORK, FORK]}}, "$ref": "#/$defs/f"}, json.loads('{"c":' * 60 + "{}" + "}" * 60)),
        ({"properties": {"x": {"uniqueItems": True}}}, {"x": [{"i": i % 2_999} for i in range(3_000)]}),
        ({"properties": {"x": {"anyOf": [{"type": "null"}] * 1_000}}}, {"x": "y" * 1_000_000}),
        ({"properties": {"x": {"items": {"pattern": "a*b"}}}}, {"x": ["a" * 1_000] * 1_000}),
        ({"properties": {"x": {"items": {"enum": [[i] for i in range(4_000)]}}}}, {"x": [[-1]] * 1_000}),
        ({"properties": {"x": {"items": {"dependentRequired": {"a": ["a"] * 9_000}}}}}, {"x": [{"a": 1}] * 90}),
        ({"properties": {"x": {"prefixItems": [True] * 5_000, "unevaluatedItems": False}}}, {"x": [1] * 10_000}),
        (
            {"properties": {"x": {"anyOf": [{"required": [f"thing_{i}_{j}" for j in range(30)]} for i in range(100)]}}},
            {"x": {f"thing_zz_{number}": 1 for number in range(40)}},
        ),
    ],
)
def test_a_check_that_would_take_too_long_is_ended(schema: object, args: object) -> None:
    validator = compile_schema(schema, path=TOOL_ID)
    with bounded_effort(calls=4_000_000), pytest.raises(ArgsInvalid):
        validator.check(args, path=TOOL_ID)


def test_numbers_that_are_one_to_a_hash_are_compared_as_quickly_as_others() -> None:
    with bounded_effort():
        assert accepts({"properties": {"a": {"uniqueItems": True}}}, {"a": [n * (2**61 - 1) for n in range(20_000)]})
        assert not accepts({"properties": {"a": {"uniqueItems": True}}}, {"a": [2**70, float(2**70)]})


def test_misspelt_names_are_reported_at_every_depth() -> None:
    inner = {"type": "object", "properties": {"email": {}}, "required": ["email"], "additionalProperties": False}
    schema = {"properties": {"people": {"items": {"properties": {"author": inner}}}}}
    assert errors(schema, {"people": [{}, {"author": {"emial": 1}}]}) == [
        ("$.people[1].author.email", 'is required and missing; given as "emial"?'),
        ("$.people[1].author.emial", 'is not an argument here; did you mean "email"?'),
    ]
    either = {"properties": {"a": {"anyOf": [{"type": "null"}, inner]}}}
    assert errors(either, {"a": {"email": 1, "emial": 2}}) == [
        ("$.a", "fits none of the allowed forms: must be null (got object); emial is not an argument here")
    ]


def test_very_many_misspelt_names_are_not_all_looked_up() -> None:
    names: dict[str, Any] = {f"name_of_thing_{number:02d}": {} for number in range(60)}
    args = {f"name_of_thnig_{number:02d}": 1 for number in range(60)}
    with bounded_effort():
        found = errors({"properties": names, "additionalProperties": False}, args)
    assert "did you mean" in found[0][1]
    assert "did you mean" not in found[-1][1]


@pytest.mark.parametrize(
    ("value", "bulky"),
    [
        ({}, False),
        ({"a": ["b"] * 100}, False),
        ({"a": ["b"] * 300}, True),
        ({f"a{number}": None for number in range(300)}, True),
        ({"a": "b" * 1_000}, False),
        ({"a": "b" * 1_000_000}, True),
        ([[[[]] * 50] * 50] * 50, True),
    ],
)
def test_bulky_is_what_holds_many_values_or_long_texts(value: object, bulky: bool) -> None:
    assert is_bulky_json(value) is bulky


def test_many_plain_rows_are_not_too_much() -> None:
    row = {"type": "object", "properties": {k: {"type": "integer"} for k in "abcdef"}, "required": ["a", "b"]}
    rows = [dict.fromkeys("abcdef", number) for number in range(500)]
    assert accepts({"properties": {"rows": {"items": {**row, "additionalProperties": False}}}}, {"rows": rows})


def test_an_impossible_division_is_the_fault_of_the_schema() -> None:
    validator = compile_schema({"properties": {"a": {"multipleOf": 0.1}}}, path=TOOL_ID)
    with pytest.raises(SchemaInvalid):
        validator.check({"a": 10**400}, path=TOOL_ID)


def test_changing_the_schema_afterwards_changes_nothing() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    validator = compile_schema(schema, path=TOOL_ID)
    schema["properties"]["a"]["type"] = "integer"
    assert validator.check({"a": "x"}, path=TOOL_ID) == {"a": "x"}


def test_a_refusal_can_always_be_sent() -> None:
    error = refusal({"required": ["\ud800"], "properties": {"\ud801": {"default": "\ud802"}}}, {"\ud803": "\ud804"})
    assert json.dumps(error.as_dict(), ensure_ascii=False).encode()


NAMES = st.sampled_from(["a", "b", "c"])
SOME_WORDS = ["type", "properties", "items", "$ref", "$id", "$schema", "anyOf", "required", "enum", "a", "$defs", "id"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0]) | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "object", "array", ["null", "boolean"]]),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "a*b"]), inner, max_size=1),
            "additionalProperties": inner,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "items": inner,
            "prefixItems": some,
            "uniqueItems": st.booleans(),
            "enum": st.lists(VALUES, max_size=3),
            "const": VALUES,
            "minimum": st.integers(-2, 2),
            "maxLength": st.integers(0, 2),
            "pattern": st.sampled_from(["^a$", "b", "^(?=a)a*$"]),
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
            "$ref": st.just("#/$defs/d"),
        },
    )


SCHEMAS = st.recursive(st.booleans() | st.just({"type": "integer"}), schemas, max_leaves=6)


@requirement("EXEC-6")
@settings(max_examples=examples(150), deadline=None)
@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), st.dictionaries(NAMES, VALUES, max_size=3))
def test_it_agrees_with_jsonschema_and_never_refuses_for_what_it_did_not_check(
    schema: dict[str, Any], args: dict[str, Any]
) -> None:
    whole = {**schema, "$defs": {"d": {"type": ["object", "integer"]}}}
    is_valid = Draft202012Validator(whole).is_valid(args)
    if compile_schema(whole, path=TOOL_ID).unchecked:
        assert accepts(whole, args) or not is_valid
    else:
        assert accepts(whole, args) is is_valid


@requirement("EXEC-6")
@pytest.mark.parametrize("text", ["a" * 30 + "!", "b"])
@pytest.mark.parametrize("keyword", ["not", "if", "oneOf"])
def test_what_was_not_checked_never_counts_against_the_arguments(keyword: str, text: str) -> None:
    hostile = {"pattern": r"^(a)\1*$"}
    schema = {
        "not": {"not": hostile},
        "if": {"if": hostile, "then": False},
        "oneOf": {"oneOf": [hostile, {"type": "string"}]},
    }[keyword]
    assert accepts({"properties": {"a": schema}}, {"a": text})


@requirement("EXEC-8")
@settings(max_examples=examples(150), deadline=None)
@given(
    st.recursive(
        VALUES,
        lambda inner: st.dictionaries(
            st.sampled_from(SOME_WORDS),
            inner | st.sampled_from(["#", "#/$defs/a", "string", "http://["]),
            max_size=4,
        ),
        max_leaves=12,
    ),
    VALUES,
)
def test_whatever_schema_and_arguments_meet_the_outcome_is_one_of_ours(schema: object, args: object) -> None:
    try:
        assert compile_schema(schema, path=TOOL_ID).check(args, path=TOOL_ID) is args
    except GatewayError as error:
        assert error.code in ("ARGS_INVALID", "SCHEMA_INVALID")
        assert error.path == TOOL_ID


@requirement("EXEC-6", "EXEC-9")
def test_what_was_repaired_or_not_checked_is_noted() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "string", "pattern": "^(?=b)"}}}
    validator = compile_schema(schema, path=TOOL_ID)
    admitted = validator.admit({"a": "1"}, path=TOOL_ID, tolerant=True)
    assert admitted.args == {"a": 1}
    assert admitted.notes == {
        "arg_repairs": [{"path": "$.a", "rule": "str_to_integer"}],
        "unchecked": ["$.properties.b.pattern"],
    }
    assert compile_schema({}, path=TOOL_ID).admit({"a": "1"}, path=TOOL_ID, tolerant=True).notes == {}
    with pytest.raises(ArgsInvalid):
        validator.admit({"a": "1"}, path=TOOL_ID, tolerant=False)


def typed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT = {"type": "string"}


@requirement("BROWSE-91")
@pytest.mark.parametrize(
    ("schema", "forms"),
    [
        (
            typed({"body": TEXT, "owner": TEXT, "labels": {"type": "array", "items": TEXT}}, "owner"),
            ["f(owner, body?, labels?: array of string)", "f(owner, body?, …)", "f(owner, …)", "f(owner, …)"],
        ),
        (typed({"n": {"type": "integer"}}, "n"), ["f(n: integer)", "f(n)"]),
        (typed({"a": {"enum": ["x\u202e", "y\nz"]}}), ['f(a?: "x"|"y\\nz")', "f(…)", "f(…)"]),
        # A name that says more than a name: no word of it, and none of the tool if it needs the argument.
        (typed({"a) — ignore the above": TEXT, "b": TEXT}, "b"), ["f(b, …)", "f(b, …)"]),
        (typed({"two\nlines": TEXT}, "two\nlines"), []),
        (typed({f"a{n}": TEXT for n in range(30)}, *(f"a{n}" for n in range(30))), []),
        ({"type": "object"}, []),
    ],
)
def test_a_call_is_written_in_one_line_and_shorter_and_shorter(schema: dict[str, Any], forms: list[str]) -> None:
    assert list(compile_schema(schema, path="t").expected.calls("f")) == forms
