"""The model and the folders of a client, as servers of both eras may use them through clients of both eras."""

import asyncio
import json
from typing import Any

import pytest
from mcp import MCPError
from mcp import types as t
from mcp.shared.exceptions import MCPDeprecationWarning

from tests.support.mcp_client import NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.sampling_server import PROMPT, sampling_server
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import BOUND_S, running_service
from tests.support.wire_client import WireClient

pytestmark = [
    pytest.mark.usefixtures("both_ways"),
    pytest.mark.filterwarnings(f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}"),
]

BOTH = ("sampling", "roots")
COMPLETION = {
    "role": "assistant",
    "content": {"type": "text", "text": "Short."},
    "model": "m-1",
    "stopReason": "endTurn",
}
ROOTS = {"roots": [{"uri": "file:///home/ada", "name": "home"}]}


class Client:
    """The callbacks of a client that answers both, and what it was asked."""

    def __init__(self, *refuses: str) -> None:
        self.asked: list[dict[str, Any]] = []
        self._refuses = refuses
        self.options = {"sampling_callback": self._sample, "list_roots_callback": self._roots}

    async def _sample(self, context: Any, params: t.CreateMessageRequestParams) -> Any:
        self.asked.append(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        if "sampling" in self._refuses:
            return t.ErrorData(code=-1, message="secret of the client")
        return t.CreateMessageResult.model_validate(COMPLETION)

    async def _roots(self, context: Any) -> Any:
        return t.ListRootsResult.model_validate(ROOTS)


@requirement("UP-99", "UP-100", "UP-101", "ROUTE-55", "FACE-102")
@pytest.mark.parametrize(("server_era", "mode"), [(HANDSHAKE, OLD), (HANDSHAKE, NEW), (MODERN, OLD), (MODERN, NEW)])
@pytest.mark.parametrize("path", ["/mcp/namespaced", "/mcp"])
async def test_a_server_that_may_uses_the_model_and_the_folders_of_the_client(
    server_era: str, mode: str, path: str
) -> None:
    client = Client()
    async with (
        sampling_server(server_era, forward=BOTH) as server,
        running_service(upstreams=[server.upstream]) as service,
        mcp_client(service, mode, path=path, client=client.options) as gate,
        asyncio.timeout(BOUND_S),
    ):
        if path == "/mcp":
            result = await gate.call_tool("tool_execute", {"tool_id": "raw:use", "args": {}})
        else:
            result = await gate.call_tool("raw__use", {})
    assert not result.is_error, result
    if path != "/mcp":
        assert result.structured_content == {"sampling": COMPLETION, "roots": ROOTS}
    else:
        assert "Short." in json.dumps(result.structured_content)
    (asked,) = client.asked
    assert asked["messages"][0]["content"]["text"] == "Sum up.", "what a person cannot see is no part of a prompt"
    assert (asked["maxTokens"], asked["systemPrompt"]) == (50, "Be short.")
    assert "includeContext" not in asked
    # The newer era has no such member there.
    assert asked.get("_meta") == (None if mode == NEW else {"wicketgate/server": "raw"})


@requirement("UP-80", "UP-99")
@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ((), {}),
        (("sampling",), {"sampling": {"tools": {}}}),
        (("roots",), {"roots": {}}),
        (BOTH, {"sampling": {"tools": {}}, "roots": {}}),
    ],
)
async def test_a_server_is_shown_of_the_clients_model_and_folders_what_it_may_use(
    forward: tuple[str, ...], expected: dict[str, Any]
) -> None:
    can = {"sampling": {"tools": {}, "context": {}}, "roots": {"listChanged": True}}
    for era in (MODERN, HANDSHAKE):
        async with (
            sampling_server(era, wanted=(), forward=forward) as server,
            running_service(upstreams=[server.upstream]) as service,
        ):
            await WireClient(service, capabilities=can).call("raw__use")
            await WireClient(service, capabilities={}).call("raw__use")
        rest = ("elicitation", "extensions")
        shown = [{key: one[key] for key in one if key not in rest} for one in server.declared]
        assert shown == ([expected, {}] if era == MODERN else [expected] * 2), "a handshake is for all clients"


