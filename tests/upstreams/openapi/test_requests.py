"""Calls as HTTP requests: nothing an argument holds changes where the request goes (UP-29)."""

import base64
import json
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from tests.upstreams.openapi.fixtures import json_body, operation
from wicketgate.errors import ArgsInvalid
from wicketgate.upstreams.openapi.exchange import HttpRequest, build_request
from wicketgate.upstreams.openapi.operations import OpenApiOperation

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ITEM = operation({"parameters": [{"name": "q", "in": "query"}]}, path="/items/{id}/parts/{part}.json", method="delete")


def sent(raw: dict[str, Any], arguments: dict[str, Any], **more: Any) -> HttpRequest:
    return build_request(operation(raw, **more), arguments)


def with_body(content_type: str, media: dict[str, Any], required: bool = True) -> OpenApiOperation:
    return operation({"requestBody": {"required": required, "content": {content_type: media}}})


def leads_up(text: str) -> bool:
    """Returns whether some reader finds a dot segment in *text*: after decoding, cut at a semicolon or at blanks."""
    for _ in range(6):
        parts = text.replace("\\", "/").split("/")
        if {".", ".."} & {part.split(";")[0].strip(" \t\r\n\v\f\0") for part in parts}:
            return True
        text = unquote(text)
    return False


@requirement("UP-29")
@given(TEXT, TEXT)
@example("..", "x")
@example("../../admin", "x")
@example("a/../../b", "x")
@example("..\\x", "x")
@example("%2e%2e", "%2F")
@example("x?admin=1#", "&")
@example(".", "")
def test_a_path_argument_stays_in_its_segment_or_is_refused(one: str, two: str) -> None:
    try:
        target = build_request(ITEM, {"id": one, "part": two}).target
    except ArgsInvalid:
        assert not one or not two or leads_up(one) or leads_up(f"{two}.json")
        return
    assert "?" not in target and "#" not in target and "\\" not in target
    empty, items, first, parts_word, second = target.split("/")
    assert (empty, items, parts_word) == ("", "items", "parts")
    assert (unquote(first), unquote(second)) == (one, f"{two}.json")
    assert first not in (".", "..")


@given(st.dictionaries(st.sampled_from(["q", "r", "s"]), TEXT))
def test_query_arguments_arrive_as_they_were_given(arguments: dict[str, str]) -> None:
    raw = {"parameters": [{"name": name, "in": "query"} for name in "qrs"]}
    target = sent(raw, arguments).target
    assert dict(parse_qsl(urlsplit(target).query, keep_blank_values=True)) == arguments
    assert urlsplit(target).path == "/things" and not urlsplit(target).fragment


@requirement("UP-116")
def test_the_query_that_a_path_has_is_sent_and_no_argument_changes_it() -> None:
    form = {"name": "filter", "in": "query", "schema": {"type": "object"}, "style": "form", "explode": True}
    raw = {"parameters": [{"name": "q", "in": "query"}, {"name": "beta", "in": "query"}, form]}
    made = operation(raw, path="/items/{id}?beta=true&kind=a b")
    assert set(made.tool["inputSchema"]["properties"]) == {"id", "q", "filter"}
    assert build_request(made, {"id": "1?x"}).target == "/items/1%3Fx?beta=true&kind=a%20b"
    assert build_request(made, {"id": "1", "q": "&beta=false"}).target == (
        "/items/1?beta=true&kind=a%20b&q=%26beta%3Dfalse"
    )
    with pytest.raises(ArgsInvalid):
        build_request(made, {"id": "1", "filter": {"beta": "false"}})


@requirement("UP-29")
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "é", "\0", "a\tb"])
def test_a_header_argument_that_could_end_the_header_is_refused(value: str) -> None:
    with pytest.raises(ArgsInvalid) as fault:
        sent({"parameters": [{"name": "X-Note", "in": "header"}]}, {"X-Note": value})
    assert fault.value.details is not None and fault.value.details["errors"][0]["path"] == "$.X-Note"


