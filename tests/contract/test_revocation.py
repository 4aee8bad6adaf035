"""A key that is taken back ends what it has started, at every door (ACCESS-39 to ACCESS-42)."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError

from tests.contract.test_mcp_door import INITIALIZE
from tests.contract.test_tool_calls import IDS, execute
from tests.support.clock import Clock
from tests.support.mcp_client import ERAS, NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, Turn, calls, says
from tests.support.service import BOUND_S, FileServer, RunningService, chat_body, frames, running_service
from tests.support.wire_client import messages_in
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta

ADA_KEY = "wg_ada_0123456789012345678901234567890123456789"
ADA_NEXT_KEY = "wg_ada-next_0123456789012345678901234567890123456789"
BOB_KEY = "wg_bob_0123456789012345678901234567890123456789"

ADA = {"id": "ada", "sha256": hash_key(ADA_KEY), "actor": "ada", "permissions": ["tools:files:*"]}
ADA_NEXT = {**ADA, "id": "ada-next", "sha256": hash_key(ADA_NEXT_KEY)}
BOB = {"id": "bob", "sha256": hash_key(BOB_KEY), "actor": "bob", "permissions": ["tools:*"]}

GONE: list[dict[str, Any]] = [BOB]
ENDING: dict[str, list[dict[str, Any]]] = {
    "gone": GONE,
    "suspended": [{**ADA, "suspended": True}, BOB],
    "expired": [{**ADA, "expires_at": "2020-01-01T00:00:00Z"}, BOB],
    "not valid yet": [{**ADA, "not_before": "2999-01-01T00:00:00Z"}, BOB],
    "other permissions": [{**ADA, "permissions": ["tools:files:read_file"]}, BOB],
    "another actor": [{**ADA, "actor": "eve"}, BOB],
    "another key under its id": [{**ADA, "sha256": "0" * 64}, BOB],
}
KEEPING: dict[str, list[dict[str, Any]]] = {
    "unchanged": [ADA, BOB],
    "more permissions": [{**ADA, "permissions": ["tools:files:*", "memory:*"]}, BOB],
    "wider permissions": [{**ADA, "permissions": ["tools:*"]}, BOB],
    "an end that is not near": [{**ADA, "expires_at": "2999-01-01T00:00:00Z"}, BOB],
    "another key is gone": [ADA],
}
LISTEN = {"Accept": "application/json, text/event-stream"}


def as_configured(keys: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"auth": {"keys": list(keys)}}


def by(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def reload(service: RunningService, keys: Sequence[dict[str, Any]]) -> None:
    await service.app.state.gate.apply(Settings(**as_configured(keys)))


async def until_running(files: FileServer, count: int = 1) -> None:
    async with asyncio.timeout(BOUND_S):
        while files.slow_running < count:
            await asyncio.sleep(0)


class Looping:
    """Implements Provider: asks for one more tool in each turn, without end."""

    def __init__(self) -> None:
        self.turns = 0

    async def aclose(self) -> None:
        """It holds nothing."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        self.turns += 1
        yield [execute(f"c{self.turns}", "read_file", {"path": str(self.turns)}), Finish("tool_calls", None)]


async def listening_chat(service: RunningService, key: str, **headers: str) -> tuple[httpx.Response, Any]:
    """A chat that has begun to answer, and the rest of its stream."""
    request = service.http.build_request("POST", "/engine/chat", json=chat_body(), headers={**by(key), **headers})
    response = await service.http.send(request, stream=True)
    assert response.status_code == 200
    pieces = response.aiter_text()
    await anext(pieces)
    return response, pieces


async def rest(pieces: Any) -> list[tuple[str, dict[str, Any]]]:
    async with asyncio.timeout(BOUND_S):
        return frames("".join([piece async for piece in pieces]))


@pytest.mark.parametrize("how", ENDING)
@requirement("ACCESS-39", "CHAT-92")
async def test_a_stream_of_a_key_that_is_taken_back_ends_once_and_those_of_others_go_on(how: str) -> None:
    go_on = asyncio.Event()
    turn = [[TextDelta("one")], go_on, *says("two")]
    async with running_service(ScriptModel(turn, turn), settings=as_configured([ADA, BOB])) as service:
        _, ada = await listening_chat(service, ADA_KEY)
        _, bob = await listening_chat(service, BOB_KEY)
        await reload(service, ENDING[how])
        ends = await rest(ada)
        go_on.set()
        others = await rest(bob)
        metrics = await service.metrics()
    assert [(event, data["finish_reason"]) for event, data in ends] == [("done", "cancelled")]
    assert [event for event, _ in others] == ["text-delta", "done"]
    assert 'wicketgate_streams_total{outcome="revoked"} 1.0' in metrics


