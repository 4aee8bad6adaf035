"""Credentials that a document asks for, and what is missing (UP-95, UP-96)."""

from typing import Any

import pytest

from tests.support.credentials import Tokens
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.upstreams.openapi.fixtures import document as read_from
from tests.upstreams.openapi.test_openapi_upstream import call, document, make, supervised
from wicketgate.errors import ArgsInvalid
from wicketgate.upstreams.openapi.operations import read_operations
from wicketgate.upstreams.openapi.security import Configured, security_notes

SCHEMES: dict[str, Any] = {
    "key": {"type": "apiKey", "in": "header", "name": "api_key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "query": {"type": "apiKey", "in": "query", "name": "k"},
    "bearer": {"type": "http", "scheme": "Bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "oauth": {"type": "oauth2", "flows": {}},
    "oidc": {"type": "openIdConnect"},
    "tls": {"type": "mutualTLS"},
    "away": {"$ref": "#/x/key"},
    "broken": {"$ref": "#/nowhere"},
}
KEY = "header api_key (apiKey); none in headers"


def missing(
    operation: dict[str, Any],
    *,
    headers: str = "",
    oauth: bool = False,
    everywhere: object = None,
    query: str = "",
) -> str:
    global_security: dict[str, Any] = {} if everywhere is None else {"security": everywhere}
    made = read_from(
        {"/a": {"get": {"operationId": "a", **operation}}},
        components={"securitySchemes": SCHEMES},
        x={"key": SCHEMES["key"]},
        **global_security,
    )
    configured = Configured(frozenset(headers.split()), frozenset(query.split()), oauth)
    return read_operations(made, configured).operations["a"].missing


@requirement("UP-95")
@pytest.mark.parametrize(
    ("security", "expected"),
    [
        ([{"key": []}], KEY),
        ([{"away": []}], KEY),
        ([{"cookie": []}], "cookie sid (apiKey); none in headers.Cookie"),
        ([{"query": []}], "k in the query (apiKey); none in query"),
        ([{"bearer": []}], "header Authorization (http bearer); none in headers or oauth"),
        ([{"basic": []}], "header Authorization (http basic); none in headers"),
        ([{"oauth": ["read"]}], "header Authorization (oauth2); none in headers or oauth"),
        ([{"oidc": []}], "header Authorization (openIdConnect); none in headers or oauth"),
        ([{"tls": []}], "a certificate of the client (mutualTLS); the gate cannot send it"),
        ([{"nobody": []}], "nobody, which it does not declare; the gate cannot send it"),
        ([{"broken": []}], "broken, which it does not declare; the gate cannot send it"),
        (
            [{"key": []}, {"bearer": []}],
            "header api_key (apiKey) or header Authorization (http bearer); none in headers or oauth",
        ),
        (
            [{"key": [], "basic": []}],
            "header api_key (apiKey) and header Authorization (http basic); none in headers",
        ),
        ([{"key": []}, {}], ""),
        ([{}], ""),
        ([], ""),
        ("key", ""),
    ],
)
def test_what_an_operation_asks_for_is_told_with_the_setting_that_lacks_it(security: object, expected: str) -> None:
    assert missing({"security": security}) == expected
    assert missing({}, everywhere=security) == expected


@requirement("UP-95")
@pytest.mark.parametrize(
    ("security", "headers", "oauth", "expected"),
    [
        ([{"key": []}], "api_key", False, ""),
        ([{"key": []}], "authorization", True, KEY),
        ([{"bearer": []}], "", True, ""),
        ([{"bearer": []}], "authorization", False, ""),
        ([{"basic": []}], "", True, "header Authorization (http basic); none in headers"),
        ([{"oauth": []}], "", True, ""),
        ([{"cookie": []}], "cookie", False, ""),
        ([{"key": []}, {"bearer": []}], "api_key", False, ""),
        ([{"key": [], "bearer": []}], "", True, KEY),
    ],
)
def test_what_is_configured_is_not_missing(security: object, headers: str, oauth: bool, expected: str) -> None:
    assert missing({"security": security}, headers=headers, oauth=oauth) == expected


@requirement("UP-95", "UP-117")
def test_a_key_of_the_query_is_missing_unless_it_is_configured_under_its_name() -> None:
    assert missing({"security": [{"query": []}]}, query="k") == ""
    assert missing({"security": [{"query": []}]}, query="K") == "k in the query (apiKey); none in query"


@requirement("UP-117")
async def test_a_key_of_the_query_is_sent_with_each_call_and_is_no_argument() -> None:
    seen: list[str] = []

    def answer(request: Seen) -> Reply:
        seen.append(request.target)
        return Reply(status=401)

    scheme = {"security": [{"query": []}], "components": {"securitySchemes": SCHEMES}}
    both = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("k", "own key", "q")]
    exploded = {"name": "f", "in": "query", "schema": {"type": "object"}}
    paths = {
        "/a": {"get": {"operationId": "a", "parameters": [*both, exploded]}},
        "/b?x=1": {"get": {"operationId": "b"}},
    }
    async with HttpService(answer) as service:
        upstream = make(document(paths=paths, **scheme), service.url, query={"k": "s3/&=é", "own key": ""})
        async with supervised(upstream):
            tools = {tool["name"]: tool["inputSchema"]["properties"].keys() for tool in await upstream.list_tools()}
            first = await call(upstream, "a", q="1")
            await call(upstream, "a")
            await call(upstream, "b")
            with pytest.raises(ArgsInvalid):
                await call(upstream, "a", f={"k": "mine"})
            assert list(upstream.notes) == []
    assert tools == {"a": {"q", "f"}, "b": set()}
    sent = "k=s3%2F%26%3D%C3%A9&own%20key="
    assert seen == [f"/a?q=1&{sent}", f"/a?{sent}", f"/b?x=1&{sent}"]
    assert "configured at the gate" not in first["content"][0]["text"]


@requirement("UP-95")
def test_an_operation_goes_before_the_document() -> None:
    assert missing({"security": []}, everywhere=[{"key": []}]) == ""
    assert missing({"security": [{"key": []}]}, everywhere=[{}]) == KEY


@requirement("UP-95")
def test_operations_that_lack_the_same_are_one_line() -> None:
    assert security_notes(["a; b", "", "c", "a; b"]) == ("2 operations ask for a; b", "1 operation asks for c")
    assert len(security_notes(map(str, range(50)))) == 11


@requirement("UP-95", "UP-96")
async def test_the_log_says_what_is_missing_and_the_model_that_the_operator_can_mend_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    raw = document("a", "b", components={"securitySchemes": SCHEMES}, security=[{"key": []}])
    async with HttpService(lambda _: Reply(b'{"error": "who are you?"}', 401)) as service:
        upstream = make(raw, service.url, {"X-Tenant": "t"})
        async with supervised(upstream):
            assert list(upstream.notes) == [f"2 operations ask for {KEY}"]
            result = await call(upstream, "a")
        with_key = make(raw, service.url, {"api_key": "k"})
        async with supervised(with_key):
            refused = await call(with_key, "a")
            assert list(with_key.notes) == []
    assert f"shop: 2 operations ask for {KEY}" in caplog.messages
    assert f"shop: a was answered with 401: it asks for {KEY}" in caplog.messages
    text = result["content"][0]["text"]
    assert text.startswith("HTTP 401 Unauthorized\nNo credential for this service is configured at the gate.")
    assert "api_key" not in str(result)
    assert result["structuredContent"] == {"error": "who are you?"}
    assert refused["content"][0]["text"] == "HTTP 401 Unauthorized"


@requirement("UP-96")
@pytest.mark.parametrize(
    ("headers", "oauth", "told"),
    [({}, False, True), ({"X-Key": "k"}, False, False), ({}, True, False)],
)
async def test_a_401_that_the_document_does_not_speak_of_is_told_where_nothing_is_configured(
    headers: dict[str, str], oauth: bool, told: bool
) -> None:
    async with HttpService(lambda _: Reply(status=401)) as service:
        upstream = make(document("a"), service.url, headers, Tokens() if oauth else None)
        async with supervised(upstream):
            [first] = (await call(upstream, "a"))["content"]
    assert ("configured at the gate" in first["text"]) is told
