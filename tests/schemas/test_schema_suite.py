"""The JSON-Schema-Test-Suite, as jsonschema 4.26 ships it (``schema_suite/``, unchanged, with its licence)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from referencing import Registry
from referencing.exceptions import Unresolvable

from tests.support.requirement import requirement
from wicketgate.errors import ArgsInvalid, SchemaInvalid
from wicketgate.schemas.counted_engine import CountedEngine
from wicketgate.schemas.foreign_schema import read_schema
from wicketgate.schemas.validation import compile_schema

SUITE = Path(__file__).parent / "schema_suite"
DRAFTS: dict[str, tuple[str, Any]] = {
    "draft4": ("http://json-schema.org/draft-04/schema#", Draft4Validator),
    "draft6": ("http://json-schema.org/draft-06/schema#", Draft6Validator),
    "draft7": ("http://json-schema.org/draft-07/schema#", Draft7Validator),
    "draft2019-09": ("https://json-schema.org/draft/2019-09/schema", Draft201909Validator),
    "draft2020-12": ("https://json-schema.org/draft/2020-12/schema", Draft202012Validator),
}

NEEDS_THE_NETWORK = {
    "dynamicRef": {
        "$ref and $dynamicAnchor are independent of order - $defs first",
        "$ref and $dynamicAnchor are independent of order - $ref first",
        "$ref to $dynamicRef finds detached $dynamicAnchor",
        "strict-tree schema, guards against misspelled properties",
        "tests for implementation dynamic anchor and reference link",
    },
    "refRemote": {
        "$ref to $ref finds detached $anchor",
        "$ref to $ref finds location-independent $id",
        "Location-independent identifier in remote ref",
        "anchor within remote ref",
        "base URI change",
        "base URI change - change folder",
        "base URI change - change folder in subschema",
        "fragment within remote ref",
        "ref within remote ref",
        "remote HTTP ref with different $id",
        "remote HTTP ref with different URN $id",
        "remote HTTP ref with nested absolute ref",
        "remote ref",
        "remote ref with ref to definitions",
        "remote ref with ref to defs",
        "retrieved nested refs resolve relative to their URI not $id",
        "root ref in remote ref",
    },
}
"""Refused when compiled, by file and description: nothing is ever fetched."""

NEEDS_A_CUSTOM_META_SCHEMA = ("vocabulary", "schema that uses custom metaschema with with no validation vocabulary")
"""A dialect of the schema's own switches keywords off. Neither jsonschema nor we know it, so all of them count."""


def cases(draft: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """File name, the case, and its schema with the dialect named."""
    for file in sorted((SUITE / draft).glob("*.json")):
        for case in json.loads(file.read_text("utf-8")):
            schema = case["schema"]
            # A tool's schema is an object; `true` and `false` stand one step below.
            named = schema if isinstance(schema, dict) else {"allOf": [schema]}
            yield file.stem, case, {"$schema": DRAFTS[draft][0], **named}


def needs_the_network(file: str, case: dict[str, Any]) -> bool:
    return case["description"] in NEEDS_THE_NETWORK.get(file, ())


@requirement("EXEC-6")
@pytest.mark.parametrize("draft", DRAFTS)
def test_it_agrees_with_jsonschema_and_with_the_suite(draft: str) -> None:
    tried = 0
    for file, case, schema in cases(draft):
        if needs_the_network(file, case):
            continue
        read = read_schema(schema, path="suite:case@1")
        assert read.unchecked == ()
        engine = CountedEngine(read)
        plain = DRAFTS[draft][1](case["schema"], registry=Registry())
        for test in case["tests"]:
            tried += 1
            where = f"{draft} {file}: {case['description']}: {test['description']}"
            fits = not engine.errors(test["data"], 10_000, 1)
            assert fits is plain.is_valid(test["data"]), where
            if (file, case["description"]) != NEEDS_A_CUSTOM_META_SCHEMA:
                assert fits is test["valid"], where
    assert tried > 500


@requirement("EXEC-6")
@pytest.mark.parametrize("draft", DRAFTS)
def test_arguments_of_the_suite_are_accepted_or_refused_as_it_says(draft: str) -> None:
    for file, case, schema in cases(draft):
        if needs_the_network(file, case) or (file, case["description"]) == NEEDS_A_CUSTOM_META_SCHEMA:
            continue
        validator = compile_schema(schema, path="suite:case@1")
        for test in case["tests"]:
            if not isinstance(test["data"], dict):
                continue
            where = f"{draft} {file}: {case['description']}: {test['description']}"
            try:
                validator.check(test["data"], path="suite:case@1")
            except ArgsInvalid:
                assert not test["valid"], where
            else:
                assert test["valid"], where


@requirement("EXEC-7")
def test_what_would_have_to_be_fetched_is_refused_and_nothing_else_is() -> None:
    refused: dict[str, set[str]] = {}
    for draft in DRAFTS:
        for file, case, schema in cases(draft):
            if not needs_the_network(file, case):
                continue
            with pytest.raises(SchemaInvalid):
                read_schema(schema, path="suite:case@1")
            refused.setdefault(file, set()).add(case["description"])
            # The same to jsonschema, without a network: at the first test that comes to the reference.
            plain = DRAFTS[draft][1](case["schema"], registry=Registry())
            with pytest.raises(Unresolvable):
                for test in case["tests"]:
                    plain.is_valid(test["data"])
    assert refused == NEEDS_THE_NETWORK


def with_groups(schema: Any) -> Any:
    """Writes every property pattern in another way that means the same, and that Python's `re` does not read."""
    if isinstance(schema, list):
        return [with_groups(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    written = {key: with_groups(value) for key, value in schema.items()}
    if isinstance(patterns := written.get("patternProperties"), dict):
        written["patternProperties"] = {f"(?<same>{key})": each for key, each in patterns.items()}
    return written


@requirement("EXEC-1", "EXEC-8")
@pytest.mark.parametrize("draft", ["draft2019-09", "draft2020-12"])
def test_names_evaluated_by_any_pattern_are_found_as_the_suite_says(draft: str) -> None:
    patterns = 0
    for file, case, schema in cases(draft):
        if file != "unevaluatedProperties":
            continue
        read = read_schema(with_groups(schema), path="suite:case@1")
        assert read.unchecked == ()
        patterns += len(read.patterns)
        for test in case["tests"]:
            where = f"{draft}: {case['description']}: {test['description']}"
            assert (not CountedEngine(read).errors(test["data"], 10_000, 1)) is test["valid"], where
    assert patterns >= 4