@pytest.mark.parametrize("how", KEEPING)
@requirement("ACCESS-40")
async def test_what_a_key_has_started_goes_on_while_the_key_allows_all_that_it_allowed(how: str) -> None:
    files = FileServer()
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *calls(execute("c1", "read_file", {"path": "a"}))], says("two"))
    async with running_service(model, [files], settings=as_configured([ADA, BOB])) as service:
        _, ada = await listening_chat(service, ADA_KEY)
        call = asyncio.create_task(operation(service, ADA_KEY))
        await until_running(files)
        await reload(service, KEEPING[how])
        go_on.set()
        files.release.set()
        ends = await rest(ada)
        assert (await call).status_code == 200
    assert [event for event, _ in ends] == ["tool-call", "tool-result", "text-delta", "done"]


@requirement("ACCESS-39", "CHAT-93")
async def test_a_model_that_loops_calls_no_tool_after_its_key_is_gone() -> None:
    files, model = FileServer(), Looping()
    async with running_service(model, [files], settings={**as_configured([ADA, BOB])}) as service:
        _, ada = await listening_chat(service, ADA_KEY)
        reading = asyncio.create_task(rest(ada))
        async with asyncio.timeout(BOUND_S):
            while len(files.calls) < 20:
                await asyncio.sleep(0)
        await reload(service, GONE)
        count = len(files.calls)
        ends = await reading
        # Other callers are served in this time, by the same loop.
        for _ in range(20):
            assert (await service.http.get("/operations", headers=by(BOB_KEY))).status_code == 200
        assert len(files.calls) == count
    assert [event for event, _ in ends].count("done") == 1
    assert ends[-1][1]["finish_reason"] == "cancelled"


@requirement("ACCESS-39", "CHAT-92")
async def test_a_detached_run_ends_with_its_key() -> None:
    files = FileServer()
    model = ScriptModel([[TextDelta("one")], *calls(execute("c1", "slow"))])
    keyed = {"Idempotency-Key": "k1", "X-On-Disconnect": "continue"}
    async with running_service(model, [files], settings=as_configured([ADA, ADA_NEXT, BOB])) as service:
        response, _ = await listening_chat(service, ADA_KEY, **keyed)
        await until_running(files)
        await response.aclose()
        await reload(service, [ADA_NEXT, BOB])
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        # The actor's other key may read how it ended.
        again = await service.http.post("/engine/chat", json=chat_body(), headers={**by(ADA_NEXT_KEY), **keyed})
    assert frames(again.text)[-1] == (
        "done",
        {"finish_reason": "cancelled", "usage": frames(again.text)[-1][1]["usage"]},
    )
    assert [event for event, _ in frames(again.text)].count("done") == 1


@requirement("ACCESS-39", "CHAT-92")
async def test_a_reader_ends_with_its_own_key_and_the_run_of_another_key_goes_on() -> None:
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *says("two")])
    keyed = {"Idempotency-Key": "k1"}
    async with running_service(model, settings=as_configured([ADA, ADA_NEXT])) as service:
        _, first = await listening_chat(service, ADA_KEY, **keyed)
        _, second = await listening_chat(service, ADA_NEXT_KEY, **keyed)
        await reload(service, [ADA])
        ends = await rest(second)
        go_on.set()
        whole = await rest(first)
    assert [(event, data.get("finish_reason")) for event, data in ends] == [("done", "cancelled")]
    assert [event for event, _ in whole] == ["text-delta", "done"]
    assert whole[-1][1]["finish_reason"] == "stop"


@requirement("ACCESS-41")
async def test_a_request_whose_body_is_still_coming_is_refused() -> None:
    async with running_service(settings=as_configured([ADA, BOB])) as service:
        host, port = service.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST /engine/chat HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ADA_KEY}\r\nContent-Length: 99\r\n"
        )
        writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
        async with asyncio.timeout(BOUND_S):
            # The service asks for the body only when the route, behind the credential, reads it.
            assert b"100" in await reader.readuntil(b"\r\n\r\n")
            await reload(service, GONE)
            answer = await reader.readuntil(b"}")
        writer.close()
    assert b" 401 " in answer
    assert b"no longer valid" in answer


async def operation(service: RunningService, key: str, path: str = "call") -> httpx.Response:
    call = {"operation": "files/slow", "input": {}}
    body = call if path == "call" else {"calls": [call, call]}
    return await service.http.post(f"/operations/{path}", json=body, headers=by(key))


