"""Codes of JSON-RPC errors by the era of a client (FACE-54 to FACE-56)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS

from tests.support.requirement import requirement
from wicketgate.faces.mcp import request
from wicketgate.faces.mcp.request import McpRequest, mcp_error, own_code
from wicketgate.faces.surface import Refusal

NEWER, OLDER = "2026-07-28", "2025-11-25"


def ctx(version: str, method: str = "tools/call", **params: Any) -> McpRequest:
    return cast(McpRequest, SimpleNamespace(protocol_version=version, method=method, params=params))


@requirement("FACE-56")
@pytest.mark.parametrize("code", [-32000, -32001, -32004])
def test_a_code_of_ours_is_outside_the_reserved_range_for_a_newer_client_alone(code: int) -> None:
    refusal = Refusal(code, "no", {"error": "X"})
    newer, older = mcp_error(refusal, ctx(NEWER)), mcp_error(refusal, ctx(OLDER))
    assert (newer.code, older.code) == (code + 1_000, code)
    assert newer.data == older.data == {"error": "X"}
    assert (own_code(code, NEWER), own_code(code, OLDER)) == (code + 1_000, code)


@requirement("FACE-55")
@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, {"upstream_code": -32050}),
        ({"a": 1, "upstream_code": "forged"}, {"a": 1, "upstream_code": -32050}),
        ([1], {"upstream_data": [1], "upstream_code": -32050}),
    ],
)
def test_the_data_of_a_reserved_code_stay_beside_the_code(data: object, shown: object) -> None:
    error = mcp_error(Refusal(-32050, "no", data, theirs=True), ctx(NEWER))
    assert (error.code, error.data) == (-32603, shown)


@requirement("FACE-54")
def test_only_a_read_is_told_that_a_resource_is_not_there() -> None:
    refusal = Refusal(0, "no", None, theirs=True)
    read = mcp_error(refusal, ctx(NEWER, "resources/read", uri="a__b:c"))
    called = mcp_error(refusal, ctx(NEWER))
    assert (read.code, read.data) == (-32602, {"uri": "a__b:c", "upstream_code": 0})
    assert (called.code, called.data) == (0, None)


@requirement("FACE-135")
def test_an_error_that_any_era_knows_has_the_status_that_the_sdk_gives_it() -> None:
    for code in request._PASSED:
        assert request.HTTP_STATUS.get(code, 200) == ERROR_CODE_HTTP_STATUS.get(code, 200), code