def test_headers_and_cookies_are_sent() -> None:
    raw = {
        "parameters": [{"name": "X-Ids", "in": "header"}, {"name": "a", "in": "cookie"}, {"name": "b", "in": "cookie"}]
    }
    request = sent(raw, {"X-Ids": [1, 2], "a": "x; b=evil", "b": True})
    assert request.headers["x-ids"] == "1,2"
    assert request.headers["cookie"] == "a=x%3B%20b%3Devil; b=true"
    assert request.headers["accept"].startswith("application/json")


def test_absent_and_null_arguments_are_not_sent() -> None:
    raw = {"parameters": [{"name": "a", "in": "query"}, {"name": "b", "in": "query"}]}
    assert sent(raw, {"a": None}).target == "/things"


def test_too_long_for_a_url_is_refused() -> None:
    with pytest.raises(ArgsInvalid, match="too long"):
        sent({"parameters": [{"name": "a", "in": "query"}]}, {"a": "x" * 40_000})


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(ArgsInvalid):
        sent({"parameters": [{"name": "a", "in": "query"}]}, {"a": "\ud800"})


def test_a_json_body_is_built_of_its_properties() -> None:
    raw = {
        "parameters": [{"name": "q", "in": "query"}],
        "requestBody": json_body({"type": "object", "properties": {"a": {}, "b": {}}}),
    }
    request = sent(raw, {"q": "1", "b": {"x": [1.5, None, "é"]}})
    assert json.loads(request.body or b"") == {"b": {"x": [1.5, None, "é"]}}
    assert request.content_type == "application/json"
    assert request.target == "/things?q=1"
    assert sent(raw, {}).body == b"{}"


def test_an_optional_body_without_arguments_is_not_sent() -> None:
    raw = {"requestBody": json_body({"type": "object", "properties": {"a": {}}}, required=False)}
    request = sent(raw, {})
    assert (request.body, request.content_type) == (None, "")
    assert sent(raw, {"a": 1}).body == b'{"a":1}'


@pytest.mark.parametrize(
    ("content_type", "sent_type"),
    [
        ("application/vnd.api+json", "application/vnd.api+json"),
        ("*/*", "application/json"),
        ("application/json; charset=utf-8", "application/json; charset=utf-8"),
    ],
)
def test_any_json_type_keeps_its_name(content_type: str, sent_type: str) -> None:
    request = build_request(with_body(content_type, {"schema": {"type": "array"}}), {"body": [1]})
    assert (request.body, request.content_type) == (b"[1]", sent_type)


def test_json_is_chosen_before_forms_and_text() -> None:
    content = {
        kind: {"schema": {"type": "string"}} for kind in ("text/plain", "multipart/form-data", "application/json")
    }
    assert sent({"requestBody": {"content": content}}, {"body": "x"}).body == b'"x"'


@given(st.dictionaries(st.sampled_from(["a", "b c", "d&e"]), TEXT | st.lists(TEXT, min_size=1), min_size=1))
def test_a_form_is_read_back(values: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {name: {} for name in ("a", "b c", "d&e")}}
    request = build_request(with_body("application/x-www-form-urlencoded", {"schema": schema}), values)
    expected = [
        (name, each) for name, value in values.items() for each in (value if isinstance(value, list) else [value])
    ]
    assert sorted(parse_qsl((request.body or b"").decode(), keep_blank_values=True)) == sorted(expected)


def test_a_form_writes_objects_as_its_encoding_says() -> None:
    schema = {"type": "object", "properties": {"plain": {"type": "object"}, "deep": {"type": "object"}}}
    media = {"schema": schema, "encoding": {"deep": {"style": "deepObject", "explode": True}}}
    request = build_request(
        with_body("application/x-www-form-urlencoded", media), {"plain": {"x": 1}, "deep": {"y": {"z": 2}}}
    )
    assert parse_qsl((request.body or b"").decode()) == [("plain", '{"x":1}'), ("deep[y][z]", "2")]


