"""Hostile documents: reading one ends, and raises nothing but its own refusals (UP-32)."""

import copy
import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.orders_service import app
from tests.support.properties import examples
from tests.support.requirement import requirement
from tests.upstreams.openapi.fixtures import document, reading
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.errors import ArgsInvalid
from wicketgate.upstreams.openapi.document import DocumentRefused, read_document, server_url
from wicketgate.upstreams.openapi.exchange import build_request
from wicketgate.upstreams.openapi.operations import read_operations
from wicketgate.upstreams.openapi.security import Configured

ORDERS = app.openapi()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
KEYS = ["$ref", "type", "properties", "items", "schema", "content", "in", "name", "style", "required", "enum", "allOf"]
ODD: list[Any] = [
    None,
    True,
    0,
    -1.5,
    "",
    "x",
    "#/paths",
    "#/components/schemas/Order",
    "..",
    [],
    {},
    [{}],
    {"a": {}},
    "object",
]


def use(data: bytes) -> None:
    """All that is done with a document, and with arguments that are none."""
    try:
        read = read_document(data)
        server_url(read, "https://example.org/x")
    except DocumentRefused:
        return
    for operation in read_operations(read, Configured()).operations.values():
        json.dumps(operation.tool, allow_nan=False)
        mcp_tool_to_selectable(operation.tool, "shop")
        for value in ODD:
            arguments = dict.fromkeys(operation.tool["inputSchema"]["properties"], value)
            try:
                build_request(operation, arguments)
            except ArgsInvalid:
                continue


@requirement("UP-32")
@given(st.randoms(use_true_random=False), st.integers(1, 6))
@settings(max_examples=examples(150), deadline=None)
def test_a_document_with_pieces_exchanged_is_read_or_refused(chance: random.Random, changes: int) -> None:
    mutated = copy.deepcopy(ORDERS)
    for _ in range(changes):
        node: Any = mutated
        for _ in range(chance.randint(1, 12)):
            inner = [
                each
                for each in (node.values() if isinstance(node, dict) else node)
                if isinstance(each, dict | list) and each
            ]
            if not inner:
                break
            node = chance.choice(inner)
        if isinstance(node, dict):
            node[chance.choice([*node, *KEYS])] = copy.deepcopy(chance.choice(ODD))
        else:
            node[chance.randrange(len(node))] = copy.deepcopy(chance.choice(ODD))
    use(json.dumps(mutated).encode())


@given(JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    use(json.dumps(value).encode())
    use(json.dumps({"openapi": "3.0.0", "paths": value, "components": value, "servers": value}).encode())
    use(json.dumps({"openapi": "3.1.0", "paths": {"/a": {"get": value, "post": {"requestBody": value}}}}).encode())


@requirement("UP-32")
@given(st.binary(max_size=60) | st.text("-:?[]{}&*!|>'\"%@`#,. \n\tab0", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    use(data)
    use(b"openapi: 3.1.0\npaths:\n  " + data)


def test_many_tools_that_each_refer_to_everything_stay_bounded() -> None:
    schemas = {
        f"S{n}": {
            "type": "object",
            "properties": {f"p{m}": {"$ref": f"#/components/schemas/S{(n * 7 + m) % 300}"} for m in range(10)},
        }
        for n in range(300)
    }
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    answers = {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S1"}}}}}
    paths: dict[str, Any] = {f"/p{n}": {"post": {"requestBody": body, "responses": answers}} for n in range(300)}
    read = reading(paths, components={"schemas": schemas})
    assert len(read.operations) == 300
    tools = [each.tool for each in read.operations.values()]
    assert max(len(json.dumps(tool)) for tool in tools) < 300_000
    assert all("outputSchema" not in tool for tool in tools)
    first, last = tools[0]["inputSchema"]["$defs"], tools[-1]["inputSchema"]["$defs"]
    assert first["S1"] is last["S1"], "translated once"


def test_a_very_deep_schema_is_cut() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(90):
        deep = {"type": "object", "properties": {"x": deep}}
    body = {"content": {"application/json": {"schema": {"type": "array", "items": deep}}}}
    [operation] = read_operations(document({"/a": {"post": {"requestBody": body}}}), Configured()).operations.values()
    assert len(json.dumps(operation.tool)) < 5_000
