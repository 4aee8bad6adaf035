"""Real documents judged by a mock, and the arguments that are made up for them (OPS-154)."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bench.documents import documents_in, judge
from bench.sample_arguments import sample_arguments
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement

TEXT = {"type": "string"}


@requirement("OPS-154")
async def test_each_call_counts_as_accepted_refused_or_without_arguments(tmp_path: Path) -> None:
    needed = [{"name": "n", "in": "query", "required": True, "schema": {"type": "string", "pattern": "^z{9}$"}}]
    paths: dict[str, Any] = {
        "/good": {"get": {"operationId": "good"}},
        "/bad": {"get": {"operationId": "bad"}},
        "/silent": {"get": {"operationId": "silent"}},
        "/own": {"get": {"operationId": "own"}},
        "/odd": {"get": {"operationId": "odd", "parameters": needed}},
        "/stream": {"get": {"operationId": "stream", "x-streaming": True}},
        "/broken": {"get": {"$ref": "#/nowhere"}},
    }
    schemes = {"a": {"type": "apiKey", "in": "query", "name": "k"}, "b": {"type": "http", "scheme": "basic"}}
    document = {"openapi": "3.1.0", "paths": paths, "components": {"securitySchemes": schemes}}
    (tmp_path / "shop.json").write_text(json.dumps(document))
    (tmp_path / "other.json").write_text("{}")
    problems = {"/bad": "UNPROCESSABLE_ENTITY", "/silent": "NO_RESPONSE_DEFINED"}

    def answer(seen: Seen) -> Reply:
        path, _, query = seen.target.partition("?")
        assert query == "k=key" and seen.headers["authorization"].startswith("Basic ")
        if path == "/own":
            return Reply(b'{"error": "mine"}', 422)
        kind = problems.get(path)
        problem = {"type": f"https://stoplight.io/prism/errors#{kind}"}
        return Reply(json.dumps(problem).encode(), {"/bad": 422, "/silent": 406}.get(path, 200))

    [found] = documents_in(tmp_path)
    async with HttpService(answer) as service:
        outcome = await judge(found, service.url, 100)
    assert (outcome.operations, outcome.left_out, outcome.accepted, outcome.without_sample) == (5, 1, 4, 2)
    assert [line.partition(":")[0] for line in outcome.refused] == ["bad", "bad", "own", "own"]


@pytest.mark.parametrize(
    ("schema", "least", "most"),
    [
        ({"type": "object", "properties": {"a": TEXT, "b": {"type": "integer"}}, "required": ["a"]}, ["a"], ["a", "b"]),
        ({"type": "object", "properties": {"a": {"enum": [None, "x"]}}}, [], ["a"]),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"anyOf": [TEXT]}}}, [], ["a"]),
        (
            {
                "type": "object",
                "properties": {
                    "a": {"allOf": [{"properties": {"x": TEXT}, "required": ["x"]}, {"required": ["y"]}]},
                    "b": {"type": ["null", "array"], "items": {"type": "number", "exclusiveMinimum": 2}},
                    "c": {"type": "string", "format": "uuid"},
                    "d": {"type": "string", "pattern": "^z$", "examples": ["z"]},
                },
            },
            [],
            ["a", "b", "c", "d"],
        ),
    ],
)
def test_the_arguments_made_up_fit_the_schema(schema: dict[str, Any], least: list[str], most: list[str]) -> None:
    for whole, names in ((False, least), (True, most)):
        made = sample_arguments(schema, whole=whole)
        assert made is not None and list(made) == names
        Draft202012Validator(schema).validate(made)


def test_where_no_arguments_can_be_made_up_there_are_none() -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^z{9}$"}}, "required": ["a"]}
    endless = {"type": "object", "properties": {"a": {"$ref": "#/$defs/L"}}, "required": ["a"]}
    loop = {"L": {"type": "object", "properties": {"next": {"$ref": "#/$defs/L"}}, "required": ["next"]}}
    assert sample_arguments(odd, whole=False) is None
    assert sample_arguments({**endless, "$defs": loop}, whole=False) is None
