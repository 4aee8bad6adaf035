"""The namespaced face over the wire: its errors, the protocol around it, and nobody waits for another (ROUTE-1 to
ROUTE-17)."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp import types as t
from mcp.server.subscriptions import ToolsListChanged

from tests.contract.test_mcp_door import INITIALIZE
from tests.support.door import OLDER, Door
from tests.support.mcp_client import ERAS, NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, READER_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from wicketgate.config.settings import Settings
from wicketgate.faces.mcp.fit import MISSING_KEY, PAGE
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.upstreams.embedded import StubUpstream

PATH = "/mcp/namespaced"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
NOT_NAMESPACED = "is not properly namespaced. All tool calls must use 'server__tool' format (e.g., 'filesystem__echo')"


def call(params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


@ERAS
@requirement("ROUTE-1", "ROUTE-7")
async def test_a_client_of_either_era_lists_and_calls_tools_under_their_servers_names(mode: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files]) as service, mcp_client(service, mode, path=PATH) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["files__boom", "files__fail", "files__read_file", "files__slow"]
        assert tools[2].input_schema["required"] == ["path"]
        read = await client.call_tool("files__read_file", {"path": "a.md"})
        failed = await client.call_tool("files__fail", {})
        broken = await client.call_tool("files__boom", {})
    assert (read.is_error, read.content[0].text) == (False, "contents of a.md")  # type: ignore[union-attr]
    assert (failed.is_error, failed.content[0].text) == (True, "no such luck")  # type: ignore[union-attr]
    assert broken.is_error
    assert "secret" not in broken.model_dump_json()


@ERAS
@requirement("ROUTE-2", "ROUTE-3", "ROUTE-12", "ROUTE-13")
async def test_routing_errors_are_json_rpc_errors(mode: str) -> None:
    expected = {
        "read_file": f"Tool 'read_file' {NOT_NAMESPACED}",
        "files_read_file": f"Tool 'files_read_file' {NOT_NAMESPACED}",
        "nope__read_file": "Unknown server 'nope' in request",
        "files__nope": "Tool 'files__nope' not found",
    }
    files = FileServer()
    async with running_service(upstreams=[files]) as service, mcp_client(service, mode, path=PATH) as client:
        for name, message in expected.items():
            with pytest.raises(MCPError) as refused:
                await client.call_tool(name, {})
            assert (refused.value.code, refused.value.message) == (-32602, message)
    assert files.calls == []


@requirement("ROUTE-2")
async def test_a_call_without_a_usable_name_is_invalid_params_in_words_of_ours() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        session = await Door(service, OLDER).open()
        nameless: list[dict[str, Any]] = [{}, {"name": None}, {"arguments": {}}]
        for params in nameless:
            answer = await session.told(call(params))
            assert answer["id"] == 7
            assert answer["error"] == {"code": -32602, "message": "Tool call missing required 'name' parameter"}
        bare = await session.told({"jsonrpc": "2.0", "id": 7, "method": "tools/call"})
        assert bare["error"]["message"] == "Tool call missing required 'name' parameter"
        for odd in ({"name": 5}, ["a"], "x"):
            answer = await session.told(call(odd))
            assert (answer["id"], answer["error"]["code"]) == (7, -32602)
            assert "pydantic" not in json.dumps(answer)


@requirement("FACE-4", "FACE-5")
async def test_ping_and_logging_are_answered_by_us_and_ids_come_back_as_they_were() -> None:
    files = FileServer()
    async with running_service(upstreams=[files]) as service:
        session = await Door(service, OLDER).open()
        for id in ("abc", 0, 7):
            assert await session.told({"jsonrpc": "2.0", "id": id, "method": "ping"}) == {
                "jsonrpc": "2.0",
                "id": id,
                "result": {},
            }
        level = {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "debug"}}
        assert (await session.told(level))["result"] == {}
        unknown = await session.told({"jsonrpc": "2.0", "id": 1, "method": "foo/bar"})
        assert (unknown["error"]["code"], unknown["error"]["message"]) == (-32601, "Method not found")
        empty = await session.told({"jsonrpc": "2.0", "id": 1, "method": ""})
        assert empty["error"] == {"code": -32600, "message": "Method cannot be empty"}
        blank = await session.told({"jsonrpc": "2.0", "id": 1, "method": " tools/list"})
        assert blank["error"] == {"code": -32600, "message": "Method name cannot start or end with whitespace"}
        assert await session.told({"jsonrpc": "2.0", "id": 80, "result": {}}) is None
    assert files.calls == []


NO_MESSAGES: list[tuple[str, int | str | None, int]] = [
    ('[{"jsonrpc":"2.0","id":79,"method":"tools/list"}]', None, -32600),
    ("[]", None, -32600),
    ("5", None, -32600),
    ("{bad json", None, -32700),
    ('"half', None, -32700),
    ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
    ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
    ('{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600),
    ('{"jsonrpc":"1.0","id":3,"method":"ping"}', 3, -32600),
    ('{"id":"three","method":"ping"}', "three", -32600),
    ('{"jsonrpc":"2.0","id":3}', 3, -32600),
    ('{"jsonrpc":"2.0","id":3,"method":5}', 3, -32600),
    ('{"jsonrpc":"2.0","id":3,"method":"tools/call","params":' + "[" * 50_000 + "]" * 50_000 + "}", None, -32600),
]


@requirement("FACE-5")
async def test_what_is_no_message_is_refused_with_its_id_and_the_session_goes_on() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        session = await Door(service, OLDER).open()
        for body, id, code in NO_MESSAGES:
            answer = await session.told(body.encode())
            assert (answer["id"], answer["error"]["code"]) == (id, code), body[:80]
            assert "pydantic" not in json.dumps(answer)
        assert (await session.told({"jsonrpc": "2.0", "id": 4, "method": "ping"}))["result"] == {}


@requirement("FACE-6")
async def test_arguments_are_bounded_in_depth_and_bytes_not_in_keys() -> None:
    deep: Any = "x"
    for _ in range(70):
        deep = [deep]
    many = {f"key{number}": number for number in range(1_001)}
    async with running_service(upstreams=[FileServer()]) as service:
        session = await Door(service, OLDER).open()
        nested = await session.told(call({"name": "files__fail", "arguments": {"a": deep}}))
        wide = await session.told(call({"name": "files__fail", "arguments": many}))
        large = await session.told(call({"name": "files__fail", "arguments": {"a": "x" * 9_000_000}}))
        too_large = await service.http.post(PATH, content=b"x" * (11 << 20), headers=ACCEPT)
    assert nested["id"] == 7
    assert nested["result"]["structuredContent"]["error"] == "ARGS_INVALID"
    for answer in (wide, large):
        assert answer["result"]["content"][0]["text"] == "no such luck"
    assert too_large.status_code == 413


@requirement("FACE-4")
async def test_nothing_but_tools_is_served_before_the_handshake() -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "prompts/list", "params": {}}
    async with running_service(upstreams=[FileServer()]) as service:
        refused = await service.http.post(PATH, json=listing, headers=ACCEPT)
    assert refused.status_code == 400


@requirement("ROUTE-8")
@ERAS
async def test_long_lists_come_in_pages_that_are_all_of_it(mode: str) -> None:
    tools = [{"name": f"t{number:05}", "inputSchema": {"type": "object"}} for number in range(2 * PAGE + 300)]
    async with (
        running_service(upstreams=[StubUpstream(tools, name="many")]) as service,
        mcp_client(service, mode, path=PATH) as client,
    ):
        names: list[str] = []
        page = await client.list_tools()
        while True:
            names += [tool.name for tool in page.tools]
            if page.next_cursor is None:
                break
            page = await client.list_tools(cursor=page.next_cursor)
        with pytest.raises(MCPError) as refused:
            await client.list_tools(cursor="p2")
    assert names == [f"many__t{number:05}" for number in range(2 * PAGE + 300)]
    assert refused.value.code == -32602


@pytest.mark.parametrize(
    "odd",
    [
        {"inputSchema": {}},
        {"inputSchema": {"type": "string"}},
        {"inputSchema": {"type": "object", "properties": {"a": True}}},
        {"inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
        {"inputSchema": {"type": "object"}, "annotations": {"title": 5}},
        {"inputSchema": {"type": "object", "required": "a"}},
    ],
)
@ERAS
@requirement("ROUTE-10")
async def test_one_odd_definition_costs_the_list_nothing(mode: str, odd: dict[str, Any]) -> None:
    server = StubUpstream([{"name": "odd", **odd}, {"name": "plain", "inputSchema": {"type": "object"}}], name="s")
    async with running_service(upstreams=[server]) as service, mcp_client(service, mode, path=PATH) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["s__odd", "s__plain"]


WHOLE_TOOL = {
    "name": "show",
    "title": "Show it",
    "description": "Shows it.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "title": "Show"},
    "icons": [{"src": "https://example.com/show.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    "execution": {"taskSupport": "optional"},
    "_meta": {
        "ui": {"resourceUri": "ui://w/app.html", "visibility": ["model", "app"]},
        "ui/resourceUri": "ui://w/app.html",
        "openai/outputTemplate": "ui://widget/x",
        "com.example/theirs": {"a": [1]},
        "wicketgate/source": "ours",
    },
}


@ERAS
@requirement("ROUTE-47", "ROUTE-49")
async def test_a_tool_keeps_its_icons_its_meta_and_the_hints_that_say_no(mode: str) -> None:
    server = StubUpstream([WHOLE_TOOL], name="my_git")
    async with running_service(upstreams=[server]) as service, mcp_client(service, mode, path=PATH) as client:
        (shown,) = (await client.list_tools()).tools
    tool = shown.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert tool["annotations"] == WHOLE_TOOL["annotations"]
    assert (tool["icons"], tool["title"]) == (WHOLE_TOOL["icons"], "Show it")
    assert tool["_meta"] == {
        "ui": {"resourceUri": "ui://my.git/w/app.html", "visibility": ["model", "app"]},
        "ui/resourceUri": "ui://my.git/w/app.html",
        "openai/outputTemplate": "ui://my.git/widget/x",
        "com.example/theirs": {"a": [1]},
    }
    if mode == OLD:  # the newer era has no such field
        assert tool["execution"] == {"taskSupport": "optional"}


@pytest.mark.parametrize(
    "odd", [{"icons": "none"}, {"icons": [{"src": 5}]}, {"annotations": {"title": 5}}, {"execution": 1}]
)
@requirement("ROUTE-10", "ROUTE-49")
async def test_one_odd_field_of_a_tool_costs_nothing_but_itself(odd: dict[str, Any]) -> None:
    schema = {"type": "object", "required": ["a"]}
    tool = {"name": "odd", "inputSchema": schema, "_meta": {"theirs": 1}, **odd}
    server = StubUpstream([tool], name="s")
    async with running_service(upstreams=[server]) as service, mcp_client(service, OLD, path=PATH) as client:
        (shown,) = (await client.list_tools()).tools
    assert (shown.input_schema, shown.meta) == (schema, {"theirs": 1})
    assert (shown.icons, shown.annotations, shown.execution) == (None, None, None)


@ERAS
@requirement("ROUTE-12")
async def test_a_result_comes_as_the_server_gave_it_fitted_to_the_era(mode: str) -> None:
    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {
            "content": [{"type": "text", "text": "[1]", "annotations": {"priority": 1}}],
            "structuredContent": [1],
            "_meta": {"theirs": 1, "io.modelcontextprotocol/serverInfo": {"name": "secret", "version": "1"}},
        }

    server = StubUpstream([{"name": "list", "inputSchema": {"type": "object"}}], answer, name="s")
    async with running_service(upstreams=[server]) as service, mcp_client(service, mode, path=PATH) as client:
        result = await client.call_tool("s__list", {})
    assert (result.is_error, result.content[0].text) == (False, "[1]")  # type: ignore[union-attr]
    assert result.structured_content == ([1] if mode == NEW else None)
    assert (result.meta or {})["theirs"] == 1
    assert "secret" not in result.model_dump_json()


async def sleepy(service: RunningService, client: Client, files: FileServer, calls: int) -> None:
    running = [asyncio.create_task(client.call_tool("files__slow", {})) for _ in range(calls)]
    async with asyncio.timeout(BOUND_S):
        await until(lambda: files.slow_running >= calls)
        # With all of them still waiting, another tool, another list and another client are served.
        quick = await client.call_tool("files__read_file", {"path": "a"})
        async with mcp_client(service, OLD, path=PATH) as other:
            assert not (await other.call_tool("files__read_file", {"path": "b"})).is_error
        assert not quick.is_error
        assert len((await client.list_tools()).tools) == 4
        assert files.slow_at_once == calls
        files.release.set()
        assert not any(result.is_error for result in await asyncio.gather(*running))


@ERAS
@requirement("FACE-14", "UP-17")
async def test_no_call_waits_for_another(mode: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files]) as service, mcp_client(service, mode, path=PATH) as client:
        await sleepy(service, client, files, 20)


@requirement("FACE-7")
async def test_our_own_version_is_negotiated_whatever_the_servers_speak() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        async with mcp_client(service, OLD, path=PATH) as old:
            assert old.protocol_version == "2025-11-25"
            assert old.server_capabilities.tools == t.ToolsCapability(list_changed=True)
            assert old.server_capabilities.logging is not None
        ancient = json.loads(json.dumps(INITIALIZE).replace("2025-11-25", "1999-01-01"))
        answer = await service.http.post(PATH, json=ancient, headers=ACCEPT)
        assert '"protocolVersion":"2025-11-25"' in answer.text


class GrowingServer(FileServer):
    changed: Callable[[str], None]

    async def supervise(self, changed: Callable[[str], None]) -> None:
        self.changed = changed
        await super().supervise(changed)

    def grow(self) -> None:
        self.tools.append({"name": f"new{len(self.tools)}", "inputSchema": {"type": "object"}})
        self.changed(self.name)


@ERAS
@requirement("FACE-8", "OPS-7")
async def test_a_change_of_the_list_is_announced_to_clients_of_either_era(mode: str) -> None:
    files = GrowingServer()
    heard = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, t.ToolListChangedNotification):
            heard.set()

    async with (
        running_service(upstreams=[files]) as service,
        mcp_client(service, mode, path=PATH, client={"message_handler": on_message}) as client,
    ):
        await client.list_tools()

        async def listen(ready: asyncio.Event) -> None:
            async with client.listen(tools_list_changed=True) as subscription:
                ready.set()
                async for _ in subscription:
                    heard.set()

        def grown() -> bool:
            files.grow()
            return heard.is_set()

        ready = asyncio.Event()
        listening = asyncio.create_task(listen(ready)) if mode == NEW else None
        async with asyncio.timeout(BOUND_S):
            if listening:
                await ready.wait()
            # The GET stream of the handshake era opens at some time after the handshake.
            await until(grown, pause_s=0.05)
        if listening:
            listening.cancel()
        names = [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]
    assert "files__new4" in names


@ERAS
@pytest.mark.parametrize("face", ["transparent", "namespaced"])
@requirement("FACE-8", "OPS-7")
async def test_other_access_rules_are_announced_though_the_tools_are_the_same(mode: str, face: str) -> None:
    heard = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, t.ToolListChangedNotification):
            heard.set()

    async with (
        running_service(upstreams=[FileServer()]) as service,
        mcp_client(service, mode, READER_KEY, path=f"/mcp/{face}", client={"message_handler": on_message}) as client,
        AsyncExitStack() as streams,
        asyncio.timeout(BOUND_S),
    ):
        before = (await client.list_tools()).tools
        if mode == NEW:
            subscription = await streams.enter_async_context(client.listen(tools_list_changed=True))
            await apply_rules(service, [HIDDEN_FROM_THE_READER])
            assert isinstance(await anext(aiter(subscription)), ToolsListChanged)
        while mode != NEW and not heard.is_set():
            # The GET stream of the handshake era opens at some time after the handshake.
            for rules in ([], [HIDDEN_FROM_THE_READER]):
                await apply_rules(service, rules)
            with suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), 0.05)
        assert (await client.list_tools(cache_mode="bypass")).tools != before


@requirement("OPS-7")
async def test_other_access_rules_are_not_announced_where_everybody_is_shown_the_same() -> None:
    async with (
        running_service(upstreams=[FileServer()]) as service,
        mcp_client(service, NEW, path="/mcp/registry") as registry,
        mcp_client(service, NEW, path=PATH) as namespaced,
        registry.listen(tools_list_changed=True) as silent,
        namespaced.listen(tools_list_changed=True) as subscription,
        asyncio.timeout(BOUND_S),
    ):
        await apply_rules(service, [HIDDEN_FROM_THE_READER])
        await anext(aiter(subscription))
        service.app.state.gate.drain.begin(0.0)  # ends the streams: what was announced came before
        assert [event async for event in silent] == []


HIDDEN_FROM_THE_READER = {"match": "files:*", "when": "actor == 'reader'", "effect": "deny"}


async def apply_rules(service: RunningService, rules: list[dict[str, str]]) -> None:
    await service.app.state.gate.apply(Settings.model_validate({"access": rules}))


@ERAS
@requirement("ROUTE-9", "UP-67")
async def test_a_list_says_which_servers_are_missing_and_a_call_to_one_says_why(mode: str) -> None:
    away = StubUpstream([], name="away")
    away.status = UpstreamStatus("down", "the command was not found", detail="for the operator alone")
    async with (
        running_service(upstreams=[FileServer(), away]) as service,
        mcp_client(service, mode, path=PATH) as client,
    ):
        listed = await client.list_tools()
        assert len(listed.tools) == 4
        assert (listed.meta or {})[MISSING_KEY] == {"away": "the command was not found"}
        with pytest.raises(MCPError) as refused:
            await client.call_tool("away__x", {})
    assert refused.value.code == (-31004 if mode == NEW else -32004)
    assert refused.value.message == "Server 'away' is unavailable: the command was not found"


@requirement("FACE-7")
async def test_what_no_server_has_is_not_declared() -> None:
    async with running_service(upstreams=[FileServer()]) as service, mcp_client(service, OLD, path=PATH) as client:
        assert client.server_capabilities.resources is None
        assert client.server_capabilities.prompts is None
        assert client.server_capabilities.completions is None
        with pytest.raises(MCPError) as refused:
            await client.read_resource("files+demo://x")
    assert refused.value.code == -32601


@requirement("FACE-7")
async def test_a_change_of_roots_is_taken_and_told_to_no_server_since_none_was_promised_roots() -> None:
    files = FileServer()
    async with running_service(upstreams=[files]) as service:
        session = await Door(service, OLDER).open()
        assert await session.told({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}) is None
        assert (await session.told({"jsonrpc": "2.0", "id": 1, "method": "ping"}))["result"] == {}
    assert files.calls == []


@requirement("FACE-2", "ROUTE-11")
async def test_what_the_newer_era_has_not_is_not_found_whatever_it_is_sent_with() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}
    async with running_service(upstreams=[FileServer()]) as service:
        for method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel", "ping"):
            answer = await service.http.post(
                PATH,
                json={"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}},
                headers={**ACCEPT, "Mcp-Protocol-Version": NEW, "Mcp-Method": method},
            )
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601), method


@requirement("FACE-15")
async def test_one_actor_cannot_take_all_listening_streams() -> None:
    settings = {"mcp": {"max_streams_per_actor": 1}}
    async with (
        running_service(upstreams=[FileServer()], settings=settings) as service,
        mcp_client(service, NEW, path=PATH) as client,
        client.listen(tools_list_changed=True),
    ):
        with pytest.raises(MCPError, match="Too many open streams"):
            async with client.listen(tools_list_changed=True):
                pass
        async with mcp_client(service, NEW, READER_KEY, path=PATH) as other, other.listen(tools_list_changed=True):
            pass
