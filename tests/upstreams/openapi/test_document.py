"""Documents that are read, and those that are refused in words that help (UP-32)."""

import json
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.upstreams.openapi.fixtures import document, reading
from wicketgate.upstreams.openapi import document as reader
from wicketgate.upstreams.openapi.document import DocumentRefused, Unusable, read_document, server_url


@pytest.mark.parametrize(
    ("text", "dialect_30"),
    [
        ('{"openapi": "3.0.3", "paths": {}}', True),
        ("openapi: 3.1.0\npaths: {}", False),
        ("openapi: 3.1\n", False),
        ("\ufeff{openapi: 3.0.0}", True),
        ('{"openapi": "3.2.0"}', False),
    ],
)
def test_json_and_yaml_of_each_version_are_read(text: str, dialect_30: bool) -> None:
    assert read_document(text.encode()).dialect_30 is dialect_30


@requirement("UP-32")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"swagger": "2.0", "paths": {}}', "Swagger 2.0"),
        (b'{"openapi": "4.0.0"}', "3.1"),
        (b'{"openapi": "3.10.0"}', "3.1"),
        (b"[]", "no OpenAPI document"),
        (b"{", "neither JSON nor YAML"),
        (b"a: b: c", "neither JSON nor YAML"),
        (b"!!python/object/apply:os.system [ls]", "no OpenAPI document"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"openapi": "3.1.0", "paths": []}', "paths"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "nested too deeply"),
        (b"[" * 100_000, "neither JSON nor YAML"),  # PyYAML's C loader ends the process here
        (b"- " * 100_000, "neither JSON nor YAML"),
        (b"a: &a [*a]", "neither JSON nor YAML"),
        (b"? [a]\n: b", "neither JSON nor YAML"),
        (b"", "the document is empty"),
    ],
)
def test_what_cannot_be_used_is_refused_in_plain_words(data: bytes, reason: str) -> None:
    with pytest.raises(DocumentRefused, match=reason):
        read_document(data)


@requirement("UP-91")
@pytest.mark.parametrize(
    ("bound", "most", "reason"),
    [
        ("MAX_DOCUMENT_BYTES", 30, "larger than"),
        ("_MAX_YAML_BYTES", 30, "give it as JSON"),
        ("_MAX_VALUES", 4, "values"),
    ],
)
def test_a_document_is_bounded(monkeypatch: pytest.MonkeyPatch, bound: str, most: int, reason: str) -> None:
    monkeypatch.setattr(reader, bound, most)
    with pytest.raises(DocumentRefused, match=reason):
        read_document(b"openapi: 3.1.0\nx: [1, 2, 3, 4, 5]")


@requirement("UP-94")
@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ({"/a": {"get": {"$ref": "gone.yaml#/a"}}}, "GET /a: gone.yaml: it is another file"),
        ({"/a": {"$ref": "gone.yaml"}}, "/a: gone.yaml: it is another file"),
        ({"/a": {"get": {"$ref": "#/nowhere"}}}, "GET /a: a reference leads to nothing"),
        ({"/a": {"get": {"$ref": "#/list"}}}, "GET /a: something that is not an object"),
        ({"/a": {"$ref": "#/list/0"}}, "/a: something that is not an object"),
        ({"/a": {"$ref": "#/list/5"}}, "/a: a reference leads to nothing"),
        ({"/a": {"get": {"parameters": [{"$ref": "gone.yaml"}]}}}, "GET /a: gone.yaml: it is another file"),
        ({"/a": {"get": {"parameters": {"$ref": "gone.yaml"}}}}, "GET /a: gone.yaml: it is another file"),
    ],
)
def test_what_stands_elsewhere_and_cannot_be_read_is_no_empty_tool(paths: dict[str, Any], reason: str) -> None:
    found = reading({"x-note": "no path", **paths, "/b": {"get": {"operationId": "b"}}}, list=[1])
    assert list(found.operations) == ["b"]
    assert len(found.skipped) == 1
    assert found.skipped[0].startswith(reason)