@requirement("UP-98")
def test_a_form_can_hold_a_list_of_objects() -> None:
    items = {"type": "array", "items": {"type": "object"}}
    media = {
        "schema": {"type": "object", "properties": {"items": items}},
        "encoding": {"items": {"style": "deepObject", "explode": True}},
    }
    request = build_request(
        with_body("application/x-www-form-urlencoded", media), {"items": [{"price": "p&1", "tax_rates": ["t"]}]}
    )
    assert parse_qsl((request.body or b"").decode()) == [("items[0][price]", "p&1"), ("items[0][tax_rates][0]", "t")]


@requirement("UP-59")
def test_a_place_in_a_list_sets_no_other_parameter() -> None:
    parameters = [
        {"name": "deep", "in": "query", "style": "deepObject", "schema": {"type": "array"}},
        {"name": "deep[0]", "in": "query", "schema": {"type": "string"}},
    ]
    with pytest.raises(ArgsInvalid):
        build_request(operation({"parameters": parameters}), {"deep": ["x"]})


@given(st.binary(max_size=200), TEXT)
def test_a_multipart_form_is_read_back(data: bytes, text: str) -> None:
    assume("\r" not in text and "\n" not in text)
    schema = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "text": {"type": "string"},
            "data": {"type": "object"},
        },
    }
    form = with_body(
        "multipart/form-data", {"schema": schema, "encoding": {"file": {"contentType": "image/png, image/gif"}}}
    )
    assert form.tool["inputSchema"]["properties"]["file"]["contentEncoding"] == "base64"
    given = base64.b64encode(data).decode()
    request = build_request(form, {"file": given, "files": [given, given], "text": text, "data": {"a": [1]}})
    head = f"Content-Type: {request.content_type}\r\n\r\n".encode()
    parts: list[Any] = list(BytesParser(policy=HTTP).parsebytes(head + (request.body or b"")).iter_parts())
    assert [part.get_param("name", header="content-disposition") for part in parts] == [
        "file",
        "files",
        "files",
        "text",
        "data",
    ]
    assert [part.get_content_type() for part in parts[:2]] == ["image/png", "application/octet-stream"]
    assert (request.body or b"").count(b"\r\n\r\n" + data + b"\r\n--") >= 3
    assert b"\r\n\r\n" + text.encode() + b"\r\n--" in (request.body or b"")
    assert json.loads(parts[4].get_payload(decode=True)) == {"a": [1]}


@requirement("UP-29")
def test_no_argument_can_write_a_part_of_its_own() -> None:
    schema = {"type": "object", "properties": {'a"\r\nb': {}, "text": {}}}
    form = with_body("multipart/form-data", {"schema": schema})
    first = build_request(form, {"text": "x"})
    forged = f"x\r\n--{first.content_type.partition('=')[2]}\r\n\r\nevil"
    second = build_request(form, {"text": forged, 'a"\r\nb': "1"})
    boundary = second.content_type.partition("=")[2]
    assert boundary not in forged
    assert (second.body or b"").count(b"--" + boundary.encode()) == 3
    assert b'name="a%22%0D%0Ab"' in (second.body or b"")


@pytest.mark.parametrize("bad", ["not base64!", 5, ["x"]])
def test_what_is_not_base64_is_refused(bad: object) -> None:
    with pytest.raises(ArgsInvalid):
        build_request(with_body("application/pdf", {}), {"body": bad})


def test_text_and_binary_bodies_are_sent_as_they_are() -> None:
    assert (
        build_request(with_body("text/plain", {"schema": {"type": "string"}}), {"body": "héy"}).body == "héy".encode()
    )
    assert build_request(with_body("application/xml", {}), {"body": "<a/>"}).body == b"<a/>"
    assert build_request(with_body("application/pdf", {}), {"body": "AAEC"}).body == b"\0\1\2"


