"""The published contract is the one that is served, and what is streamed keeps it (CHAT-41)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from app.cli import _DOCUMENTS
from routers.openapi import DOCUMENTS
from tests.contract.test_tool_calls import execute
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import KEY, OPERATOR_KEY, FileServer, Frame, chat_body, running_service
from wicketgate.engine.contract import InvalidRequest, parse_chat_request
from wicketgate.errors import ProviderError
from wicketgate.models.provider import ToolCall, Usage

PUBLISHED = Path(__file__).resolve().parents[1] / "openapi"


PATHS = {
    "openapi.json": "/openapi.json",
    "openapi-3.2.json": "/openapi-3.2.json",
    "console.json": "/console/api/openapi.json",
}


def published(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PUBLISHED / name).read_text())
    return document


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for path in document["paths"].values() for each in path.values()]


@requirement("CHAT-41")
@pytest.mark.parametrize("name", PATHS)
async def test_the_published_document_is_the_one_that_is_served(name: str) -> None:
    async with running_service(settings={"server": {"console": True}}) as service:
        served = (await service.http.get(PATHS[name])).json()
    assert published(name) == served, "run: make openapi"


@pytest.mark.parametrize("name", ["openapi.json", "openapi-no-stream.json", "console.json"])
def test_the_3_1_documents_are_valid(name: str) -> None:
    OpenAPIV31SpecValidator(published(name)).validate()


@requirement("LIB-40")
async def test_the_console_has_a_document_of_its_own_where_it_is_served() -> None:
    public, console = published("openapi.json"), published("console.json")
    assert {each["tags"][0] for each in operations(console)} == {"console"}
    assert not public["paths"].keys() & console["paths"].keys()
    assert [path for path in public["paths"] if path.startswith("/console/")] == [
        "/console/api/approvals",
        "/console/api/programs",
        "/console/api/approvals/{id}",
        "/console/api/spending",
    ]
    assert all(path.startswith("/console/api/") for path in console["paths"])
    async with running_service(settings={"server": {"console": False}}) as service:
        assert (await service.http.get(PATHS["console.json"])).status_code == 404
        assert (await service.http.get("/openapi.json")).json() == public


@requirement("LIB-40")
def test_the_document_without_the_stream_lacks_nothing_else() -> None:
    whole, rest = published("openapi.json"), published("openapi-no-stream.json")
    del whole["paths"]["/engine/chat"]
    whole["tags"] = [tag for tag in whole["tags"] if tag["name"] != "chat"]
    assert rest == whole


def test_the_command_names_every_document() -> None:
    assert [*DOCUMENTS] == [*_DOCUMENTS]


@requirement("LIB-41")
def test_an_item_of_the_stream_is_the_data_of_an_event_for_generators_and_the_event_for_validators() -> None:
    content = [
        published(name)["paths"]["/engine/chat"]["post"]["responses"]["200"]["content"]["text/event-stream"]
        for name in ("openapi.json", "openapi-3.2.json")
    ]
    of_generators = {"schema": {"$ref": "#/components/schemas/ChatEventData"}}
    assert content == [of_generators, {"itemSchema": {"$ref": "#/components/schemas/ChatEvent"}}]


@pytest.mark.parametrize("key", [OPERATOR_KEY, KEY])
async def test_what_readiness_says_keeps_the_published_schema(key: str) -> None:
    name = "ReadinessDetails" if key == OPERATOR_KEY else "Readiness"
    async with running_service(upstreams=[FileServer()]) as service:
        said = (await service.http.get("/readyz", headers={"Authorization": f"Bearer {key}"})).json()
    validator("openapi.json", name).validate(said)
    assert published("openapi.json")["paths"]["/readyz"]["get"]["security"] == [{}, {"bearer": []}]


def validator(name: str, schema: str = "ChatEvent") -> Draft202012Validator:
    resource: Resource[Any] = Resource.from_contents(published(name), default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("urn:wicketgate", resource)
    return Draft202012Validator({"$ref": f"urn:wicketgate#/components/schemas/{schema}"}, registry=registry)


async def streams() -> list[Frame]:
    """Streams that hold all five events, both shapes of a tool result and both ends."""
    turn = calls(execute("c1", "read_file", {"path": "x"}), execute("c2", "fail"), ToolCall("c3", "nope", {}, "{}"))
    async with running_service(ScriptModel(turn, says("ok", usage=Usage(1, 2))), [FileServer()]) as service:
        good = await service.chat()
    async with running_service(ScriptModel([ProviderError("x")])) as service:
        return good + await service.chat()


@requirement("CHAT-26", "CHAT-41", "LIB-41")
async def test_every_event_on_the_wire_keeps_the_published_schema() -> None:
    seen = await streams()
    assert {event for event, _ in seen} == {"text-delta", "tool-call", "tool-result", "done", "error"}
    typed, raw, item = (
        validator("openapi.json"),
        validator("openapi-3.2.json"),
        validator("openapi.json", "ChatEventData"),
    )
    for event, data in seen:
        typed.validate({"event": event, "data": data})
        raw.validate({"event": event, "data": json.dumps(data)})
        item.validate(data)
    assert not typed.is_valid({"event": "done", "data": {"finish_reason": "stop"}})
    assert not typed.is_valid({"event": "tool-result", "data": {"id": "a", "output": "x", "error": "y"}})


@requirement("CHAT-41")
async def test_the_document_refuses_what_the_service_refuses() -> None:
    request = validator("openapi.json", "ChatRequest")
    assert request.is_valid(chat_body())
    empty: dict[str, Any] = {"messages": [], "metadata": {}}
    for bad in (chat_body(correlation_id=""), chat_body(trigger="cron"), empty):
        assert not request.is_valid(bad)


def messages_of(**fields: Any) -> dict[str, Any]:
    asked = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "x", "arguments": "{}"}}]}
    return {**chat_body(), "messages": [asked, {"role": "tool", "content": "ok", **fields}]}


@requirement("CHAT-107")
@pytest.mark.parametrize("fields", [{}, {"tool_call_id": None}, {"tool_call_id": ""}])
async def test_a_tool_message_without_its_call_is_refused_by_document_and_service(fields: dict[str, Any]) -> None:
    request = validator("openapi.json", "ChatRequest")
    assert request.is_valid(messages_of(tool_call_id="c1"))
    assert not request.is_valid(messages_of(**fields))
    with pytest.raises(InvalidRequest):
        parse_chat_request(messages_of(**fields))


@requirement("OPS-152")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_says_where_it_is_served_under_which_licence_and_groups_its_paths(name: str) -> None:
    document = published(name)
    assert document["servers"] == [{"url": "/"}]
    assert document["info"]["license"] == {"name": "Apache 2.0", "identifier": "Apache-2.0"}
    assert all(tag["description"] for tag in document["tags"])
    declared = {tag["name"] for tag in document["tags"]}
    found = operations(document)
    assert {tag for each in found for tag in each["tags"]} == declared
    assert all(len(each["tags"]) == 1 and each["summary"] and each["description"] for each in found)


@requirement("OPS-153")
async def test_the_operations_refuse_what_their_document_refuses_and_no_more() -> None:
    paths = published("openapi.json")["paths"]
    search = {each["name"]: each["schema"] for each in paths["/operations"]["get"]["parameters"]}
    assert list(search) == ["query", "namespace", "cursor", "limit"]
    [name] = paths["/operations/schema"]["get"]["parameters"]
    call = paths["/operations/call"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    batch = paths["/operations/batch"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    async with running_service(upstreams=[FileServer()]) as service:
        http = service.http
        assert search["cursor"]["minLength"] == name["schema"]["minLength"] == 1
        assert (await http.get("/operations", params={"cursor": ""})).status_code == 422
        assert (await http.get("/operations/schema", params={"name": ""})).status_code == 422
        assert (await http.get("/operations", params={"query": "", "namespace": ""})).status_code == 200
        assert not {"minLength"} & (search["query"].keys() | search["namespace"].keys())
        assert not Draft202012Validator(call).is_valid({"operation": ""})
        assert (await http.post("/operations/call", json={"operation": ""})).status_code == 422
        # An item at fault is answered in its place, so the document asks nothing of it that would refuse the batch.
        items = [{}, {"operation": ""}, {"input": {}}]
        Draft202012Validator(batch).validate({"calls": items})
        answer = await http.post("/operations/batch", json={"calls": items})
    assert (answer.status_code, [each["result"] for each in answer.json()["results"]]) == (200, ["error"] * 3)


def test_objects_whose_properties_are_not_known_are_published_as_open() -> None:
    def objects(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            if node.get("type") == "object":
                yield node
            node = list(node.values())
        if isinstance(node, list):
            for part in node:
                yield from objects(part)

    document = published("openapi.json")
    found = list(objects(document))
    assert found
    assert [of for of in found if "properties" not in of and "additionalProperties" not in of] == []


def test_a_parameter_without_which_nothing_is_answered_is_published_as_required() -> None:
    document = published("openapi.json")
    [name] = document["paths"]["/operations/schema"]["get"]["parameters"]
    assert (name["name"], name["required"]) == ("name", True)
