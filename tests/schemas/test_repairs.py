import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schemas.test_validation import NAMES, SCHEMAS, VALUES
from tests.support.effort import bounded_effort
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.errors import ArgsInvalid, GatewayError
from wicketgate.schemas.validation import compile_schema

TOOL_ID = "shop:refund@1"
BOM = "\ufeff"
ORDER = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string"},
        "amount": {"type": "number"},
        "count": {"type": "integer"},
        "express": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "anything": {},
        "size": {"enum": [1, 2]},
        "address": {"$ref": "#/$defs/address"},
        "lines": {"type": "array", "items": {"type": "integer"}},
        "maybe": {"anyOf": [{"$ref": "#/$defs/address"}, {"type": "null"}]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "integer"}, {}]},
    },
    "$defs": {"address": {"type": "object", "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}}}},
}


def repaired(args: object, schema: object = ORDER) -> tuple[object, list[tuple[str, str]]]:
    mended, repairs = compile_schema(schema, path=TOOL_ID).repair(args)
    assert all(each.keys() == {"path", "rule"} for each in repairs)
    return mended, [(each["path"], each["rule"]) for each in repairs]


@requirement("EXEC-9")
@pytest.mark.parametrize(
    ("given_args", "expected", "repairs"),
    [
        ({"count": "42"}, {"count": 42}, [("$.count", "str_to_integer")]),
        ({"count": "-7"}, {"count": -7}, [("$.count", "str_to_integer")]),
        ({"amount": "42"}, {"amount": 42}, [("$.amount", "str_to_number")]),
        ({"amount": "1.50e2"}, {"amount": 150.0}, [("$.amount", "str_to_number")]),
        ({"express": "true"}, {"express": True}, [("$.express", "str_to_boolean")]),
        ({"express": "false"}, {"express": False}, [("$.express", "str_to_boolean")]),
        ({"limit": "5"}, {"limit": 5}, [("$.limit", "str_to_integer")]),
        ({"lines": "[1, 2]"}, {"lines": [1, 2]}, [("$.lines", "json_to_array")]),
        ({"lines": ["1", 2, "x"]}, {"lines": [1, 2, "x"]}, [("$.lines[0]", "str_to_integer")]),
        (
            {"address": ' {"zip": "08001", "floor": "3"}'},
            {"address": {"zip": "08001", "floor": 3}},
            [("$.address", "json_to_object"), ("$.address.floor", "str_to_integer")],
        ),
        ({"maybe": {"floor": "3"}}, {"maybe": {"floor": 3}}, [("$.maybe.floor", "str_to_integer")]),
        ({"count": f"{BOM}3"}, {"count": 3}, [("$.count", "strip_bom"), ("$.count", "str_to_integer")]),
        (f"{BOM}{{}}", {}, [("$", "strip_bom"), ("$", "json_to_object")]),
        (
            '{"order_id":"4471","amount":"129.0"}',
            {"order_id": "4471", "amount": 129.0},
            [("$", "json_to_object"), ("$.amount", "str_to_number")],
        ),
    ],
)
def test_a_text_that_says_one_value_of_the_wanted_type_becomes_it(
    given_args: object, expected: object, repairs: list[tuple[str, str]]
) -> None:
    mended, made = repaired(given_args)
    assert (json.dumps(mended), made) == (json.dumps(expected), repairs)


@requirement("EXEC-9")
@pytest.mark.parametrize(
    "args",
    [
        {"order_id": "4471"},
        {"order_id": f"{BOM}4471"},
        {"order_id": '{"a": 1}'},
        {"note": "42"},
        {"anything": "42"},
        {"either": "42"},
        {"size": "1"},
        {"unknown": "42", "count": 1},
        {"count": "not-a-number"},
        {"count": "lots"},
        {"count": "1e999"},
        {"count": "129.0"},
        {"count": "042"},
        {"count": "+42"},
        {"count": " 42"},
        {"count": "4_2"},
        {"count": "٤٢"},
        {"count": "true"},
        {"count": ""},
        {"count": "9" * 5_000},
        {"amount": "1e999"},
        {"amount": "NaN"},
        {"amount": "Infinity"},
        {"amount": ".5"},
        {"amount": "0.12345678901234567"},
        {"amount": "1e-400"},
        {"express": "yes"},
        {"express": "True"},
        {"express": "1"},
        {"lines": '{"a": 1}'},
        {"lines": "1, 2"},
        {"address": '{"floor": NaN}'},
        {"address": '{"floor": 1e999}'},
        {"address": '{"floor": 1, "floor": 2}'},
        {"address": "[" * 100_000},
        {"address": '{"a":' * 100_000},
        "[]",
        "42",
        "",
        None,
        [],
        0,
    ],
)
def test_everything_else_stays_as_it_is(args: object) -> None:
    mended, repairs = repaired(args)
    assert mended is args
    assert repairs == []


@requirement("EXEC-9")
@pytest.mark.parametrize("text", ["42", "4.5", "true", '{"a": 1}', "[1]"])
@pytest.mark.parametrize(
    "place",
    [
        {"type": ["string", "integer", "number", "boolean", "object", "array"]},
        {"anyOf": [{"type": ["integer", "number", "boolean", "object", "array"]}, {"type": "string"}]},
        {"allOf": [{"type": ["object", "array", "integer", "number", "boolean", "string"]}, {}]},
    ],
    ids=["types", "union", "parts"],
)
def test_a_text_stays_a_text_where_a_text_is_allowed_among_others(place: dict[str, Any], text: str) -> None:
    args = {"a": text}
    mended, repairs = repaired(args, {"properties": {"a": place}})
    assert (mended, repairs) == ({"a": text}, [])
    assert mended is args


@requirement("EXEC-10")
def test_unknown_names_are_kept_and_the_callers_own_arguments_are_not_changed() -> None:
    args = {"count": "1", "unknown": "2", "address": {"floor": "3", "door": "4"}}
    before = json.dumps(args)
    mended, _ = repaired(args)
    assert mended == {"count": 1, "unknown": "2", "address": {"floor": 3, "door": "4"}}
    assert json.dumps(args) == before


def test_beside_a_reference_nothing_counts_in_the_old_drafts() -> None:
    member = {"$ref": "#/definitions/any", "type": "integer"}
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": member},
        "definitions": {"any": {}},
    }
    assert repaired({"a": "1"}, old) == ({"a": "1"}, [])
    new = {"properties": {"a": member}, "definitions": {"any": {}}}
    assert repaired({"a": "1"}, new) == ({"a": 1}, [("$.a", "str_to_integer")])