KEYED = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}}
FREE = {"type": "object", "additionalProperties": {"type": "string"}}
SEARCH = {
    "parameters": [
        {"name": "table", "in": "query", "schema": {"type": "string"}},
        {"name": "filter", "in": "query", "schema": FREE},
        {"name": "deep", "in": "query", "style": "deepObject", "schema": FREE},
        {"name": "deep[fixed]", "in": "query", "schema": {"type": "string"}},
        {"name": "deep[more][fixed]", "in": "query", "schema": {"type": "string"}},
    ]
}


@requirement("UP-59")
@pytest.mark.parametrize(
    "arguments",
    [
        {"filter": {"table": "secrets"}},
        {"filter": {"colour": "red", "api_key": "mine"}},
        {"filter": {"Table": "secrets"}},
        {"filter": {"table[]": "secrets"}},
        {"filter": {"api.key": "mine"}},
        {"filter": {" table": "secrets"}},
        {"filter": {"deep": "x"}},
        {"filter": {"api[key": "mine"}},
        {"filter": {"api_key\0x": "mine"}},
        {"filter": {"api%5Fkey": "mine"}},
        {"filter": {"\uff41pi_key": "mine"}},
        {"filter": {"table\u200b": "secrets"}},
        {"deep": {"fixed": "x"}},
        {"deep": {"more": {"fixed": "x"}}},
    ],
)
def test_an_exploded_object_sets_no_other_parameter(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgsInvalid, match="name of another parameter") as refused:
        sent(SEARCH, arguments, components=KEYED)
    assert refused.value.details is not None


@requirement("UP-59")
def test_an_exploded_object_sends_its_other_members() -> None:
    target = sent(SEARCH, {"table": "t", "filter": {"colour": "red", "tables": "1"}, "deep": {"a": "1"}}).target
    assert parse_qsl(urlsplit(target).query) == [("table", "t"), ("colour", "red"), ("tables", "1"), ("deep[a]", "1")]


@requirement("UP-59")
def test_an_exploded_object_in_a_path_sets_no_other_parameter() -> None:
    raw = {
        "parameters": [
            {"name": "id", "in": "path", "style": "matrix", "required": True, "schema": {"type": "string"}},
            {"name": "with", "in": "path", "style": "matrix", "explode": True, "required": True, "schema": FREE},
        ]
    }
    with pytest.raises(ArgsInvalid, match="name of another parameter"):
        sent(raw, {"id": "1", "with": {"id": "2"}}, path="/items/{id}/{with}")
    assert sent(raw, {"id": "1", "with": {"a": "2"}}, path="/items/{id}/{with}").target == "/items/;id=1/;a=2"


@requirement("UP-59")
@pytest.mark.parametrize("key", ["role", "Role", "role[]"])
def test_an_exploded_object_in_a_form_sets_no_other_member(key: str) -> None:
    media = {
        "schema": {"type": "object", "properties": {"role": {"type": "string"}, "labels": FREE}},
        "encoding": {"labels": {"style": "form", "explode": True}},
    }
    form = with_body("application/x-www-form-urlencoded", media)
    with pytest.raises(ArgsInvalid, match="name of another parameter"):
        build_request(form, {"labels": {key: "admin"}})
    assert build_request(form, {"role": "user", "labels": {"a": "b"}}).body == b"role=user&a=b"


@requirement("UP-29")
@pytest.mark.parametrize(
    "value",
    ["..;", "..;x=1", "a/..;/b", "..%2fadmin", "%2e%2e/admin", "..%252fadmin", "%252e%252e", "..%5cx", "..\t/x", ".. "],
)
def test_a_path_argument_that_a_second_reader_takes_for_a_way_up_is_refused(value: str) -> None:
    with pytest.raises(ArgsInvalid, match="must not be"):
        build_request(ITEM, {"id": value, "part": "x"})


@requirement("UP-29")
@pytest.mark.parametrize("value", ["a..b", "1..2;x", "100%", "50%25", "..a", "v1;..x"])
def test_dots_that_lead_nowhere_are_sent(value: str) -> None:
    target = build_request(ITEM, {"id": value, "part": "x"}).target
    assert unquote(target.split("/")[2]) == value
