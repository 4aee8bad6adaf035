"""Calls under way and sessions, shared among actors at ``/mcp`` and ``/operations`` (FACE-37 to FACE-39)."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import types as t
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.contract.test_mcp_door import INITIALIZE
from tests.contract.test_mcp_under_way import QUESTION, execute, said, stub
from tests.support.mcp_client import ERAS, NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OTHER_KEY, READER_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from wicketgate.ports import CallContext

pytestmark = pytest.mark.filterwarnings(f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}")

OTHER = {"Authorization": f"Bearer {OTHER_KEY}"}
READER = {"Authorization": f"Bearer {READER_KEY}"}
ACCEPT = {"Accept": "application/json, text/event-stream"}
ONE_EACH = {"mcp": {"max_calls": 2, "max_calls_per_actor": 1}}


async def operation(service: RunningService, name: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    body = {"operation": f"/files/{name}", "input": {"path": "a"} if name == "read_file" else {}}
    return await service.http.post("/operations/call", json=body, headers=dict(headers or {}))


@asynccontextmanager
async def slow_calls(service: RunningService, files: FileServer, *callers: Mapping[str, str]) -> AsyncIterator[None]:
    """Calls that run until the end of the block."""
    before = files.slow_running
    running = [asyncio.create_task(operation(service, "slow", caller)) for caller in callers]
    await until(lambda: files.slow_running >= before + len(callers))
    try:
        yield
    finally:
        files.release.set()
        for answer in await asyncio.gather(*running):
            assert answer.status_code == 200, answer.text


def refused(answer: httpx.Response, scope: str) -> None:
    assert answer.status_code == {"actor": 429, "all": 503}[scope], answer.text
    assert answer.headers["retry-after"] == "1"
    error = answer.json().get("error") or answer.json()
    assert error.get("details", error.get("data")) == {"scope": scope, "retry_after_s": 1}


@requirement("FACE-37")
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("face", ["/mcp", "/mcp/registry", "/mcp/namespaced"])
async def test_calls_of_both_doors_are_bounded_together_for_an_actor_and_in_all(version: str, face: str) -> None:
    files = FileServer()
    headers = {**ACCEPT, "Mcp-Protocol-Version": version}
    async with running_service(upstreams=[files], settings=ONE_EACH) as service:
        async with slow_calls(service, files, {}, OTHER):
            answers = [
                await service.http.post(face, json=INITIALIZE, headers={**headers, **caller}) for caller in ({}, READER)
            ]
            operations = [await operation(service, "read_file", caller) for caller in ({}, READER)]
            listed = await service.http.get("/operations")
        after = await operation(service, "read_file")
    for mine, carls in (answers, operations):
        refused(mine, "actor")
        refused(carls, "all")
    refused(listed, "actor")
    assert [answer.json()["jsonrpc"] for answer in answers] == ["2.0", "2.0"]
    assert [answer.json()["code"] for answer in operations] == ["RATE_LIMITED", "UNAVAILABLE"]
    assert after.status_code == 200


@requirement("FACE-37")
async def test_one_actor_leaves_room_for_another() -> None:
    files = FileServer()
    async with (
        running_service(upstreams=[files], settings={"mcp": {"max_calls": 5}}) as service,
        slow_calls(service, files, {}, {}, {}, {}),
    ):
        refused(await operation(service, "read_file"), "actor")
        assert (await operation(service, "read_file", OTHER)).status_code == 200


@requirement("FACE-37")
@pytest.mark.parametrize("path", ["/mcp", "/operations/call"])
async def test_a_call_is_refused_before_its_body_has_come(path: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=ONE_EACH) as service, slow_calls(service, files, {}):
        host = service.url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 9\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(BOUND_S):
            status = await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert b" 429 " in status


@ERAS
@requirement("FACE-37")
async def test_the_official_client_is_shown_the_reason(mode: str) -> None:
    files = FileServer()
    async with (
        running_service(upstreams=[files], settings=ONE_EACH) as service,
        mcp_client(service, mode) as client,
        slow_calls(service, files, {}),
    ):
        with pytest.raises(MCPError, match="Too many calls under way of this actor; nothing was run") as error:
            await client.call_tool("tool_browse", {"query": "read"})
    assert error.value.error.data == {"scope": "actor", "retry_after_s": 1}


@requirement("FACE-38")
@pytest.mark.parametrize("mode", [NEW, OLD])
async def test_a_client_that_listens_has_no_call_under_way(mode: str) -> None:
    files = FileServer()
    async with (
        running_service(upstreams=[files], settings={"mcp": {"max_calls": 1}}) as service,
        mcp_client(service, mode) as client,
    ):
        if mode == NEW:
            async with client.listen(tools_list_changed=True):
                assert not (await client.call_tool("tool_browse", {"query": "read"})).is_error
                assert service.app.state.gate.shared.limits.calls.held == 0
        else:  # listens from the handshake on
            assert not (await client.call_tool("tool_browse", {"query": "read"})).is_error
        await until_idle(service)


async def until_idle(service: RunningService) -> None:
    await until(lambda: not service.app.state.gate.shared.limits.calls.held)


@requirement("FACE-38")
async def test_the_answer_to_a_question_and_a_cancellation_pass_when_all_places_are_taken() -> None:
    hung, cancelled = asyncio.Event(), asyncio.Event()

    async def ask(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if name == "hang":
            hung.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
        answer = await context.caller.ask("elicitation/create", QUESTION)
        return said(json.dumps(answer))

    async def answer(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={"name": "alice"})

    settings = {"mcp": {"max_calls": 1}}
    async with (
        running_service(upstreams=[stub(ask, "ask", "hang")], settings=settings) as service,
        mcp_client(service, OLD, client={"elicitation_callback": answer}) as client,
    ):
        async with asyncio.timeout(BOUND_S):
            result = await execute(client, "ask")
            assert "alice" in str(result.content)
            hanging = asyncio.create_task(execute(client, "hang"))
            await hung.wait()
            hanging.cancel()
            await asyncio.wait([hanging])
            await cancelled.wait()
            await until_idle(service)
            await client.list_tools()  # the client fails if it is closed before it has read the answer


async def opened(service: RunningService, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return await service.http.post("/mcp", json=INITIALIZE, headers={**ACCEPT, **(headers or {})})


@requirement("FACE-39")
async def test_streams_on_which_clients_listen_are_shared_among_actors() -> None:
    async with running_service(settings={"mcp": {"max_streams_per_actor": 2}}) as service, AsyncExitStack() as open:
        statuses = list[int]()
        for caller in ({}, {}, {}, OTHER):
            session = (await opened(service, caller)).headers["mcp-session-id"]
            headers = {**ACCEPT, **caller, "Mcp-Session-Id": session}
            stream = await open.enter_async_context(service.http.stream("GET", "/mcp", headers=headers))
            statuses.append(stream.status_code)
            if stream.status_code != 200:
                await stream.aread()
                refused(stream, "actor")
        assert statuses == [200, 200, 429, 200]
        assert 'wicketgate_active{kind="streams_gateway"} 3.0' in await service.metrics()


async def in_session(service: RunningService, session: str, message: dict[str, Any]) -> httpx.Response:
    return await service.http.post(
        "/mcp", json={"jsonrpc": "2.0", **message}, headers={**ACCEPT, "Mcp-Session-Id": session}
    )
