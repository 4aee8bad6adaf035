"""Handshake sessions over two gates that share a Redis: no request minds which of them it reaches."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import cycle
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp import types as t
from mcp.client.streamable_http import streamable_http_client

from tests.contract.replicas import SEAL
from tests.contract.test_mcp_offers import feature_server
from tests.contract.test_revocation import ADA, ADA_KEY, BOB, as_configured, by
from tests.support.asking_server import AskingServer, asking_server
from tests.support.feature_server import NOTE
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OTHER_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from tests.support.ways import number_of_way
from tests.support.wire_client import ACCEPT, messages_in
from wicketgate.config.settings import Settings
from wicketgate.ports import Upstream

pytestmark = pytest.mark.usefixtures("both_ways", "patient_stores")

PATH = "/mcp/namespaced"
VERSION = "2025-06-18"


class Raw:
    """One session, whose requests say by hand which gate they go to."""

    def __init__(self, key: str = KEY, **capabilities: Any) -> None:
        self.capabilities = capabilities
        self.headers = {**ACCEPT, "MCP-Protocol-Version": VERSION, **by(key)}

    @property
    def id(self) -> str:
        return self.headers["Mcp-Session-Id"]

    async def post(self, at: RunningService, **message: Any) -> httpx.Response:
        return await at.http.post(PATH, json={"jsonrpc": "2.0", **message}, headers=self.headers)

    async def open(self, at: RunningService, then: RunningService | None = None) -> "Raw":
        client = {"name": "t", "version": "1"}
        params = {"protocolVersion": VERSION, "capabilities": self.capabilities, "clientInfo": client}
        opened = await self.post(at, id=0, method="initialize", params=params)
        assert opened.status_code == 200, opened.text
        self.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        assert (await self.post(then or at, method="notifications/initialized")).status_code == 202
        return self

    async def call(self, at: RunningService, name: str, *, id: int = 9, **arguments: Any) -> dict[str, Any]:
        answer = await self.post(at, id=id, method="tools/call", params={"name": name, "arguments": arguments})
        assert answer.status_code == 200, answer.text
        return messages_in(answer)[-1]

    async def asked(self, at: RunningService, id: int) -> tuple[dict[str, Any], AsyncIterator[str]]:
        """Calls a tool that asks; returns its question, and what comes after."""
        params = {"name": "old__ask", "arguments": {}}
        body = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        request = at.http.build_request("POST", PATH, json=body, headers=self.headers)
        lines = (await at.http.send(request, stream=True)).aiter_lines()
        return await next_message(lines), lines

    @asynccontextmanager
    async def listening(self, at: RunningService) -> AsyncIterator[AsyncIterator[str]]:
        async with at.http.stream("GET", PATH, headers=self.headers) as stream:
            assert stream.status_code == 200
            yield stream.aiter_lines()


def messages(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]


async def next_message(lines: AsyncIterator[str]) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        async for line in lines:
            if found := messages(line):
                return found[0]
    raise AssertionError("the stream has ended")


def url_of(redis: RedisServer) -> str:
    """The sessions of one way are no sessions of the other."""
    return f"{redis.url}/{number_of_way()}"


def sealed(redis: RedisServer, **settings: Any) -> dict[str, Any]:
    """*settings* of gates that share the Redis."""
    auth = {**SEAL["auth"], **settings.get("auth", {})}
    return {"storage": {"url": url_of(redis)}, **settings, "auth": auth}


@asynccontextmanager
async def gates(
    redis: RedisServer, *upstreams: list[Upstream], **settings: Any
) -> AsyncIterator[tuple[RunningService, RunningService]]:
    """Two gates with upstreams of their own."""
    given = sealed(redis, **settings)
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(running_service(upstreams=own, settings=given))
            for own in (upstreams or ([FileServer()], [FileServer()]))
        ]
        yield first, second


@requirement("FACE-115", "FACE-3", "FACE-116")
async def test_a_session_goes_on_at_another_gate_for_its_actor_until_its_end(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.mcp.live_sessions.LOOK_AGAIN_S", 0.2)
    async with gates(redis) as (a, b):
        session = await Raw().open(a, then=b)
        for at in (b, a, b, a):
            done = await session.call(at, "files__read_file", path="x")
            assert done["result"]["content"][0]["text"] == "contents of x"
        stranger = Raw(OTHER_KEY)
        stranger.headers["Mcp-Session-Id"] = session.id
        for at in (a, b):
            answer = await stranger.post(at, id=1, method="tools/list")
            assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Session not found")
            # It belongs to one face.
            assert (await at.http.post("/mcp", json={}, headers=session.headers)).status_code in (400, 404)
        assert (await b.http.delete(PATH, headers=session.headers)).status_code == 200
        assert (await session.post(b, id=1, method="tools/list")).status_code == 404
        await until(partial(session.post, a, id=1, method="tools/list"), lambda answer: answer.status_code == 404)
        for at in (a, b):
            assert (await at.http.delete(PATH, headers=session.headers)).status_code == 404


@requirement("FACE-118")
async def test_a_question_of_one_gate_is_answered_at_the_other(redis: RedisServer) -> None:
    async with asking_server() as one, asking_server() as other, gates(redis, [one.upstream], [other.upstream]) as two:
        a, b = two
        session = await Raw(elicitation={}).open(a)
        question, of_a = await session.asked(a, 11)
        second, of_b = await session.asked(b, 12)
        assert question["id"] != second["id"]
        assert question["method"] == second["method"] == "elicitation/create"
        for at, asked, name in ((a, second, "Bob"), (b, question, "Ann")):
            result = {"action": "accept", "content": {"name": name}}
            assert (await session.post(at, id=asked["id"], result=result)).status_code == 202
        assert [said(await next_message(lines)) for lines in (of_a, of_b)] == ["accept Ann", "accept Bob"]
        # An answer that nobody waits for is taken all the same.
        assert (await session.post(b, id=4711, result={})).status_code == 202


def said(message: dict[str, Any]) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


@requirement("FACE-118", "FACE-13")
async def test_a_call_is_cancelled_from_the_other_gate_and_no_other(redis: RedisServer) -> None:
    ours, theirs = FileServer(), FileServer()
    async with gates(redis, [ours], [theirs]) as (a, b):
        session = await Raw().open(a)
        calls = [asyncio.create_task(session.call(at, "files__slow", id=id)) for at, id in ((a, 21), (b, 22))]
        async with asyncio.timeout(BOUND_S):
            await until(lambda: ours.slow_running and theirs.slow_running)
            cancelled = await session.post(a, method="notifications/cancelled", params={"requestId": 22})
            assert cancelled.status_code == 202
            await theirs.slow_cancelled.wait()
            assert (await calls[1])["error"]["code"] == -32800
        assert ours.slow_running
        ours.release.set()
        assert said(await calls[0]) == "at last"


@requirement("FACE-116")
async def test_a_session_that_is_ended_at_one_gate_ends_its_calls_and_streams_at_the_other(redis: RedisServer) -> None:
    ours = FileServer()
    async with gates(redis, [ours], [FileServer()]) as (a, b):
        session = await Raw().open(a)
        async with session.listening(a) as lines:
            call = asyncio.create_task(session.post(a, id=9, method="tools/call", params={"name": "files__slow"}))
            async with asyncio.timeout(BOUND_S):
                await until(lambda: ours.slow_running)
                assert (await b.http.delete(PATH, headers=session.headers)).status_code == 200
                await ours.slow_cancelled.wait()
                assert [line async for line in lines if line.startswith("data")] == []
                await call


@requirement("FACE-120", "FACE-8")
async def test_what_the_client_sets_at_one_gate_reaches_it_through_the_other(redis: RedisServer) -> None:
    own: list[list[Upstream]] = [[feature_server("alpha", "handshake")], [feature_server("alpha", "handshake")]]
    async with gates(redis, *own) as (a, b):
        session = await Raw().open(a, then=b)
        uri = f"alpha+{NOTE}"

        async def ask(at: RunningService, method: str, **params: Any) -> Any:
            (answer,) = messages_in(await session.post(at, id=5, method=method, params=params))
            return answer["result"]

        async def until_told() -> None:
            """The gate subscribes at its server in the background."""
            async with asyncio.timeout(BOUND_S):
                while True:
                    await session.call(a, "alpha__touch")
                    if uri in await updates(lines):
                        return

        # Once before the stream begins, and once while it runs.
        await ask(b, "resources/subscribe", uri=uri)
        async with session.listening(a) as lines:
            await until_told()
            await ask(b, "resources/unsubscribe", uri=uri)
            async with asyncio.timeout(BOUND_S):
                while await session.call(a, "alpha__touch"):
                    if not await updates(lines):
                        break
            await ask(b, "resources/subscribe", uri=uri)
            await until_told()


async def updates(lines: AsyncIterator[str]) -> list[str]:
    """The resources that have changed, up to the news of the lists, which come after."""
    found = list[str]()
    left = {"notifications/resources/list_changed", "notifications/prompts/list_changed"}
    while left:
        message = await next_message(lines)
        if message["method"] == "notifications/resources/updated":
            found.append(message["params"]["uri"])
        left.discard(message["method"])
    return found


@requirement("FACE-115")
async def test_a_session_outlives_the_gate_that_opened_it(redis: RedisServer) -> None:
    given = sealed(redis)
    async with running_service(upstreams=[FileServer()], settings=given) as b:
        async with running_service(upstreams=[FileServer()], settings=given) as a:
            session = await Raw().open(a)
        assert said(await session.call(b, "files__read_file", path="y")) == "contents of y"
    async with running_service(upstreams=[FileServer()], settings=given) as c:
        assert said(await session.call(c, "files__read_file", path="z")) == "contents of z"


@requirement("FACE-42")
async def test_a_key_that_is_taken_back_is_served_at_no_gate_and_its_streams_end(redis: RedisServer) -> None:
    async with gates(redis, **as_configured([ADA, BOB])) as (a, b):
        session = await Raw(ADA_KEY).open(a, then=b)
        assert (await session.post(b, id=1, method="tools/list")).status_code == 200
        async with session.listening(a) as lines:
            for at in (a, b):
                await at.app.state.gate.apply(Settings(**sealed(redis, **as_configured([BOB]))))
                assert (await session.post(at, id=1, method="tools/list")).status_code == 401
            async with asyncio.timeout(BOUND_S):
                assert [line async for line in lines if line.startswith("data")] == []


@requirement("FACE-211")
async def test_without_the_redis_sessions_are_opened_and_served(tmp_path_factory: pytest.TempPathFactory) -> None:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        async with gates(server) as (a, b):
            known, elsewhere = await Raw().open(a), await Raw().open(b)
            server.kill()
            new = await Raw().open(a)
            for session, at in ((known, a), (elsewhere, a), (new, b)):
                assert said(await session.call(at, "files__read_file", path="x")) == "contents of x"
            # What another process would have to know cannot be kept.
            for answer in (
                await a.http.delete(PATH, headers=known.headers),
                await known.post(a, id=7, result={}),
                await known.post(a, method="notifications/cancelled", params={"requestId": 7}),
            ):
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert "Send the request again" in answer.json()["error"]["message"]
            level = messages_in(await known.post(a, id=8, method="logging/setLevel", params={"level": "error"}))
            assert "Try again" in level[0]["error"]["message"]
            server.start()
            await until(partial(a.http.delete, PATH, headers=known.headers), lambda answer: answer.status_code != 503)
            assert (await known.post(a, id=1, method="tools/list")).status_code == 404


class RoundRobin(httpx2.AsyncBaseTransport):
    """A load balancer without any memory."""

    def __init__(self, *services: RunningService) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=False)
        self._urls = cycle([httpx2.URL(service.url) for service in services])
        self.count = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.count += 1
        url = next(self._urls)
        request.url = request.url.copy_with(host=url.host, port=url.port)
        request.headers["host"] = f"{url.host}:{url.port}"
        answer = await self._inner.handle_async_request(request)
        assert answer.status_code < 400, answer.status_code
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


@requirement("FACE-115", "FACE-118")
async def test_the_official_client_behind_round_robin_notices_nothing(redis: RedisServer) -> None:
    def asked(server: AskingServer) -> list[Upstream]:
        return [server.upstream, FileServer()]

    async def answer(context: Any, params: Any) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={"name": "Ann"})

    async with asking_server() as one, asking_server() as other, gates(redis, asked(one), asked(other)) as two:
        balanced = RoundRobin(*two)
        async with (
            httpx2.AsyncClient(headers=by(KEY), timeout=BOUND_S, transport=balanced) as http,
            Client(
                streamable_http_client(two[0].url + PATH, http_client=http), mode="legacy", elicitation_callback=answer
            ) as client,
        ):
            for number in range(3):
                await client.list_tools()
                done = await client.call_tool("old__twice", {})
                assert done.content[0].text == "accept Ann, accept Ann"  # type: ignore[union-attr]
                found = await client.call_tool("files__read_file", {"path": str(number)})
                assert found.content[0].text == f"contents of {number}"  # type: ignore[union-attr]
        assert balanced.count > 15
        assert len(one.calls) + len(other.calls) == 3