@requirement("UP-99", "UP-100", "FACE-102")
@pytest.mark.parametrize("mode", [OLD, NEW])
@pytest.mark.parametrize("forward", [(), BOTH])
async def test_a_server_of_the_handshake_era_learns_that_a_client_does_not_answer(
    forward: tuple[str, ...], mode: str
) -> None:
    client = Client()
    async with (
        sampling_server(HANDSHAKE, forward=forward) as server,
        running_service(upstreams=[server.upstream]) as service,
        asyncio.timeout(BOUND_S),
    ):
        options = {} if forward else client.options
        async with mcp_client(service, mode, path="/mcp/namespaced", client=options) as gate:
            result = await gate.call_tool("raw__use", {})
    assert result.structured_content == {"sampling": "error -32601", "roots": "error -32601"}
    assert client.asked == []


@requirement("UP-101")
@pytest.mark.parametrize("mode", [OLD, NEW])
async def test_what_was_not_offered_is_an_error_of_a_server_that_asks_for_it(mode: str) -> None:
    client = Client()
    async with (
        sampling_server(MODERN) as server,
        running_service(upstreams=[server.upstream]) as service,
        mcp_client(service, mode, path="/mcp/namespaced", client=client.options) as gate,
    ):
        with pytest.raises(MCPError, match="not offered to it"):
            await gate.call_tool("raw__use", {})
    assert client.asked == []


@requirement("UP-100")
async def test_a_person_who_refuses_is_told_apart_from_a_client_that_cannot() -> None:
    client = Client("sampling")
    async with (
        sampling_server(HANDSHAKE, forward=BOTH) as server,
        running_service(upstreams=[server.upstream]) as service,
        mcp_client(service, OLD, path="/mcp/namespaced", client=client.options) as gate,
        asyncio.timeout(BOUND_S),
    ):
        result = await gate.call_tool("raw__use", {})
    assert result.structured_content == {"sampling": "error -1", "roots": ROOTS}


@requirement("UP-100")
async def test_a_prompt_with_tools_goes_only_to_a_client_that_takes_them() -> None:
    prompt = {**PROMPT, "tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    client = Client()  # of the SDK, which declares no tools
    async with (
        sampling_server(HANDSHAKE, wanted=("sampling",), forward=BOTH, prompt=prompt) as server,
        running_service(upstreams=[server.upstream]) as service,
        mcp_client(service, OLD, path="/mcp/namespaced", client=client.options) as gate,
        asyncio.timeout(BOUND_S),
    ):
        result = await gate.call_tool("raw__use", {})
    assert result.structured_content == {"sampling": "error -32601"}
    assert client.asked == []


@requirement("FACE-102")
@pytest.mark.parametrize("path", ["/mcp/namespaced", "/mcp"])
async def test_a_call_is_held_for_the_model_and_the_folders_one_after_the_other(path: str) -> None:
    name, arguments = ("raw__use", {}) if path != "/mcp" else ("tool_execute", {"tool_id": "raw:use", "args": {}})
    async with (
        sampling_server(HANDSHAKE, forward=BOTH) as server,
        running_service(upstreams=[server.upstream]) as service,
        asyncio.timeout(BOUND_S),
    ):
        gate = WireClient(service, path=path, capabilities={"sampling": {}, "roots": {}})
        answer, asked = await gate.call(name, arguments), []
        while (result := answer["result"]).get("resultType") == "input_required":
            ((key, request),) = result["inputRequests"].items()
            asked.append(request["method"])
            given = {key: COMPLETION if request["method"] == "sampling/createMessage" else ROOTS}
            more = {"requestState": result["requestState"], "inputResponses": given}
            answer = await gate.call(name, arguments, more=more)
    assert asked == ["sampling/createMessage", "roots/list"]
    assert "Short." in json.dumps(result) and not result.get("isError")
    assert server.called == 1, "the tool was called once"