@pytest.mark.parametrize("path", ["call", "batch"])
@requirement("ACCESS-41")
async def test_an_operation_under_way_is_cancelled_and_refused(path: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=as_configured([ADA, BOB])) as service:
        ada = asyncio.create_task(operation(service, ADA_KEY, path))
        bob = asyncio.create_task(operation(service, BOB_KEY, path))
        await until_running(files, 2 if path == "call" else 4)
        await reload(service, GONE)
        refused = await ada
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        files.release.set()
        assert (await bob).status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    assert refused.headers["www-authenticate"].startswith("Bearer")


@ERAS
@requirement("FACE-40")
async def test_a_call_under_way_at_mcp_is_cancelled_and_answered_with_an_error(mode: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=as_configured([ADA, BOB])) as service:

        async def call(key: str) -> Any:
            async with mcp_client(service, mode, key) as client:
                return await client.call_tool("tool_execute", {"tool_id": IDS["slow"]})

        ada, bob = asyncio.create_task(call(ADA_KEY)), asyncio.create_task(call(BOB_KEY))
        await until_running(files, 2)
        await reload(service, GONE)
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
            with pytest.raises((MCPError, ExceptionGroup)) as failed:
                await ada
        files.release.set()
        assert not (await bob).is_error
    # An answer that has begun ends with the error; one that has not is a 401, which the client shows in its own words.
    assert ("no longer valid" if mode == OLD else "error response") in causes(failed.value)


@requirement("FACE-40")
async def test_a_call_of_the_newer_era_that_has_no_answer_yet_is_refused() -> None:
    files = FileServer()
    version = {"Mcp-Protocol-Version": NEW, "Mcp-Method": "tools/call", "Mcp-Name": "tool_execute"}
    meta = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "tool_execute", "arguments": {"tool_id": IDS["slow"]}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with running_service(upstreams=[files], settings=as_configured([ADA, BOB])) as service:
        headers = {**LISTEN, **version, **by(ADA_KEY)}
        call = asyncio.create_task(service.http.post("/mcp", json=body, headers=headers))
        await until_running(files)
        await reload(service, GONE)
        refused = await call
    assert (refused.status_code, refused.json()["message"]) == (401, "Credentials are no longer valid")
    assert files.slow_cancelled.is_set()