def test_types_of_parts_are_taken_together() -> None:
    schema = {"properties": {"a": {"allOf": [{"type": ["integer", "string"]}, {"type": ["integer", "null"]}]}}}
    assert repaired({"a": "1"}, schema)[0] == {"a": 1}


@requirement("EXEC-10")
def test_no_more_than_a_hundred_repairs_are_made() -> None:
    mended, repairs = repaired({"lines": ["1"] * 300})
    assert mended == {"lines": [1] * 100 + ["1"] * 200}
    assert len(repairs) == 100


@requirement("EXEC-10")
@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ({"additionalProperties": {"anyOf": [{"allOf": [{"anyOf": [{"type": "object"}] * 16}] * 16}] * 16}}, 2_000),
        (
            {"$defs": {"d": {"allOf": [{"$ref": "#/$defs/e"}] * 16}, "e": {"allOf": [{}] * 900}}, "$ref": "#/$defs/d"},
            99,
        ),
        ({"additionalProperties": {"type": "object", "allOf": [{"type": "object"}] * 3_000}}, 5_000),
    ],
)
def test_repairing_takes_bounded_time(schema: object, args: int) -> None:
    validator = compile_schema(schema, path=TOOL_ID)
    given_args: dict[str, Any] = {f"a{number}": '{"b": {"c": "1"}}' for number in range(args)}
    with bounded_effort():
        validator.repair(given_args)


