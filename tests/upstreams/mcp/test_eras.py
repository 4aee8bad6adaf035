"""Which requests lead to an agreement with a server, and what its era puts into each; the SDK is the counterpart."""

from typing import Any

import mcp_types as t
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import encode_header_value, find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from tests.support.requirement import requirement
from wicketgate.upstreams.mcp.asking import own_capabilities
from wicketgate.upstreams.mcp.call import Gone, Malformed, Refused
from wicketgate.upstreams.mcp.eras import (
    Agreement,
    Negotiation,
    ServerCapabilities,
    Stamp,
    header_value,
    mirrored_arguments,
)

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
INITIALIZED = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
UNSUPPORTED = t.UNSUPPORTED_PROTOCOL_VERSION


def unsupported(*versions: str) -> Refused:
    return Refused(UNSUPPORTED, "unsupported", {"supported": list(versions), "requested": "x"})


@requirement("UP-37")
def test_a_server_that_answers_discover_is_of_the_newer_era() -> None:
    negotiation = Negotiation("auto")
    assert negotiation.request.method == "server/discover"
    negotiation.answered({**DISCOVERED, "ttlMs": -5, "cacheScope": "nobody", "instructions": "Read."})
    assert negotiation.agreement is not None
    assert (negotiation.agreement.version, negotiation.agreement.modern) == ("2026-07-28", True)
    assert negotiation.agreement.instructions == "Read."


@requirement("UP-37")
@pytest.mark.parametrize(
    "outcome",
    [
        {"supportedVersions": ["2025-11-25"], "capabilities": {}},
        {"supportedVersions": "2026-07-28", "capabilities": {}},
        {},
        Refused(-32601, "no such method"),
        unsupported("2025-11-25"),
        Refused(UNSUPPORTED, "unsupported", "no list"),
        Malformed("gave no MCP answer (HTTP status 404)"),
        Gone("it hung up", carried=True),
        TimeoutError(),
    ],
)
def test_anything_but_evidence_of_the_newer_era_leads_to_the_handshake(outcome: Any) -> None:
    negotiation = Negotiation("auto")
    negotiation.answered(outcome) if isinstance(outcome, dict) else negotiation.failed(outcome)
    assert negotiation.request.method == "initialize"
    negotiation.answered(INITIALIZED)
    assert negotiation.agreement is not None
    assert not negotiation.agreement.modern


@pytest.mark.parametrize("error", [unsupported("2030-01-01"), Gone("it cannot be reached", carried=False)])
def test_a_server_that_is_not_there_or_knows_only_other_versions_is_not_asked_again(error: Refused | Gone) -> None:
    with pytest.raises(type(error)):
        Negotiation("auto").failed(error)


def test_an_unsupported_version_that_names_one_of_ours_is_asked_for_once() -> None:
    negotiation = Negotiation("auto")
    negotiation.failed(unsupported("2026-07-28"))
    assert negotiation.request.method == "server/discover"
    negotiation.failed(unsupported("2026-07-28", "2025-11-25"))
    assert negotiation.request.method == "initialize"
    with pytest.raises(Refused):
        negotiation.failed(unsupported("2026-07-28"))


@requirement("UP-102")
def test_a_server_that_is_bound_to_an_era_is_asked_for_no_other() -> None:
    modern = Negotiation("modern")
    with pytest.raises(Malformed, match="does not speak MCP 2026-07-28"):
        modern.failed(Refused(t.METHOD_NOT_FOUND, "no such method"))
    with pytest.raises(Malformed, match="does not speak MCP 2026-07-28"):
        modern.answered({})
    with pytest.raises(Malformed, match="does not speak MCP 2026-07-28"):
        modern.failed(unsupported("2025-11-25"))
    with pytest.raises(TimeoutError):
        modern.failed(TimeoutError())
    assert modern.request.method == "server/discover"
    handshake = Negotiation("handshake")
    assert handshake.request.method == "initialize"
    for error in (unsupported("2026-07-28"), Refused(t.METHOD_NOT_FOUND, "no such method")):
        with pytest.raises(Malformed, match="does not speak MCP 2025-11-25"):
            handshake.failed(error)