def causes(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return " ".join(map(causes, error.exceptions))
    return f"{error} {causes(error.__cause__) if error.__cause__ else ''}"


async def session(service: RunningService, key: str) -> dict[str, str]:
    opened = await service.http.post("/mcp", json=INITIALIZE, headers={**by(key), **LISTEN})
    headers = {**LISTEN, "mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await service.http.post("/mcp", json=ready, headers={**headers, **by(key)})).status_code == 202
    return headers


async def ping(service: RunningService, key: str, headers: dict[str, str]) -> int:
    hello = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    return (await service.http.post("/mcp", json=hello, headers={**headers, **by(key)})).status_code


@requirement("FACE-41")
async def test_a_stream_on_which_a_session_listens_ends_with_its_key() -> None:
    async with running_service(settings=as_configured([ADA, BOB])) as service:
        mine, other = await session(service, ADA_KEY), await session(service, BOB_KEY)
        async with (
            service.http.stream("GET", "/mcp", headers={**mine, **by(ADA_KEY)}) as listening,
            service.http.stream("GET", "/mcp", headers={**other, **by(BOB_KEY)}) as still,
        ):
            assert (listening.status_code, still.status_code) == (200, 200)
            await reload(service, GONE)
            async with asyncio.timeout(BOUND_S):
                assert [piece async for piece in listening.aiter_text()] == []
            assert await ping(service, BOB_KEY, other) == 200
            await service.app.state.gate.apply(Settings(**as_configured([])))
            async with asyncio.timeout(BOUND_S):
                assert [piece async for piece in still.aiter_text()] == []


@requirement("FACE-41")
async def test_a_stream_of_subscriptions_ends_with_its_key_and_says_so() -> None:
    listening = asyncio.Event()

    async def listen(client: Client) -> list[Any]:
        async with client.listen(tools_list_changed=True) as subscription:
            listening.set()
            return [each async for each in subscription]

    async with (
        running_service(settings=as_configured([ADA, BOB])) as service,
        mcp_client(service, NEW, ADA_KEY) as client,
    ):
        stream = asyncio.create_task(listen(client))
        await listening.wait()
        await reload(service, GONE)
        async with asyncio.timeout(BOUND_S):
            await asyncio.wait([stream])
        assert "no longer valid" in causes(stream.exception() or Exception("it ended without a word"))


@requirement("FACE-42")
async def test_a_session_goes_on_with_the_next_key_of_its_actor_and_with_no_other() -> None:
    async with running_service(settings=as_configured([ADA, ADA_NEXT, BOB])) as service:
        mine = await session(service, ADA_KEY)
        await reload(service, [ADA_NEXT, BOB])
        assert await ping(service, ADA_KEY, mine) == 401
        assert await ping(service, BOB_KEY, mine) == 404
        assert await ping(service, ADA_NEXT_KEY, mine) == 200


@requirement("FACE-42")
async def test_a_call_in_a_session_ends_with_its_key_and_an_answer() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=as_configured([ADA, BOB])) as service:
        mine = await session(service, ADA_KEY)
        params = {"name": "tool_execute", "arguments": {"tool_id": IDS["slow"]}}
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        call = asyncio.create_task(service.http.post("/mcp", json=body, headers={**mine, **by(ADA_KEY)}))
        await until_running(files)
        await reload(service, GONE)
        answer = await call
    (said,) = messages_in(answer)
    assert said["id"] == 7
    assert "no longer valid" in said["error"]["message"]


ENDING_AT_2000 = {**ADA, "expires_at": "1970-01-01T00:33:20Z"}


@requirement("ACCESS-42", "ACCESS-43", "CHAT-92")
async def test_a_stream_and_a_call_end_when_their_key_expires_and_the_next_request_is_told_so() -> None:
    clock, files = Clock(), FileServer()
    turn: Turn = [[TextDelta("one")], asyncio.Event()]
    keys = as_configured([ENDING_AT_2000, BOB])
    async with running_service(ScriptModel(turn), [files], settings=keys, clock=clock) as service:
        _, ada = await listening_chat(service, ADA_KEY)
        call = asyncio.create_task(operation(service, ADA_KEY))
        await until_running(files)
        clock.now = 2_000.0
        ends = await rest(ada)
        assert (await call).status_code == 401
        late = await service.http.post("/engine/chat", json=chat_body(), headers=by(ADA_KEY))
    assert [(event, data["finish_reason"]) for event, data in ends] == [("done", "cancelled")]
    assert (late.status_code, late.json()["message"]) == (401, "Credentials have expired")


@requirement("CHAT-93")
async def test_a_run_whose_key_has_expired_calls_no_tool_although_nothing_has_ended_it_yet() -> None:
    clock, files = Clock(), FileServer()

    class Slow(Looping):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
            if self.turns == 1:
                # Within this turn of the loop, so that only the look before the round can notice.
                clock.now = 2_000.0
            async for batch in super().stream(request):
                yield batch

    keys = as_configured([ENDING_AT_2000])
    async with running_service(Slow(), [files], settings=keys, clock=clock) as service:
        response = await service.http.post("/engine/chat", json=chat_body(), headers=by(ADA_KEY))
    assert [event for event, _ in frames(response.text)] == ["tool-call", "tool-result", "tool-call", "done"]
    assert frames(response.text)[-1][1]["finish_reason"] == "cancelled"
    assert len(files.calls) == 1


@requirement("ACCESS-45")
async def test_metrics_show_the_life_of_the_keys_that_are_configured_and_failures_by_reason() -> None:
    clock = Clock()
    keys = as_configured([ENDING_AT_2000, {**BOB, "suspended": True}])
    async with running_service(settings=keys, clock=clock) as service:
        assert (await service.http.get("/operations", headers=by(ADA_KEY))).status_code == 200
        for credential in (by(BOB_KEY), by("guess"), {"Authorization": "Basic x"}):
            assert (await service.http.get("/operations", headers=credential)).status_code == 401
        # Readiness may be read without a credential, so none is no failure there; a wrong one is.
        for credential in (by("guess"), {"Authorization": "Basic x"}):
            await service.http.get("/readyz", headers=credential)
        before = await service.metrics()
        await reload(service, [])
        after = await service.metrics()
    assert 'wicketgate_key_last_used_timestamp_seconds{key="ada"} 1000.0' in before
    assert 'wicketgate_key_expires_timestamp_seconds{key="ada"} 2000.0' in before
    assert '_last_used_timestamp_seconds{key="bob"}' not in before, "it was never let in"
    counts = {"suspended": 1.0, "unknown": 2.0, "missing": 1.0}
    for reason, count in counts.items():
        assert f'wicketgate_auth_failures_total{{reason="{reason}"}} {count}' in before
    assert 'key="ada"' not in after
