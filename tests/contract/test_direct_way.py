"""Frequent requests of MCP clients are answered past the SDK's server, and nobody can tell: the same requests go both
ways here."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import mcp_direct
from app.mcp_live_sessions import LiveSessions
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, OTHER_KEY, TOOLS, FileServer, RunningService, running_service
from tests.support.wire_client import ACCEPT, messages_in
from wicketgate.faces.mcp.kept_sessions import IDLE_S
from wicketgate.ports import CallContext

NEWER, OLDER = "2026-07-28", "2025-11-25"
ERAS = pytest.mark.parametrize("era", [NEWER, OLDER])
WAYS = pytest.mark.parametrize("direct", [True, False], ids=["direct", "sdk"])
META = {
    "io.modelcontextprotocol/protocolVersion": NEWER,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}
OF_ONE_WAY = {"content-type", "content-length", "transfer-encoding", "cache-control", "x-accel-buffering", "connection"}
OF_ONE_ANSWER = {"date", "mcp-session-id"}

Message = dict[str, Any]


class Door:
    """One client at a face, in a session if its era has them."""

    def __init__(self, service: RunningService, era: str, face: str = "namespaced") -> None:
        self.service = service
        self.path = f"/mcp/{face}"
        self.era = era
        self.capabilities: Mapping[str, Any] = {}
        self.headers = {**ACCEPT, "MCP-Protocol-Version": era, "X-Correlation-ID": "corr-1"}

    async def open(self, **capabilities: Any) -> "Door":
        self.capabilities = capabilities
        if self.era == NEWER:
            return self
        params = {"protocolVersion": OLDER, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        opened = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert opened.status_code == 200, opened.text
        self.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202
        return self

    async def post(self, message: object, **headers: str) -> httpx.Response:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        async with asyncio.timeout(BOUND_S):
            return await self.service.http.post(self.path, content=content, headers={**self.headers, **headers})

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, id: int | str = 1) -> httpx.Response:
        asked = dict(params or {})
        named: dict[str, str] = {}
        if self.era == NEWER:
            named = {"Mcp-Method": method, **({"Mcp-Name": asked["name"]} if "name" in asked else {})}
            own = {**META, "io.modelcontextprotocol/clientCapabilities": self.capabilities}
            asked = {"_meta": own, **asked}
        return await self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": asked}, **named)

    async def call(self, name: str, id: int | str = 1, **arguments: Any) -> httpx.Response:
        return await self.ask("tools/call", {"name": name, "arguments": arguments}, id)


class Talking(FileServer):
    """``slow`` says something before it waits."""

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if name == "slow" and arguments.get("says"):
            for level in ("debug", "error"):
                await context.caller.log(level, {"text": "hä"}, "files")
        if name == "read_file" and arguments["path"] == "odd":
            picture = {"type": "image", "data": "AA==", "mimeType": "image/png", "unknown": 1}
            return {"content": [picture, {"type": "text", "text": "ü", "annotations": {"audience": ["user"]}}]}
        return await super()._answer(name, arguments, context)


@asynccontextmanager
async def both_ways(*, settings: Mapping[str, Any] | None = None) -> AsyncIterator[list[RunningService]]:
    async with (
        running_service(upstreams=[Talking()], settings={**(settings or {}), "mcp": {"direct": True}}) as direct,
        running_service(upstreams=[Talking()], settings={**(settings or {}), "mcp": {"direct": False}}) as by_sdk,
    ):
        yield [direct, by_sdk]


def told(answer: httpx.Response) -> tuple[Any, ...]:
    """The message to the client of *answer*, whatever the way."""
    headers = {key: value for key, value in answer.headers.items() if key not in OF_ONE_WAY | OF_ONE_ANSWER}
    # The SDK refuses some headers in plain text.
    said = messages_in(answer) if "content-type" in answer.headers else answer.text
    return answer.status_code, said, headers


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


@requirement("FACE-135", "FACE-136", "FACE-139")
async def test_an_answer_in_a_session_is_json_and_needs_nothing_of_the_sdk() -> None:
    async with both_ways() as services:
        kinds = []
        for service in services:
            answer = await (await Door(service, OLDER).open()).call("files__read_file", path="a")
            kinds.append(answer.headers["content-type"])
    assert kinds == ["application/json", "text/event-stream"]


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


class Watched(LiveSessions):
    """The sessions of the faces, which are renewed when the test says so."""

    made: list["Watched"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made.append(self)


@requirement("FACE-137")
@WAYS
async def test_a_session_that_is_used_for_calls_alone_does_not_lapse(
    direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = 0.0
    monkeypatch.setattr(Watched, "made", [], raising=False)
    monkeypatch.setattr("app.mcp_door.LiveSessions", Watched)
    monkeypatch.setattr("app.mcp_door.loop_time", lambda: time.monotonic() + ahead_s)
    monkeypatch.setattr("wicketgate.config.runtime.monotonic", lambda: time.monotonic() + ahead_s)
    async with running_service(upstreams=[FileServer()], settings={"mcp": {"direct": direct}}) as service:
        door, other = await Door(service, OLDER).open(), await Door(service, OLDER).open()
        for _ in range(4):
            ahead_s += IDLE_S / 2
            answer = await door.call("files__read_file", path="a")
            wanted = "application/json" if direct else "text/event-stream"
            assert (answer.status_code, answer.headers["content-type"]) == (200, wanted)
            for sessions in Watched.made:
                await sessions.renew()
        assert (await door.ask("ping")).status_code == 200
        assert (await other.ask("ping")).status_code == 404, "it was idle for long"


@requirement("FACE-137")
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


@requirement("FACE-138")
@WAYS
async def test_a_cancelled_call_of_a_session_ends_at_its_server(direct: bool) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open()
        call = asyncio.create_task(door.call("files__slow", id="7"))
        await running(files)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await door.post(cancel)).status_code == 202
        answer = await call
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        (message,) = messages_in(answer)
        assert (answer.status_code, message["id"], message["error"]["code"]) == (200, "7", -32800)
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
@WAYS
async def test_what_a_server_logs_comes_before_the_answer(direct: bool) -> None:
    files = Talking()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open()
        files.release.set()
        said = messages_in(await door.call("files__slow", says=True))
        assert [each.get("params", {}).get("level") for each in said] == ["debug", "error", None]
        assert said[0]["params"] == {"level": "debug", "data": {"text": "hä"}, "logger": "files"}
        assert said[-1]["result"]["content"][0]["text"] == "at last"
        assert (await door.ask("logging/setLevel", {"level": "warning"})).status_code == 200
        said = messages_in(await door.call("files__slow", says=True))
        assert [each.get("params", {}).get("level") for each in said] == ["error", None]


@requirement("FACE-139")
@ERAS
async def test_the_connection_of_a_slow_call_stays_in_use(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_direct, "PING_S", 0.05)
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


@requirement("FACE-13")
@ERAS
@WAYS
async def test_a_call_ends_when_its_client_hangs_up(era: str, direct: bool) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": direct}}) as service:
        call = asyncio.create_task((await Door(service, era).open()).call("files__slow"))
        await running(files)
        call.cancel()
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()


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