@requirement("EXEC-10")
@settings(max_examples=examples(150), deadline=None)
@given(
    SCHEMAS.filter(lambda schema: isinstance(schema, dict)),
    st.dictionaries(NAMES, VALUES | st.sampled_from(["1", "true", "1.5", "[1]", '{"a": "1"}']), max_size=3),
)
def test_what_fits_is_never_changed_and_each_repair_has_its_path(schema: dict[str, Any], args: dict[str, Any]) -> None:
    validator = compile_schema({**schema, "$defs": {"d": {"type": ["object", "integer"]}}}, path=TOOL_ID)
    mended, repairs = validator.repair(args)
    assert (mended is args) == (not repairs)
    assert validator.repair(mended) == (mended, [])
    try:
        validator.check(args, path=TOOL_ID)
    except GatewayError:
        return
    assert validator.unchecked or mended is args


FILTER = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "verbose": {"type": "boolean"},
        "nullable": {"type": ["boolean", "null"]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "sizes": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "colour": {"enum": ["red", "blue"]},
        "shade": {"enum": ["dark", None]},
        "any": {},
        "page": {"$ref": "#/$defs/page"},
        "pages": {"type": "array", "items": {"$ref": "#/$defs/page"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["q"],
    "$defs": {"page": {"type": "object", "properties": {"n": {"type": "integer"}, "at": {"const": None}}}},
}


@requirement("EXEC-80")
@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize(
    ("given_args", "expected", "paths"),
    [
        ({"verbose": None}, {}, ["$.verbose"]),
        ({"colour": None, "sizes": None}, {}, ["$.colour", "$.sizes"]),
        ({"page": None, "pages": [{"n": None, "at": None}, {"n": 1}]}, {"pages": [{"at": None}, {"n": 1}]}, None),
        ({"page": {"n": None}}, {"page": {}}, ["$.page.n"]),
        ({"verbose": None, "limit": None}, {"limit": None}, ["$.verbose"]),
    ],
)
def test_null_for_an_optional_argument_is_omitted_if_the_schema_refuses_it(
    given_args: dict[str, Any], expected: dict[str, Any], paths: list[str] | None, tolerant: bool
) -> None:
    validator = compile_schema(FILTER, path=TOOL_ID)
    sent = {"q": "x", **given_args}
    admitted = validator.admit(sent, path=TOOL_ID, tolerant=tolerant)
    assert (admitted.args, sent) == ({"q": "x", **expected}, {"q": "x", **given_args})
    repairs = [{"path": path, "rule": "omit_null"} for path in paths or ("$.pages[0].n", "$.page")]
    assert admitted.notes == {"arg_repairs": repairs}


@requirement("EXEC-80")
@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"q": None}, "$.q"),
        ({"q": "x", "map": {"a": None}}, "$.map.a"),
        ({"q": "x", "pages": [None]}, "$.pages[0]"),
        ({"q": "x", "verbose": "true"}, "$.verbose"),
    ],
)
def test_null_where_a_value_is_required_and_text_for_a_strict_server_stay_errors(
    args: dict[str, Any], path: str
) -> None:
    with pytest.raises(ArgsInvalid) as refused:
        compile_schema(FILTER, path=TOOL_ID).admit(args, path=TOOL_ID, tolerant=False)
    assert refused.value.details is not None
    assert [each["path"] for each in refused.value.details["errors"]] == [path]


@requirement("EXEC-80")
@pytest.mark.parametrize("name", ["nullable", "limit", "shade", "any", "unknown"])
def test_null_that_the_schema_takes_is_sent(name: str) -> None:
    args = {"q": "x", name: None}
    admitted = compile_schema(FILTER, path=TOOL_ID).admit(args, path=TOOL_ID, tolerant=True)
    assert (admitted.args is args, admitted.notes) == (True, {})
