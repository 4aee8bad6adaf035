"""The table of the requests that are answered without the SDK's server: what is taken, and what goes on to it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import ClientCapabilities
from mcp_types.jsonrpc import JSONRPCRequest
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from tests.support.requirement import requirement
from wicketgate.faces.mcp.direct_requests import HANDSHAKE, MODERN, DirectRequest, head_of, names_header, taken
from wicketgate.faces.mcp.session_tokens import McpSession

OLDER = "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
NEWER_HEADERS = {**HEADERS, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "a"}
OLDER_HEADERS = {**HEADERS, "mcp-protocol-version": OLDER, "mcp-session-id": "s1"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "arguments": {"x": 1}}}
NEWER_CALL = {**CALL, "params": {**CALL["params"], "_meta": META}}  # type: ignore[dict-item]


def session(**capabilities: Any) -> McpSession:
    client = {"protocolVersion": OLDER, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
    return McpSession("ann", OLDER, client)


def read(headers: Mapping[str, str], body: object, kept: McpSession | None = None) -> DirectRequest | None:
    head = head_of([(key.encode("latin-1"), value.encode("latin-1")) for key, value in headers.items()])
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    if head is None:
        return None
    return taken(head, text, None if head.session is None else kept or session(), None)


def with_params(message: Mapping[str, Any], **params: Any) -> dict[str, Any]:
    return {**message, "params": {**message["params"], **params}}


def with_meta(message: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
    return with_params(message, _meta={**message["params"].get("_meta", {}), **meta})


def test_the_versions_are_those_of_the_sdk() -> None:
    assert set(HANDSHAKE_PROTOCOL_VERSIONS) == HANDSHAKE
    assert MODERN_PROTOCOL_VERSIONS == (MODERN,)


@requirement("FACE-135")
def test_calls_lists_and_pings_are_taken_in_the_era_that_has_them() -> None:
    call = read(NEWER_HEADERS, NEWER_CALL)
    assert call is not None
    assert (call.id, call.method, call.name, call.arguments) == (1, "tools/call", "a", {"x": 1})
    assert (call.protocol_version, call.capabilities, call.meta) == (MODERN, {}, META)
    listed = {**CALL, "method": "tools/list", "params": {"_meta": META, "cursor": "c"}}
    found = read({**NEWER_HEADERS, "mcp-method": "tools/list"}, listed)
    assert found is not None
    assert found.cursor == "c"
    ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
    assert read({**NEWER_HEADERS, "mcp-method": "ping"}, with_params({**ping, "params": {}}, _meta=META)) is None
    older = [read(OLDER_HEADERS, each) for each in (CALL, {**ping, "method": "tools/list"}, ping)]
    assert [each and each.method for each in older] == ["tools/call", "tools/list", "ping"]
    assert all(each is not None and each.protocol_version == OLDER for each in older)
    # The version is that of the session, whatever the header says.
    without = {key: value for key, value in OLDER_HEADERS.items() if key != "mcp-protocol-version"}
    assert read(without, CALL) is not None


HANDED_ON: dict[str, tuple[Mapping[str, str], object]] = {
    "another method": (OLDER_HEADERS, {**CALL, "method": "prompts/get"}),
    "a notification": (OLDER_HEADERS, {"jsonrpc": "2.0", "method": "notifications/cancelled"}),
    "an answer": (OLDER_HEADERS, {"jsonrpc": "2.0", "id": 1, "result": {}}),
    "no JSON-RPC": (OLDER_HEADERS, {**CALL, "jsonrpc": "1.0"}),
    "a batch": (OLDER_HEADERS, [CALL]),
    "no JSON": (OLDER_HEADERS, b"{"),
    "half a character": (OLDER_HEADERS, b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}'),
    "too deep": (
        OLDER_HEADERS,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":' + b"[" * 99_999,
    ),
    "an id of another kind": (OLDER_HEADERS, {**CALL, "id": 1.5}),
    "no id to answer": (OLDER_HEADERS, {**CALL, "id": None}),
    "an id that is true": (OLDER_HEADERS, {**CALL, "id": True}),
    "unknown members": (OLDER_HEADERS, {**CALL, "more": 1}),
    "no name": (OLDER_HEADERS, {**CALL, "params": {}}),
    "a name that is no text": (OLDER_HEADERS, with_params(CALL, name=1)),
    "arguments that are no object": (OLDER_HEADERS, with_params(CALL, arguments=[1])),
    "a task": (OLDER_HEADERS, with_params(CALL, task={"ttl": 1})),
    "a second attempt": (NEWER_HEADERS, with_params(NEWER_CALL, requestState="s", inputResponses={})),
    "progress": (OLDER_HEADERS, with_meta(CALL, progressToken=1)),
    "progress, newer": (NEWER_HEADERS, with_meta(NEWER_CALL, progressToken=1)),
    "a log level": (NEWER_HEADERS, with_meta(NEWER_CALL, **{"io.modelcontextprotocol/logLevel": "info"})),
    "an unknown key of the protocol": (NEWER_HEADERS, with_meta(NEWER_CALL, **{"io.modelcontextprotocol/x": 1})),
    "the newer envelope in a session": (OLDER_HEADERS, NEWER_CALL),
    "no envelope": (NEWER_HEADERS, CALL),
    "a picture": (
        NEWER_HEADERS,
        with_meta(
            NEWER_CALL,
            **{"io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1", "icons": [{"src": 1}]}},
        ),
    ),
    "a client without a name": (NEWER_HEADERS, with_meta(NEWER_CALL, **{"io.modelcontextprotocol/clientInfo": {}})),
    "capabilities that are no object": (
        NEWER_HEADERS,
        with_meta(NEWER_CALL, **{"io.modelcontextprotocol/clientCapabilities": None}),
    ),
    "another version in the body": (
        NEWER_HEADERS,
        with_meta(NEWER_CALL, **{"io.modelcontextprotocol/protocolVersion": "2027-01-01"}),
    ),
    "an unknown version": ({**NEWER_HEADERS, "mcp-protocol-version": "2027-01-01"}, NEWER_CALL),
    "another method in the header": ({**NEWER_HEADERS, "mcp-method": "tools/list"}, NEWER_CALL),
    "another name in the header": ({**NEWER_HEADERS, "mcp-name": "b"}, NEWER_CALL),
    "an encoded name": ({**NEWER_HEADERS, "mcp-name": "=?base64?YQ==?="}, NEWER_CALL),
    "an argument in a header": ({**NEWER_HEADERS, "mcp-param-x": "1"}, NEWER_CALL),
    "an empty session": ({**OLDER_HEADERS, "mcp-session-id": ""}, CALL),
    "another kind of content": ({**OLDER_HEADERS, "content-type": "text/plain"}, CALL),
    "JSON alone": ({**OLDER_HEADERS, "accept": "application/json"}, CALL),
    "events alone": ({**OLDER_HEADERS, "accept": "text/event-stream"}, CALL),
}


@requirement("FACE-135")
@pytest.mark.parametrize("kind", HANDED_ON)
def test_what_is_not_known_whole_goes_on_to_the_sdk(kind: str) -> None:
    assert read(*HANDED_ON[kind]) is None


@requirement("FACE-135")
def test_a_header_that_comes_twice_goes_on_to_the_sdk() -> None:
    lines = [(key.encode(), value.encode()) for key, value in NEWER_HEADERS.items()]
    assert head_of(lines) is not None
    for line in lines:
        assert head_of([*lines, line]) is None


@requirement("FACE-135", "FACE-143")
@pytest.mark.parametrize(
    "capabilities",
    [
        {"elicitation": []},
        {"elicitation": {"form": 1}},
        {"sampling": None, "roots": {"listChanged": "true"}},
        {"tasks": {"requests": {"sampling": 1}}},
        {"extensions": []},
    ],
)
def test_capabilities_that_are_not_well_formed_go_on_to_the_sdk(capabilities: dict[str, Any]) -> None:
    declared = {"io.modelcontextprotocol/clientCapabilities": capabilities}
    assert read(NEWER_HEADERS, with_meta(NEWER_CALL, **declared)) is None
    assert read(OLDER_HEADERS, CALL, session(**capabilities)) is None


FLAGS = st.none() | st.dictionaries(st.sampled_from(["a", "tools"]), st.integers(), max_size=1)
CAPABILITIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "elicitation": st.none() | st.fixed_dictionaries({}, optional={"form": FLAGS, "url": FLAGS, "x": FLAGS}),
        "sampling": st.none() | st.fixed_dictionaries({}, optional={"context": FLAGS, "tools": FLAGS}),
        "roots": st.none() | st.fixed_dictionaries({}, optional={"listChanged": st.none() | st.booleans()}),
        "tasks": st.fixed_dictionaries(
            {},
            optional={
                "list": FLAGS,
                "requests": st.fixed_dictionaries(
                    {},
                    optional={
                        "sampling": st.fixed_dictionaries({}, optional={"createMessage": FLAGS}),
                        "elicitation": st.fixed_dictionaries({}, optional={"create": FLAGS}),
                    },
                ),
            },
        ),
        "experimental": st.none() | st.dictionaries(st.text(max_size=3), st.just({"a": 1}), max_size=1),
        "extensions": st.just({"io.modelcontextprotocol/tasks": {}}),
        "unheard": st.just({}),
    },
)


@requirement("FACE-135", "FACE-143")
@given(CAPABILITIES)
def test_capabilities_are_read_as_the_sdk_reads_them(capabilities: dict[str, Any]) -> None:
    by_sdk = ClientCapabilities.model_validate(capabilities, by_name=False)
    call = read(NEWER_HEADERS, with_meta(NEWER_CALL, **{"io.modelcontextprotocol/clientCapabilities": capabilities}))
    assert call is not None
    assert call.capabilities == by_sdk.model_dump(by_alias=True, mode="json", exclude_none=True)


@requirement("FACE-135")
def test_what_a_client_declares_besides_is_known_to_the_call() -> None:
    shown: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/ui": {}}, "experimental": {"x": {}}}
    call = read(OLDER_HEADERS, CALL, session(**shown, unheard={}))
    assert call is not None
    assert call.capabilities == shown


def test_a_schema_that_puts_an_argument_into_a_header_is_seen_wherever_it_does() -> None:
    named = {"properties": {"a": {"anyOf": [{"type": "string", "x-mcp-header": "Region"}]}}}
    assert names_header(named)
    assert not names_header({"properties": {"a": {"enum": ["x"], "default": None}}})


LOOSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
KEYS = st.sampled_from(["_meta", "name", "arguments", "cursor", "task", "requestState", "x"])
META_KEYS = st.sampled_from([*META, "progressToken", "io.modelcontextprotocol/logLevel", "mine/x", "traceparent"])


@requirement("FACE-135")
@given(st.booleans(), st.sampled_from(["tools/call", "tools/list", "ping", "prompts/list"]), st.data())
def test_what_is_taken_is_a_good_request_for_the_sdk(newer: bool, method: str, data: st.DataObject) -> None:
    meta: dict[Any, Any] = dict(META) if newer else {}
    params: dict[Any, Any] = {"name": "a", "arguments": {}} if method == "tools/call" else {}
    message: dict[Any, Any] = {"jsonrpc": "2.0", "id": 1, "method": method}
    for _ in range(data.draw(st.integers(0, 2))):
        where = data.draw(st.sampled_from([meta, params, message]))
        keys = META_KEYS if where is meta else KEYS if where is params else st.sampled_from(["id", "jsonrpc", "params"])
        key = data.draw(keys)
        if data.draw(st.booleans()):
            where.pop(key, None)
        else:
            where[key] = data.draw(LOOSE)
    if meta:
        params.setdefault("_meta", meta)
    message.setdefault("params", params)
    headers = {**(NEWER_HEADERS if newer else OLDER_HEADERS), "mcp-method": method}
    found = read(headers, message)
    if found is None:
        return
    request = JSONRPCRequest.model_validate(json.loads(json.dumps(message)))
    version = MODERN if newer else OLDER
    validate_client_request(method, version, request.params)
    if newer:
        assert isinstance(classify_inbound_request(message, headers=headers), InboundModernRoute)
    asked = request.params or {}
    assert (found.id, found.method) == (request.id, request.method)
    assert (found.arguments, found.cursor) == (asked.get("arguments"), asked.get("cursor"))
    assert found.name == (asked.get("name") or "")
