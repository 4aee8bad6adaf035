"""Single requests over streamable HTTP, against a server with a script."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.credentials import Tokens
from tests.support.model_server import CUT, HOLD, RESET, ModelServer, Reply, json_reply
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, context
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp.call import Call, Gone, Malformed, OutgoingRequest, Refused
from wicketgate.upstreams.mcp.client import Connection
from wicketgate.upstreams.mcp.http import http_transport

OK = {"jsonrpc": "2.0", "id": "t-1", "result": {"content": []}}
REDIRECT = {"content-type": "text/plain"}


@asynccontextmanager
async def connection(
    *script: Reply, tokens: Tokens | None = None, max_bytes: int = 1_000_000
) -> AsyncIterator[tuple[Connection, ModelServer]]:
    async with ModelServer(*script) as server, asyncio.timeout(BOUND_S):
        opened = http_transport(
            "scripted",
            f"{server.base_url}/mcp",
            {"X-Ours": "1"},
            lambda _: None,
            outgoing=Outgoing(),
            credentials=tokens,
            max_answer_bytes=max_bytes,
        )
        async with opened as calls:
            yield calls, server


async def call(calls: Connection, caller: RecordingCaller | None = None, name: str = "x") -> dict[str, Any]:
    of = Call("t-1", context(caller) if caller is not None else context())
    return await calls.request(OutgoingRequest("tools/call", {"name": name}, {"mcp-method": "tools/call"}), of)


def event(message: Any) -> bytes:
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


def progress(number: int) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "t-1", "progress": number},
    }


async def test_calls_share_a_connection_and_carry_their_headers() -> None:
    async with connection(json_reply(200, OK), json_reply(200, OK)) as (calls, server):
        assert [await call(calls), await call(calls)] == [{"content": []}] * 2
    assert server.connections == 1
    headers = server.requests[0].headers
    assert (headers["x-ours"], headers["mcp-method"]) == ("1", "tools/call")
    assert headers["accept"] == "application/json, text/event-stream"
    assert server.requests[0].body == {"jsonrpc": "2.0", "id": "t-1", "method": "tools/call", "params": {"name": "x"}}


@requirement("FACE-9", "FACE-10", "UP-8")
async def test_what_a_stream_says_is_told_in_order_and_what_is_not_ours_is_passed_over() -> None:
    caller = RecordingCaller()
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": {"a": 1}}}
    stream = [
        b": hello\n\ndata: not json\n\n",
        event(progress(1)) + event(log),
        event({"jsonrpc": "2.0", "id": 5, "method": "roots/list"}),
        event({"jsonrpc": "2.0", "id": "another", "result": {"content": ["wrong"]}}),
        event(progress(2)),
        event(OK),
    ]
    async with connection(Reply(stream)) as (calls, _):
        assert await call(calls, caller) == {"content": []}
    assert caller.told == [("progress", 1, None, None), ("log", "info", {"a": 1}, None), ("progress", 2, None, None)]


@pytest.mark.parametrize("status", [200, 400, 404, 500])
async def test_a_refusal_in_json_rpc_counts_at_any_status(status: int) -> None:
    refusal = {"jsonrpc": "2.0", "id": "t-1", "error": {"code": -32602, "message": "no such tool"}}
    async with connection(json_reply(status, refusal)) as (calls, _):
        with pytest.raises(Refused) as refused:
            await call(calls)
    assert (refused.value.code, refused.value.message) == (-32602, "no such tool")


@requirement("UP-5")
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (json_reply(200, [1]), "not a valid MCP result"),
        (json_reply(200, {**OK, "id": "another"}), "not a valid MCP result"),
        (Reply([b"hello"], 200, {"content-type": "text/html"}), "answers with a web page"),
        (Reply([], 202, {}), "HTTP status 202"),
        (Reply([b"oops"], 503, {"content-type": "text/plain"}), "HTTP status 503"),
        (json_reply(401, {}), "wants a credential"),
        (json_reply(200, {**OK, "result": {"text": "x" * 2_000_000}}), "more than 1000000 bytes"),
        (Reply([event({**OK, "result": {"text": "x" * 2_000_000}})]), "more than 1000000 bytes"),
        (Reply([], 302, {**REDIRECT, "location": "/elsewhere"}), "redirects"),
        (Reply([], 307, {**REDIRECT, "location": "http://127.0.0.2:9/mcp"}), "redirects"),
        (Reply([], 307, {**REDIRECT, "location": "http://user:secret@[:bad"}), "redirects"),
        (Reply([b"<p>secret</p>"], 429, {"content-type": "text/html"}), "takes no more requests for now"),
    ],
)
async def test_what_is_no_answer_fails_the_call_with_words_of_ours(reply: Reply, reason: str) -> None:
    async with connection(reply) as (calls, _):
        with pytest.raises(Malformed, match=reason):
            await call(calls)


@requirement("UP-41")
async def test_a_redirect_within_the_origin_is_followed_and_remembered() -> None:
    away = Reply([], 307, {**REDIRECT, "location": "/v1/mcp/"})
    async with connection(away, json_reply(200, OK), json_reply(200, OK)) as (calls, server):
        await call(calls)
        await call(calls)
    assert [request.path for request in server.requests] == ["/v1/mcp", "/v1/mcp/", "/v1/mcp/"]


async def test_a_user_in_the_url_is_sent_as_http_does() -> None:
    async with ModelServer(json_reply(200, OK)) as server, asyncio.timeout(BOUND_S):
        url = f"{server.base_url}/mcp".replace("http://", "http://gate:s%20x@")
        async with http_transport("scripted", url, {}, lambda _: None, outgoing=Outgoing()) as calls:
            await call(calls)
    (request,) = server.requests
    assert request.headers["authorization"] == "Basic Z2F0ZTpzIHg="
    assert "gate" not in request.headers["host"]


@requirement("UP-55")
@pytest.mark.parametrize(
    "message", [{**OK, "id": "another"}, {**OK, "id": None}, {"jsonrpc": "2.0", "result": OK["result"]}]
)
async def test_a_result_without_the_id_of_the_call_is_not_its_answer(message: Any) -> None:
    async with connection(json_reply(200, message)) as (calls, _):
        with pytest.raises(Malformed):
            await call(calls)
    wanted = {**OK, "result": {"content": [], "wanted": True}}
    async with connection(Reply([event(message), event(wanted)])) as (calls, _):
        assert await call(calls) == wanted["result"]


async def test_an_error_of_a_server_that_could_not_read_the_id_is_the_answer() -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "cannot read"}}
    for reply in (json_reply(200, error), Reply([event(error)])):
        async with connection(reply) as (calls, _):
            with pytest.raises(Refused):
                await call(calls)


@requirement("UP-41")
@pytest.mark.parametrize(
    ("places", "sent"),
    [(["/v1/mcp"], 1), (["/a", "/v1/mcp"], 2), (["/a", "/b", "/a"], 3), (["/a", "/b", "/c", "/d"], 4)],
)
async def test_redirects_without_an_end_are_given_up(places: list[str], sent: int) -> None:
    away = [Reply([], 307, {**REDIRECT, "location": place}) for place in places]
    async with connection(*away, json_reply(200, OK)) as (calls, server):
        with pytest.raises(Malformed, match="again and again"):
            await call(calls)
        assert len(server.requests) == sent, "it goes to no place twice, and not on and on"
        # Nothing of it is remembered.
        await call(calls)
        assert server.requests[-1].path == "/v1/mcp"


@requirement("UP-23")
async def test_a_credential_that_is_refused_is_renewed_once_and_the_call_sent_again() -> None:
    tokens = Tokens()
    async with connection(json_reply(401, {}), json_reply(200, OK), tokens=tokens) as (calls, server):
        await call(calls)
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer t0", "Bearer t1"]
    async with connection(json_reply(401, {}), json_reply(401, {}), tokens=Tokens()) as (calls, server):
        with pytest.raises(Malformed, match="credentials"):
            await call(calls)
    assert len(server.requests) == 2


@requirement("UP-25")
@pytest.mark.parametrize(
    "reply",
    [
        Reply([CUT], silent=True),
        Reply([RESET], silent=True),
        Reply([b'{"jsonrpc"', CUT], 200, {"content-type": "application/json"}),
        Reply([event(progress(1)), CUT]),
        Reply([event(progress(1))]),
    ],
)
async def test_a_connection_that_is_lost_after_the_call_went_out_may_have_carried_it(reply: Reply) -> None:
    async with connection(reply) as (calls, server):
        with pytest.raises(Gone) as gone:
            await call(calls)
    assert gone.value.carried
    assert len(server.requests) == 1


@requirement("UP-25")
async def test_a_connection_that_was_never_made_carried_nothing() -> None:
    async with connection() as (calls, server):
        await server.__aexit__(None, None, None)
        with pytest.raises(Gone) as gone:
            await call(calls)
        assert not gone.value.carried
        await server.__aenter__()


@requirement("FACE-13")
async def test_leaving_a_call_closes_its_connection_and_no_other() -> None:
    async with connection(Reply([HOLD]), Reply([HOLD], silent=True)) as (calls, server):
        tasks = [asyncio.create_task(call(calls, name=name)) for name in "ab"]
        requests = {request.body["params"]["name"]: request for request in [await server.request(n) for n in (0, 1)]}
        tasks[0].cancel()
        await requests["a"].hung_up.wait()
        assert not requests["b"].hung_up.is_set()
        tasks[1].cancel()
        await requests["b"].hung_up.wait()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_calls_that_run_when_the_session_ends_are_read_to_their_end() -> None:
    go = asyncio.Event()
    async with ModelServer(Reply([go, event(OK)])) as server, asyncio.timeout(BOUND_S):
        url = f"{server.base_url}/mcp"
        async with http_transport("scripted", url, {}, lambda _: None, outgoing=Outgoing()) as calls:
            running = asyncio.create_task(call(calls))
            await server.request(0)
        go.set()
        assert await running == {"content": []}
