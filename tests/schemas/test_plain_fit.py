"""What plainly fits is what jsonschema takes, and hardly any ordinary call needs more (EXEC-60)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.errors import ArgsInvalid
from wicketgate.schemas.validation import MAX_ARGS_VALUES, Validator, compile_schema

PATH = "github:create_issue@1"
DRAFTS = ["", "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-07/schema#"]
NAMES = st.sampled_from(["a", "b", "c", "d"])
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -0.0, 2**70, 1e300])
SIMPLE: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", ["string", "null"], ["integer", "string"], "array", "null", "boolean"])},
        optional={
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 3),
            "format": st.just("email"),
            "pattern": st.just("^a"),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number", ["number", "null"]])},
        optional={
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "multipleOf": st.just(2),
        },
    ),
    st.fixed_dictionaries(
        {"enum": st.lists(st.sampled_from(["a", "b", 1, True, None, 1.0, "\ud800"]), min_size=1)},
        optional={"type": st.sampled_from(["string", "integer"]), "default": st.just(1)},
    ),
    st.sampled_from([{}, {"const": "a"}, {"not": {"type": "string"}}]),
)


def containers(below: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"anyOf": st.lists(below, min_size=1, max_size=3)}, optional={"title": st.just("T")}),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": below},
            optional={"minItems": st.integers(0, 2), "uniqueItems": st.booleans()},
        ),
        objects(below),
    )


def objects(below: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, below, max_size=4)},
        optional={
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | below,
            "minProperties": st.integers(0, 2),
        },
    )


LEAVES = st.sampled_from(
    [
        "",
        "a",
        "b",
        "abcd",
        "é",
        "\ud800",
        0,
        1,
        1.0,
        2.5,
        -1,
        2**70,
        True,
        False,
        None,
        float("nan"),
        float("inf"),
        1e300,
    ]
)
VALUES = st.recursive(
    LEAVES, lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=4), max_leaves=12
)
SCHEMAS = objects(st.recursive(SIMPLE, containers, max_leaves=6))


def taken(validator: Validator, args: object) -> bool:
    try:
        validator.check(args, path=PATH)
    except ArgsInvalid:
        return False
    return True


@requirement("EXEC-60")
@settings(max_examples=examples(400), deadline=None)
@given(SCHEMAS, st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=8), st.sampled_from(DRAFTS))
def test_what_plainly_fits_is_what_the_full_check_takes(
    schema: dict[str, Any], calls: list[dict[str, Any]], draft: str
) -> None:
    validator = compile_schema({**schema, **({"$schema": draft} if draft else {})}, path=PATH)
    for args in calls:
        admitted = validator.admit_plain(args)
        if admitted is not None:
            assert admitted.args is args
            assert admitted.notes == {}
            assert taken(validator, args), (schema, args)


ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "description": "Title of the issue"},
        "state": {"enum": ["open", "closed"], "default": "open"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "assignee": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Assignee"},
        "page": {"type": "integer", "minimum": 1, "maximum": 100},
        "author": {"type": "object", "properties": {"age": {"type": ["number", "null"]}}, "required": ["age"]},
        "odd": {"not": {"type": "string"}},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    },
    "required": ["title"],
    "additionalProperties": False,
}


@requirement("EXEC-60")
@pytest.mark.parametrize(
    "args",
    [
        {"title": "x"},
        {"title": "é", "state": "closed", "labels": ["a", "b"], "assignee": None, "page": 1, "author": {"age": 2.5}},
        {"title": "x", "count": 2**70, "share": -0.5},
    ],
)
def test_ordinary_calls_plainly_fit(args: dict[str, Any]) -> None:
    assert compile_schema(ISSUE, path=PATH).admit_plain(args) is not None


@requirement("EXEC-60")
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"title": ""},
        {"title": "x", "state": "other"},
        {"title": "x", "page": 0},
        {"title": "x", "page": True},
        {"title": "x", "surplus": 1},
        {"title": "x", "count": True},
        {"title": "x", "count": 1.0},
        {"title": "x", "share": float("nan")},
        {"title": "x", "share": False},
        {"title": "x", "grid": [[1]]},
        {"title": "x", "odd": 1},
        {"title": "\ud800"},
        {"title": "x" * 10_001},
        {"title": "x", "labels": ["a"] * 51},
        [],
        None,
    ],
)
def test_what_does_not_plainly_fit_is_left_to_the_full_check(args: object) -> None:
    assert compile_schema(ISSUE, path=PATH).admit_plain(args) is None


@requirement("EXEC-61")
@pytest.mark.parametrize(
    ("root", "args"),
    [
        ({"type": "string"}, "x"),
        ({"type": "integer"}, 1),
        ({"type": "null"}, None),
        ({"type": ["object", "null"]}, None),
        ({"anyOf": [{"type": "object"}, {"type": "boolean"}]}, True),
        ({"type": "array", "items": {"type": "string"}}, ["x"]),
        ({"enum": ["x"]}, "x"),
    ],
)
def test_what_is_no_object_is_refused_whatever_the_schema_says(root: dict[str, Any], args: object) -> None:
    validator = compile_schema(root, path=PATH)
    assert validator.admit_plain(args) is None
    with pytest.raises(ArgsInvalid, match="must be an object"):
        validator.admit(args, path=PATH, tolerant=False)


@requirement("EXEC-60", "EXEC-8")
def test_no_more_values_plainly_fit_than_a_call_may_have() -> None:
    wide = {"type": "array", "items": {"type": "object", "properties": {str(n): {"type": "null"} for n in range(200)}}}
    rows = [{str(n): None for n in range(200)}] * 50
    names = [str(number) for number in range(20)]
    validator = compile_schema({"type": "object", "properties": dict.fromkeys(names, wide)}, path=PATH)
    args: dict[str, Any] = dict.fromkeys(names, rows)
    assert sum(len(row) for rows in args.values() for row in rows) > MAX_ARGS_VALUES
    assert validator.admit_plain({"0": rows}) is not None
    assert validator.admit_plain(args) is None