@requirement("UP-32")
def test_paths_may_stand_elsewhere_in_the_document() -> None:
    paths = {"/a": {"get": {"operationId": "a"}}}
    assert document({"$ref": "#/elsewhere"}, elsewhere=paths).root["paths"] == paths
    with pytest.raises(DocumentRefused, match="paths cannot be read"):
        document({"$ref": "paths.yaml"})


@requirement("UP-32")
def test_aliases_that_say_a_little_very_often_are_refused() -> None:
    lines = ["openapi: 3.1.0", "x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DocumentRefused, match="values"):
        read_document("\n".join(lines).encode())


def test_yaml_scalars_are_those_of_version_1_2() -> None:
    read = read_document(
        b"openapi: 3.1.0\nx: [on, no, 2024-01-31, true, 1.5]\npaths: {/a: {get: {responses: {200: {}}}}}"
    )
    assert read.root["x"] == ["on", "no", "2024-01-31", True, 1.5]
    assert read.root["paths"]["/a"]["get"]["responses"] == {"200": {}}


def test_anchors_and_merges_are_read() -> None:
    text = b"openapi: 3.1.0\na: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, y: 3}\nd: {<<: [*a, {z: 4}]}"
    root = read_document(text).root
    assert (root["b"], root["c"], root["d"]) == ({"x": 1, "y": 2}, {"y": 3, "x": 1}, {"x": 1, "y": 2, "z": 4})


@requirement("UP-32")
@pytest.mark.parametrize(
    "reference", ["other.yaml#/a", "https://evil.example/x#/a", "#", "#/nowhere", "#/x/5", "#/x/a", "#anchor"]
)
def test_a_reference_out_of_the_document_or_to_nothing_is_not_followed(reference: str) -> None:
    with pytest.raises(Unusable):
        document({}, x=[1]).at(reference)


def test_references_that_go_round_in_circles_end() -> None:
    looping = document({}, x={"a": {"$ref": "#/x/b"}, "b": {"$ref": "#/x/a"}})
    with pytest.raises(Unusable, match="without end"):
        looping.resolve({"$ref": "#/x/a"})


def test_pointers_are_decoded() -> None:
    assert document({}, x={"a/b c": [{"~": 1}]}).at("#/x/a~1b%20c/0") == {"~": 1}


@pytest.mark.parametrize(
    ("servers", "document_url", "expected"),
    [
        ([{"url": "https://api.example/v1"}], "", "https://api.example/v1"),
        ([{"url": "/v1"}], "https://api.example/docs/openapi.json", "https://api.example/v1"),
        ([{"url": "../v1"}], "https://api.example/a/b/openapi.json", "https://api.example/a/v1"),
        (None, "https://api.example/docs/openapi.json", "https://api.example/"),
        (
            [{"url": "https://{host}/{v}", "variables": {"host": {"default": "api.example"}, "v": {"default": 2}}}],
            "",
            "https://api.example/2",
        ),
        ([{"url": "https://api.example:443/"}], "https://api.example/x", "https://api.example:443/"),
    ],
)
def test_the_first_server_is_used_with_its_defaults(
    servers: list[dict[str, Any]] | None, document_url: str, expected: str
) -> None:
    more: dict[str, Any] = {} if servers is None else {"servers": servers}
    assert server_url(document({}, **more), document_url) == expected


@requirement("UP-33")
@pytest.mark.parametrize(
    ("servers", "document_url"),
    [
        ([{"url": "http://169.254.169.254/"}], "https://api.example/openapi.json"),
        ([{"url": "http://api.example/"}], "https://api.example/openapi.json"),
        ([{"url": "/v1"}], ""),
        ([{"url": "file:///etc"}], ""),
        ([{"url": "https://user:pw@api.example/"}], ""),
        ([{"url": "https://{nobody}/"}], ""),
        ([5], ""),
        ([], ""),
    ],
)
def test_a_server_that_the_operator_did_not_name_is_refused(servers: list[Any], document_url: str) -> None:
    with pytest.raises(DocumentRefused, match="base_url"):
        server_url(document({}, servers=servers), document_url)


def test_json_and_yaml_say_the_same() -> None:
    value = {"openapi": "3.1.0", "paths": {"/a": {"get": {"x": [1, None, True, "é", 1.5]}}}}
    assert read_document(json.dumps(value).encode()).root == value
