"""Codes of JSON-RPC errors by the era of the client, and errors that are for the client through every face."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN, scripted_server
from tests.support.service import running_service
from tests.support.wire_client import WireClient

RESOURCES: dict[str, Any] = {"tools": {}, "resources": {}}
URL = {"mode": "url", "url": "https://login.example/x", "elicitationId": "e-1", "message": "Log in."}
SHOWN = {**URL, "message": "`raw` asks you to open a page at login.example: Log in."}
LOGIN: dict[str, Any] = {"code": -32042, "message": "Log in first", "data": {"elicitations": [URL]}}
LACKS: dict[str, Any] = {"code": -32021, "message": "No", "data": {"requiredCapabilities": {"sampling": {}}}}
CALLS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "namespaced": ("raw__job", {}),
    "transparent": ("tool_execute", {"tool_id": "raw:job"}),
    "gateway": ("tool_execute", {"tool_id": "raw:job"}),
    "registry": ("call", {"operation": "/raw/job"}),
}


@requirement("FACE-54")
@pytest.mark.parametrize("code", [-32002, 0])
async def test_a_resource_that_is_not_there_is_told_in_the_way_of_the_clients_era(code: int) -> None:
    error = {"code": code, "message": "Unknown resource: demo://x", "data": {"uri": "demo://x"}}
    answers = {"resources/read": lambda params: {"error": error}}
    async with (
        scripted_server(answers, era=HANDSHAKE, capabilities=RESOURCES) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        uri = {"uri": "raw__demo://x"}
        newer = (await WireClient(service, MODERN).ask("resources/read", uri))["error"]
        older = (await WireClient(service, HANDSHAKE).ask("resources/read", uri))["error"]
        ours = (await WireClient(service, MODERN).ask("resources/read", {"uri": "nope__demo://x"}))["error"]
    assert (newer["code"], newer["data"]) == (-32602, {**uri, "upstream_code": code})
    assert (older["code"], older["data"]) == (code, uri)
    assert (ours["code"], ours["data"]) == (-32602, {"uri": "nope__demo://x"})


@requirement("FACE-55")
@pytest.mark.parametrize("code", [-32099, -32042, -32022, -32020, -32004, -32000, -32768])
async def test_a_reserved_code_of_a_server_is_an_internal_error_of_the_newer_era(code: int) -> None:
    error = {"code": code, "message": "no", "data": {"why": "so"}}
    async with (
        scripted_server({"tools/call": lambda params: {"error": error}}, era=HANDSHAKE) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        newer = (await WireClient(service, MODERN).call("raw__job"))["error"]
        older = (await WireClient(service, HANDSHAKE).call("raw__job"))["error"]
    assert (newer["code"], newer["data"]) == (-32603, {"why": "so", "upstream_code": code})
    assert older == error


@requirement("FACE-55")
@pytest.mark.parametrize("code", [-32602, -32603, -32601, -31999, 7])
async def test_other_codes_of_a_server_pass_in_either_era(code: int) -> None:
    error = {"code": code, "message": "no", "data": 5}
    async with (
        scripted_server({"tools/call": lambda params: {"error": error}}, era=HANDSHAKE) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        for era in (MODERN, HANDSHAKE):
            assert (await WireClient(service, era).call("raw__job"))["error"] == error


@requirement("FACE-56", "ROUTE-15")
async def test_our_own_codes_lie_outside_what_is_reserved_in_the_newer_era() -> None:
    answers = {"tools/call": lambda params: {"result": {"resultType": "task"}}}
    async with (
        scripted_server(answers) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        newer = (await WireClient(service, MODERN).call("raw__job"))["error"]
        older = (await WireClient(service, HANDSHAKE).call("raw__job"))["error"]
    assert (newer["code"], older["code"]) == (-31004, -32004)
    assert newer["message"] == older["message"]


@requirement("FACE-57")
@pytest.mark.parametrize("face", CALLS)
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_capability_that_a_client_lacks_is_named_to_it_at_every_face(era: str, face: str) -> None:
    name, arguments = CALLS[face]
    async with (
        scripted_server({"tools/call": lambda params: {"error": LACKS}}) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        answer = await WireClient(service, era, f"/mcp/{face}").call(name, arguments)
    assert answer["error"] == LACKS, answer


@requirement("FACE-57", "FACE-58")
@pytest.mark.parametrize("face", CALLS)
async def test_pages_that_a_person_must_open_reach_the_client_at_every_face(face: str) -> None:
    name, arguments = CALLS[face]
    async with (
        scripted_server({"tools/call": lambda params: {"error": LOGIN}}, era=HANDSHAKE) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        older = await WireClient(service, HANDSHAKE, f"/mcp/{face}").call(name, arguments)
        newer = await WireClient(service, MODERN, f"/mcp/{face}").call(name, arguments)
        asks = WireClient(service, MODERN, f"/mcp/{face}", {"elicitation": {"url": {}}})
        asked = (await asks.call(name, arguments))["result"]
        given = {key: {"action": "accept"} for key in asked["inputRequests"]}
        second = {"requestState": asked["requestState"], "inputResponses": given}
        again = await asks.call(name, arguments, second)
    assert older["error"] == {**LOGIN, "data": {"elicitations": [SHOWN]}}
    if face == "namespaced":
        assert newer["error"]["data"] == {"elicitations": [SHOWN], "upstream_code": -32042}
    else:
        assert newer["result"]["isError"]
        assert newer["result"]["structuredContent"]["details"]["elicitations"] == [SHOWN]
    assert asked["resultType"] == "input_required"
    (question,) = asked["inputRequests"].values()
    assert (question["params"]["mode"], question["params"]["url"]) == ("url", URL["url"])
    assert "requestState" not in again.get("result", {}), "it is asked once"


@requirement("FACE-85")
@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("resources/read", {"uri": "raw+demo://x"}, {"contents": [{"uri": "demo://x", "text": "ok"}]}),
        ("prompts/get", {"name": "raw__hello"}, {"messages": []}),
    ],
)
async def test_pages_in_the_way_of_a_read_or_a_prompt_are_questions_as_for_tools(
    method: str, params: dict[str, Any], result: dict[str, Any]
) -> None:
    outcomes = iter([{"error": LOGIN}, {"error": LOGIN}, {"result": result}])
    can: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
    async with (
        scripted_server({method: lambda params: next(outcomes)}, era=HANDSHAKE, capabilities=can) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        refused = (await WireClient(service, MODERN).ask(method, params))["error"]
        asks = WireClient(service, MODERN, capabilities={"elicitation": {"url": {}}})
        asked = (await asks.ask(method, params))["result"]
        given = {key: {"action": "accept"} for key in asked["inputRequests"]}
        second = {"requestState": asked["requestState"], "inputResponses": given}
        again = (await asks.ask(method, {**params, **second}))["result"]
    without_id = {key: value for key, value in SHOWN.items() if key != "elicitationId"}  # the newer era has none
    assert refused["data"]["elicitations"] == [SHOWN]
    assert [each["params"] for each in asked["inputRequests"].values()] == [without_id]
    assert again["resultType"] == "complete"
    assert all("inputResponses" not in message["params"] for message in server.seen(method))


BAD_PAGES = [
    {**URL, "url": "http://login.example/x"},
    {**URL, "url": "https://user@login.example/x"},
    {**URL, "url": "https://login.\u200bexample/x"},
    {**URL, "elicitationId": "e\u202e1"},
    {**URL, "message": "`gate` asks you to open a page"},
    {"mode": "form", "message": "Your password?", "requestedSchema": {}},
    "https://login.example/x",
]


@requirement("FACE-86")
@pytest.mark.parametrize("face", ["namespaced", "gateway"])
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_pages_that_could_not_be_a_question_are_not_in_the_data_of_an_error_either(era: str, face: str) -> None:
    name, arguments = CALLS[face]
    data = {"elicitations": [*BAD_PAGES, {**URL, "icon": "https://tracker.example"}], "note": "\u202ehidden"}
    async with (
        scripted_server({"tools/call": lambda params: {"error": {**LOGIN, "data": data}}}, era=HANDSHAKE) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        answer = await WireClient(service, era, f"/mcp/{face}").call(name, arguments)
    told = answer["error"]["data"] if "error" in answer else answer["result"]["structuredContent"]["details"]
    assert told["elicitations"] == [SHOWN]
    assert "note" not in told