@requirement("UP-99", "UP-103")
def test_the_gate_declares_in_a_handshake_what_some_client_may_have() -> None:
    plain = Negotiation("handshake").request.params["capabilities"]
    assert plain == {
        "elicitation": {"form": {}, "url": {}},
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
    }
    more = Negotiation("auto", ("sampling", "roots")).request.params["_meta"][t.CLIENT_CAPABILITIES_META_KEY]
    assert more == {**plain, "sampling": {"tools": {}}, "roots": {}}


@pytest.mark.parametrize(
    ("result", "reason"),
    [({}, "does not speak MCP"), ({**INITIALIZED, "protocolVersion": "2031-01-01"}, "no version of MCP")],
)
def test_a_handshake_that_agrees_on_nothing_says_why(result: dict[str, Any], reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        Negotiation("handshake").answered(result)


def test_a_handshake_needs_no_name_of_the_server() -> None:
    negotiation = Negotiation("handshake")
    negotiation.answered({**INITIALIZED, "serverInfo": {"name": "s"}})
    assert negotiation.agreement is not None
    assert negotiation.agreement.spellings == ("s",)


@requirement("UP-37", "UP-7")
def test_the_newer_era_stamps_every_request_and_the_older_one_only_its_headers() -> None:
    modern = Stamp(Agreement("2026-07-28", ServerCapabilities(), ""))
    meta = modern.meta(progress_token="t")
    assert meta[t.PROTOCOL_VERSION_META_KEY] == "2026-07-28"
    assert meta[t.CLIENT_INFO_META_KEY]["name"] == "wicketgate"
    assert meta[t.CLIENT_CAPABILITIES_META_KEY] == own_capabilities(())
    assert (meta["progressToken"], meta[t.LOG_LEVEL_META_KEY]) == ("t", "info")
    assert modern.meta(capabilities={})[t.CLIENT_CAPABILITIES_META_KEY] == {}
    assert modern.headers("resources/read", {"uri": "a:é"})["mcp-name"] == "=?base64?YTrDqQ==?="
    old = Stamp(Agreement("2025-06-18", ServerCapabilities(), ""))
    assert old.meta(progress_token="t") == {"progressToken": "t"}
    assert old.headers("tools/call", {"name": "x"}) == {"mcp-protocol-version": "2025-06-18"}


@requirement("UP-7")
@given(st.text() | st.sampled_from(["=?base64?eA==?=", " x", "x\t", "é"]))
def test_a_header_value_is_written_as_the_sdk_reads_it(text: str) -> None:
    assert header_value(text) == encode_header_value(text)


_HEADERS = st.sampled_from(["A", "a", "B-b", "", "no token", 5])
_KINDS = st.sampled_from(["string", "integer", "boolean", "number", ["string"], None])
_LEAVES = st.fixed_dictionaries({}, optional={"type": _KINDS, "x-mcp-header": _HEADERS})
SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: st.builds(
        lambda leaf, more: {**leaf, **more},
        _LEAVES,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from("pqr"), inner, max_size=3),
                "items": inner,
                "anyOf": st.lists(inner, max_size=2),
                "$defs": st.dictionaries(st.sampled_from("de"), inner, max_size=2),
                "default": inner,
            },
        ),
    ),
    max_leaves=6,
)
ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: st.dictionaries(st.sampled_from("pqr"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=5,
)


@requirement("UP-7")
@given(SCHEMAS, st.dictionaries(st.sampled_from("pqr"), ARGUMENTS, max_size=3))
def test_arguments_are_mirrored_as_the_sdk_does(schema: Any, arguments: dict[str, Any]) -> None:
    mirrored = mirrored_arguments(schema)
    assert (mirrored is None) == (find_invalid_x_mcp_header(schema) is not None)
    if mirrored is not None:
        assert mirrored == x_mcp_header_map(schema)
        stamp = Stamp(Agreement("2026-07-28", ServerCapabilities(), ""))
        headers = stamp.headers("tools/call", {"name": "x", "arguments": arguments}, mirrored)
        ours = {name: value for name, value in headers.items() if name.startswith("Mcp-Param-")}
        assert ours == mcp_param_headers(mirrored, arguments)
