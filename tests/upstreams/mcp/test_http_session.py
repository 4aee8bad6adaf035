"""A session of the handshake era over HTTP, and the older SSE transport, against servers with a script."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, connected, context, over
from tests.support.until import until
from wicketgate.errors import UpstreamError
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp.http import http_transport, reopening_pause_s
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

EVENTS = {"content-type": "text/event-stream"}
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}

Answer = Callable[["Server", Mapping[str, Any]], Awaitable[Reply]]


def event(message: Mapping[str, Any], *, event_id: str = "") -> bytes:
    first = f"id: {event_id}\n" if event_id else ""
    return f"{first}data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode()


def result(message: Mapping[str, Any], value: Any) -> Reply:
    return Reply(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode())


@dataclass
class Server:
    """*call* answers a call, *stream* a GET; the rest of the session is as it should be."""

    call: Answer
    stream: Callable[["Server", Seen], Awaitable[Reply]] | None = None
    called: asyncio.Event = field(default_factory=asyncio.Event)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    said: asyncio.Event = field(default_factory=asyncio.Event)
    deleted: list[str] = field(default_factory=list)

    async def __call__(self, seen: Seen) -> Reply:
        if seen.method == "DELETE":
            self.deleted.append(seen.headers["mcp-session-id"])
            return Reply()
        if seen.method == "GET":
            return Reply(status=405) if self.stream is None else await self.stream(self, seen)
        message = json.loads(seen.body)
        self.messages.append(message)
        match message.get("method"):
            case "initialize":
                reply = result(message, INITIALIZED)
                return Reply(reply.body, headers={**reply.headers, "mcp-session-id": "s-1"})
            case "tools/call":
                self.called.set()
                return await self.call(self, message)
            case "ping":
                return result(message, {})
        assert seen.headers["mcp-session-id"] == "s-1"
        self.said.set()
        return Reply(status=202)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[McpServerUpstream]:
    async with HttpService(server) as service, asyncio.timeout(BOUND_S):
        upstream = over(partial(http_transport, "stub", f"{service.url}/mcp", {}, outgoing=Outgoing()), "handshake")
        async with connected(upstream):
            yield upstream


@requirement("UP-38")
async def test_a_stream_that_breaks_off_is_resumed_after_its_last_event() -> None:
    asked: list[str] = []

    async def call(server: Server, message: Mapping[str, Any]) -> Reply:
        progress = {"progressToken": message["id"], "progress": 1}
        body = b"retry: 1\n\n" + event({"method": "notifications/progress", "params": progress}, event_id="e-1")
        return Reply(body, headers=EVENTS)

    async def stream(server: Server, seen: Seen) -> Reply:
        if "last-event-id" not in seen.headers:
            return Reply(status=405)
        asked.append(seen.headers["last-event-id"])
        return Reply(event({"id": server.messages[-1]["id"], "result": {"content": []}}), headers=EVENTS)

    caller = RecordingCaller()
    async with serving(Server(call, stream)) as upstream:
        assert await upstream.call_tool("x", {}, context(caller), 5) == {"content": []}
    assert asked == ["e-1"]
    assert caller.told == [("progress", 1, None, None)]


@requirement("UP-200")
async def test_calls_one_after_another_need_no_new_connections_where_streams_end_after_the_answer() -> None:
    ports: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = json.loads((await receive())["body"]) if scope["method"] == "POST" else {}
        headers = [(b"content-type", b"text/event-stream"), (b"mcp-session-id", b"s-1")]
        if "id" not in message:
            await send({"type": "http.response.start", "status": 202 if message else 405})
            await send({"type": "http.response.body"})
            return
        if message["method"] == "tools/call":
            ports.append(scope["client"][1])
        value = INITIALIZED if message["method"] == "initialize" else {"content": []}
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        answer = event({"id": message["id"], "result": value})
        await send({"type": "http.response.body", "body": answer, "more_body": True})
        await asyncio.sleep(0.01)  # the end is a packet of its own
        await send({"type": "http.response.body"})

    async with HttpService(app=app) as service, asyncio.timeout(BOUND_S):
        upstream = over(partial(http_transport, "stub", f"{service.url}/mcp", {}, outgoing=Outgoing()), "handshake")
        async with connected(upstream):
            for _ in range(20):
                await upstream.call_tool("x", {}, context(), 5)
                await asyncio.sleep(0.02)  # until the client has read the end too
    assert len(set(ports)) < len(ports)


@requirement("UP-38")
async def test_a_stream_that_can_never_be_resumed_to_its_end_is_given_up() -> None:
    opened: list[str] = []

    async def call(server: Server, message: Mapping[str, Any]) -> Reply:
        return Reply(b"retry: 1\nid: e-1\ndata:\n\n", headers=EVENTS)

    async def stream(server: Server, seen: Seen) -> Reply:
        if "last-event-id" not in seen.headers:
            return Reply(status=405)
        opened.append(seen.headers["last-event-id"])
        return Reply(b"retry: 1\n\n", headers=EVENTS)

    async with serving(Server(call, stream)) as upstream:
        with pytest.raises(UpstreamError, match="without an answer"):
            await upstream.call_tool("x", {}, context(), 5)
    assert opened == ["e-1", "e-1"]


@requirement("UP-41")
async def test_a_redirect_of_the_sessions_own_stream_moves_no_calls() -> None:
    looked: list[str] = []

    async def call(server: Server, message: Mapping[str, Any]) -> Reply:
        return result(message, {"content": []})

    async def stream(server: Server, seen: Seen) -> Reply:
        looked.append(seen.target)
        if seen.target == "/mcp":
            return Reply(status=302, headers={"location": "/docs"})
        return Reply(b"a page for people", headers={"content-type": "text/html"})

    server = Server(call, stream)
    async with HttpService(server) as service, asyncio.timeout(BOUND_S):
        upstream = over(partial(http_transport, "stub", f"{service.url}/mcp", {}, outgoing=Outgoing()), "handshake")
        async with connected(upstream):
            assert await upstream.call_tool("x", {}, context(), 5) == {"content": []}
    assert looked == ["/mcp", "/docs"]
    assert {seen.target for seen in service.seen if seen.method != "GET"} == {"/mcp"}


@requirement("FACE-13", "UP-13")
async def test_leaving_a_call_cancels_it_on_the_server_and_ending_the_session_deletes_it() -> None:
    async def call(server: Server, message: Mapping[str, Any]) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    server = Server(call)
    async with serving(server) as upstream:
        leaving = asyncio.create_task(upstream.call_tool("x", {}, context(), 5))
        await server.called.wait()
        server.said.clear()
        leaving.cancel()
        await server.said.wait()
        call_id = next(message["id"] for message in server.messages if message.get("method") == "tools/call")
        assert server.messages[-1]["method"] == "notifications/cancelled"
        assert server.messages[-1]["params"] == {"requestId": call_id}
        await asyncio.gather(leaving, return_exceptions=True)
        assert upstream.status.connections == 1
    assert server.deleted == ["s-1"]


@requirement("FACE-9", "FACE-11")
async def test_what_comes_on_the_sessions_own_stream_reaches_the_only_call_meanwhile() -> None:
    async def call(server: Server, message: Mapping[str, Any]) -> Reply:
        while not any("result" in each for each in server.messages):
            await server.said.wait()
            server.said.clear()
        return result(message, {"content": [], "answer": server.messages[-1]["result"]})

    async def stream(server: Server, seen: Seen) -> Reply:
        if server.called.is_set():
            await asyncio.Event().wait()
        await server.called.wait()
        log = {"method": "notifications/message", "params": {"level": "info", "data": 1}}
        return Reply(event(log) + event({"id": 5, "method": "elicitation/create", "params": {}}), headers=EVENTS)

    caller = RecordingCaller("now", {"action": "accept"})
    async with serving(Server(call, stream)) as upstream:
        answer = await upstream.call_tool("x", {}, context(caller), 5)
    assert answer["answer"] == {"action": "accept"}
    assert caller.told == [("log", "info", 1, None)]


@requirement("UP-3", "UP-5")
@pytest.mark.parametrize("status", [400, 401])
async def test_a_refused_call_costs_no_session_that_answers_a_ping(status: int) -> None:
    async def call(server: Server, message: Mapping[str, Any]) -> Reply:
        return Reply(b"bad session argument", status, {"content-type": "text/plain"})

    async def stream(server: Server, seen: Seen) -> Reply:
        return Reply(b"no such page", 404, {"content-type": "text/plain"})

    server = Server(call, stream)
    async with serving(server) as upstream:
        with pytest.raises(UpstreamError, match=f"HTTP status {status}"):
            await upstream.call_tool("x", {}, context(), 5)
        assert (upstream.status.phase, upstream.status.connections) == ("ready", 1)
    assert [message.get("method") for message in server.messages].count("ping") == 2


@requirement("UP-16")
async def test_a_server_that_never_stops_talking_in_a_call_is_read_more_slowly() -> None:
    async def call(server: Server, message: Mapping[str, Any]) -> Reply:
        pings = b"".join(event({"id": number, "method": "ping"}) for number in range(1_500))
        return Reply(pings + event({"id": message["id"], "result": {"content": []}}), headers=EVENTS)

    now = asyncio.get_running_loop().time
    server = Server(call)
    async with serving(server) as upstream:
        began = now()
        assert await upstream.call_tool("x", {}, context(), 10) == {"content": []}
        assert now() - began > 0.5
        # As many as may be under way at once are sent, however busy the machine is.
        await until(lambda: sum("result" in message for message in server.messages) >= 256)
    assert sum("result" in message for message in server.messages) <= 1_500


@requirement("UP-22")
async def test_a_place_for_messages_at_another_origin_is_not_used() -> None:
    place = b"event: endpoint\ndata: http://127.0.0.2:9/messages\n\n"
    async with HttpService(lambda seen: Reply(place, headers=EVENTS)) as service, asyncio.timeout(BOUND_S):
        transport = sse_transport("stub", f"{service.url}/sse", {}, lambda _: None, outgoing=Outgoing())
        with pytest.raises(Exception, match="another origin"):
            async with transport:
                pass
    assert [seen.method for seen in service.seen] == ["GET"]


@requirement("UP-200")
async def test_messages_whose_receipt_comes_in_pieces_need_no_new_connections() -> None:
    ports: list[int] = []
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            piece = b"event: endpoint\ndata: /messages\n\n"
            while True:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await answers.get()
        message = json.loads((await receive())["body"])
        if "id" in message:
            value = INITIALIZED if message["method"] == "initialize" else {"content": []}
            answers.put_nowait(event({"id": message["id"], "result": value}))
        ports.append(scope["client"][1])
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "more_body": True})
        await asyncio.sleep(0.01)  # the body is a packet of its own
        await send({"type": "http.response.body", "body": b"Accepted"})

    async with HttpService(app=app) as service, asyncio.timeout(BOUND_S):
        upstream = over(partial(sse_transport, "stub", f"{service.url}/sse", {}, outgoing=Outgoing()), "handshake")
        async with connected(upstream):
            for _ in range(20):
                await upstream.call_tool("x", {}, context(), 5)
                await asyncio.sleep(0.02)  # until the client has read the end too
    assert len(set(ports)) < len(ports)


@pytest.mark.parametrize("failures", [10, 1_024, 1_100, 10**9])
def test_a_stream_is_asked_for_again_after_a_bounded_pause_however_often_it_failed(failures: int) -> None:
    assert reopening_pause_s(0.5, 0) == 0.5
    assert reopening_pause_s(0.5, 2) == 2.0
    assert reopening_pause_s(0.5, failures) == 60.0
