"""Frequent requests of MCP clients are answered past the SDK's server, and nobody can tell: the same requests go both
ways here."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.test_mcp_door import INITIALIZE
from tests.support.door import ERAS, META, NEWER, OLDER, WAYS, Door, Message
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, OTHER_KEY, TOOLS, FileServer, RunningService, running_service
from tests.support.until import until
from tests.support.wire_client import messages_in
from wicketgate.ports import CallContext

OF_ONE_WAY = {"content-type", "content-length", "transfer-encoding", "cache-control", "x-accel-buffering", "connection"}
OF_ONE_ANSWER = {"date", "mcp-session-id"}


class OddFiles(FileServer):
    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if name == "read_file" and arguments["path"] == "odd":
            picture = {"type": "image", "data": "AA==", "mimeType": "image/png", "unknown": 1}
            return {"content": [picture, {"type": "text", "text": "ü", "annotations": {"audience": ["user"]}}]}
        return await super()._answer(name, arguments, context)


@asynccontextmanager
async def both_ways(*, settings: Mapping[str, Any] | None = None) -> AsyncIterator[list[RunningService]]:
    async with (
        running_service(upstreams=[OddFiles()], settings={**(settings or {}), "mcp": {"direct": True}}) as direct,
        running_service(upstreams=[OddFiles()], settings={**(settings or {}), "mcp": {"direct": False}}) as by_sdk,
    ):
        yield [direct, by_sdk]


def told(answer: httpx.Response) -> tuple[Any, ...]:
    """The message to the client of *answer*, whatever the way."""
    headers = {key: value for key, value in answer.headers.items() if key not in OF_ONE_WAY | OF_ONE_ANSWER}
    # The SDK refuses some headers in plain text.
    said = messages_in(answer) if "content-type" in answer.headers and answer.content else answer.text
    return answer.status_code, said, headers, "mcp-session-id" in answer.headers


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("namespaced", "files__read_file", {"path": "a ü"}),
    ("namespaced", "files__read_file", {"path": "odd"}),
    ("namespaced", "files__read_file", {"path": 1}),
    ("namespaced", "files__read_file", {}),
    ("namespaced", "files__fail", {}),
    ("namespaced", "files__boom", {}),
    ("namespaced", "files__nothing", {}),
    ("namespaced", "nothing", {}),
    ("gateway", "tool_browse", {"query": "read a file"}),
    ("gateway", "tool_browse", {}),
    ("gateway", "tool_execute", {"tool_id": "files:read_file", "args": {"path": "a"}}),
    ("gateway", "tool_execute", {"tool_id": "files:read_file", "args": {"path": "odd"}}),
    ("gateway", "tool_execute", {"tool_id": "files:fail"}),
    ("gateway", "tool_execute", {"tool_id": "files:boom"}),
    ("gateway", "tool_view", {"handle": "text:x", "selector": {}}),
    ("gateway", "nothing", {}),
    ("transparent", "read_file", {"path": "a"}),
    ("registry", "tools.browse", {"query": "file"}),
]


DECLARED: list[dict[str, Any]] = [
    {},
    {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}, "sampling": {}},
    {"roots": {}, "tasks": {"list": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
]


@requirement("FACE-135", "FACE-136", "FACE-143")
@ERAS
@pytest.mark.parametrize("can", DECLARED, ids=["nothing", "answers", "tasks"])
async def test_a_client_is_told_the_same_on_both_ways(era: str, can: dict[str, Any]) -> None:
    async with both_ways() as services:
        for face, name, arguments in CALLS:
            answers = [
                await (await Door(service, era, face).open(**can)).call(name, **arguments) for service in services
            ]
            assert told(answers[0]) == told(answers[1]), (face, name, arguments)
        for face in ("namespaced", "gateway", "transparent", "registry"):
            for params in ({}, {"cursor": "nothing"}):
                doors = [await Door(service, era, face).open(**can) for service in services]
                answers = [await door.ask("tools/list", params) for door in doors]
                assert told(answers[0]) == told(answers[1]), (face, params)
                again = [await door.ask("tools/list", params) for door in doors]
                assert told(again[0]) == told(answers[0])
        answers = [await (await Door(service, era).open()).ask("ping", id="p") for service in services]
        assert told(answers[0]) == told(answers[1])


CLIENT: Message = {"name": "t", "version": "1"}
PICTURE: Message = {"src": "https://a.example/x.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
METAS: list[Any] = [{"mine/x": 1}, {"progressToken": 1}, [], None]
VERSIONS: list[Any] = ["2024-11-05", "2025-03-26", "2025-06-18", OLDER, NEWER, "2030-01-01", "", 1]
CLIENTS: list[Any] = [
    CLIENT,
    {**CLIENT, "title": "T", "description": "d", "websiteUrl": "https://a.example", "more": 1, "icons": [PICTURE]},
    {**CLIENT, "icons": [{**PICTURE, "theme": "red"}]},
    {"name": "t"},
    {**CLIENT, "name": 1},
    {**CLIENT, "name": "ü" * 200},
    None,
]
ABILITIES: list[Any] = [*DECLARED, {"elicitation": {}}, {"roots": {"listChanged": "yes"}}, {"sampling": 1}, [], None]


@requirement("FACE-240", "FACE-241", "FACE-242")
async def test_a_session_is_opened_alike_on_both_ways(by_the_sdk: list[str]) -> None:
    usual = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": CLIENT}
    params: list[Any] = [
        *({**usual, "protocolVersion": version} for version in VERSIONS),
        *({**usual, "clientInfo": client} for client in CLIENTS),
        *({**usual, "capabilities": can} for can in ABILITIES),
        *({key: value for key, value in usual.items() if key != left_out} for left_out in usual),
        *({**usual, "_meta": meta} for meta in METAS),
        {**usual, "unheard": 1},
        {**usual, "cursor": "x"},
        [],
        None,
    ]
    async with both_ways() as services:
        for face in ("namespaced", "gateway", "transparent", "registry"):
            doors = [Door(service, OLDER, face) for service in services]
            for each in params if face == "gateway" else params[:8]:
                answers = [
                    await door.post({"jsonrpc": "2.0", "id": "o", "method": "initialize", "params": each})
                    for door in doors
                ]
                assert told(answers[0]) == told(answers[1]), (face, each)
                sessions = [door.session_of(answer) for door, answer in zip(doors, answers, strict=True)]
                assert sessions[0] == sessions[1], (face, each)
        # What was compared did go two ways.
        by_the_sdk.clear()
        for door in doors:
            assert (await door.post(INITIALIZE)).headers["content-type"] == "application/json"
        assert by_the_sdk == ["initialize"]


_openings = st.fixed_dictionaries(
    {
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"]),
        "method": st.sampled_from(["initialize", "initialize", "notifications/initialized"]),
    },
    optional={"id": st.sampled_from([1, "a", None, True]), "more": st.just(1)},
)
_of_openings = st.fixed_dictionaries(
    {},
    optional={
        "protocolVersion": st.sampled_from(VERSIONS),
        "capabilities": st.sampled_from(ABILITIES),
        "clientInfo": st.sampled_from(CLIENTS),
        "_meta": st.sampled_from([{}, {"mine/x": 1}, {"progressToken": 1}, None]),
        "name": st.just("x"),
    },
)


@requirement("FACE-240", "FACE-241", "FACE-242", "FACE-214")
async def test_any_opening_is_answered_alike_on_both_ways() -> None:
    seen: list[tuple[bool, Message, Mapping[str, str]]] = []

    @given(st.booleans(), _openings, _of_openings, _headers)
    def collect(within: bool, message: Message, params: Message, headers: Mapping[str, str]) -> None:
        usual = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": CLIENT}
        whole = {**usual, **params} if message["method"] == "initialize" else params
        seen.append((within, {**message, "params": whole}, headers))

    await asyncio.to_thread(collect)
    async with both_ways() as services:
        opened = [await Door(service, OLDER).open() for service in services]
        for within, message, headers in seen:
            doors = opened if within else [door.without_session() for door in opened]
            answers = [await door.post(message, **headers) for door in doors]
            assert told(answers[0]) == told(answers[1]), (within, message, headers)
            if not within:
                sessions = [door.session_of(answer) for door, answer in zip(doors, answers, strict=True)]
                assert sessions[0] == sessions[1], (message, headers)


@requirement("FACE-135", "FACE-136", "FACE-139")
async def test_an_answer_in_a_session_is_json_and_needs_nothing_of_the_sdk(by_the_sdk: list[str]) -> None:
    async with both_ways() as services:
        for service in services:
            answer = await (await Door(service, OLDER).open()).call("files__read_file", path="a")
            assert answer.headers["content-type"] == "application/json"
    assert by_the_sdk == ["initialize", "tools/call"]


_meta = st.dictionaries(
    st.sampled_from(["progressToken", "mine/x", "traceparent", "wicketgate/session", "io.modelcontextprotocol/x"]),
    st.sampled_from([1, "a", None, {"b": [1]}]),
    max_size=2,
)
_arguments: st.SearchStrategy[Any] = st.sampled_from(
    [{"path": "a"}, {"path": None}, {}, None, [], {"path": "a", "more": 2**70}, {"path": 1.5}]
)
_message = st.fixed_dictionaries(
    {
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"]),
        "id": st.sampled_from([1, "a", "1", 2**60, -1, None, 1.5, True]),
        "method": st.sampled_from(["tools/call", "tools/call", "tools/list", "ping", "prompts/list", "nothing", "a/b"]),
    },
    optional={"more": st.just(1)},
)
_params = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["files__read_file", "files__read_file", "files__fail", "nothing", "", 1]),
        "arguments": _arguments,
        "cursor": st.sampled_from(["", "x"]),
        "task": st.just({}),
        "requestState": st.just("x"),
    },
)
_headers = st.dictionaries(
    st.sampled_from(["Accept", "Content-Type", "Mcp-Method", "Mcp-Name", "MCP-Protocol-Version", "Mcp-Param-X"]),
    st.sampled_from(["application/json", "*/*", "tools/call", "nothing", "files__fail", OLDER, NEWER, "2024-11-05"]),
    max_size=1,
)


@requirement("FACE-135", "FACE-143")
@pytest.mark.parametrize("can", DECLARED[:2], ids=["nothing", "answers"])
async def test_any_request_is_answered_alike_on_both_ways(can: dict[str, Any]) -> None:
    seen: list[tuple[str, Message, Message, Mapping[str, str]]] = []

    @given(st.sampled_from([NEWER, OLDER]), _message, _params, _meta, _headers)
    def collect(era: str, message: Message, params: Message, meta: Message, headers: Mapping[str, str]) -> None:
        own = {**META, "io.modelcontextprotocol/clientCapabilities": can} if era == NEWER else {}
        seen.append((era, message, {**params, "_meta": {**own, **meta}}, headers))

    await asyncio.to_thread(collect)
    async with both_ways() as services:
        doors = {era: [await Door(service, era).open(**can) for service in services] for era in (NEWER, OLDER)}
        for era, message, params, headers in seen:
            sent = {**message, "params": params}
            if era == NEWER:
                named = {"Mcp-Name": str(params["name"])} if "name" in params else {}
                headers = {"Mcp-Method": message["method"], **named, **headers}
            answers = [await door.post(sent, **headers) for door in doors[era]]
            assert told(answers[0]) == told(answers[1]), (era, sent, headers)


@requirement("FACE-137", "FACE-3")
@WAYS
async def test_a_session_is_nothing_to_another_actor(direct: bool) -> None:
    async with running_service(upstreams=[FileServer()], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open()
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await door.post(message, Authorization=f"Bearer {OTHER_KEY}")).status_code == 404
        assert (await door.post(message)).status_code == 200


async def running(files: FileServer, number: int = 1) -> None:
    async with asyncio.timeout(BOUND_S):
        while files.slow_running < number:
            await asyncio.sleep(0)


@requirement("FACE-138", "FACE-13")
@WAYS
@pytest.mark.parametrize(("id", "cancelled"), [("7", 7), (0, 0), ("0", "0")])
async def test_a_cancelled_call_of_a_session_ends_at_its_server_whatever_its_id(
    direct: bool, id: int | str, cancelled: int | str
) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open()
        call = asyncio.create_task(door.call("files__slow", id=id))
        await running(files)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": cancelled}}
        assert (await door.post(cancel)).status_code == 202
        answer = await call
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        (message,) = messages_in(answer)
        assert (answer.status_code, message["id"], message["error"]["code"]) == (200, id, -32800)
        assert (await door.ask("ping")).status_code == 200


@requirement("FACE-138")
async def test_a_call_ends_with_its_session() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": True}}) as service:
        door = await Door(service, OLDER).open()
        call = asyncio.create_task(door.call("files__slow"))
        await running(files)
        assert (await service.http.delete(door.path, headers=door.headers)).status_code == 200
        assert "session has ended" in messages_in(await call)[0]["error"]["message"]
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()


@requirement("FACE-139")
@ERAS
async def test_the_connection_of_a_slow_call_stays_in_use(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.mcp.answer.PING_S", 0.05)
    files = FileServer()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": True}}) as service:
        door = await Door(service, era).open()
        params: Message = {"name": "files__slow", "_meta": META if era == NEWER else {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {**door.headers, "Mcp-Method": "tools/call", "Mcp-Name": "files__slow"}
        async with (
            asyncio.timeout(BOUND_S),
            service.http.stream("POST", door.path, json=message, headers=headers) as answer,
        ):
            assert answer.headers["content-type"] == "text/event-stream"
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith(": ping")
            files.release.set()
            rest = [line async for line in lines]
    (event,) = [json.loads(line.removeprefix("data: ")) for line in rest if line.startswith("data: ")]
    assert event["result"]["content"] == [{"type": "text", "text": "at last"}]


@requirement("FACE-13", "CHAT-72", "ACCESS-37")
@ERAS
@WAYS
async def test_a_call_ends_with_its_place_when_its_client_hangs_up(era: str, direct: bool) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": direct}}) as service:
        call = asyncio.create_task((await Door(service, era).open()).call("files__slow"))
        await running(files)
        calls = service.app.state.gate.shared.limits.calls
        assert calls.held >= 1
        call.cancel()
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
            await until(lambda: not calls.held)


@requirement("FACE-135")
async def test_a_tool_whose_arguments_stand_in_headers_is_checked_against_them() -> None:
    region = {"type": "string", "x-mcp-header": "Region"}
    schema = {"type": "object", "properties": {"path": region}}
    files = FileServer()
    files.tools = [{**TOOLS[0], "inputSchema": schema}]
    async with running_service(upstreams=[files], settings={"mcp": {"direct": True}}) as service:
        answer = await Door(service, NEWER).call("files__read_file", path="a")
    assert answer.status_code == 400
    assert "Mcp-Param-Region" in answer.json()["error"]["message"]


@requirement("CHAT-21")
@WAYS
async def test_a_body_that_grows_over_the_limit_is_refused_in_the_shape_of_every_path(direct: bool) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b'{"a":"' + b"x" * 1_000

    settings = {"server": {"max_body_bytes": 16_384}, "mcp": {"direct": direct}}
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        door = Door(service, NEWER)
        answers = [
            await service.http.post(path, content=endless(), headers={**door.headers, "Mcp-Method": "tools/list"})
            for path in (door.path, "/engine/chat")
        ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(413, "payload_too_large")] * 2
