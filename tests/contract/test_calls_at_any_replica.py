"""Two gates over one store, with no stickiness: what one of them began is answered, polled, viewed and ended at the
other."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.contract.replicas import SEAL, two_gates
from tests.contract.test_held_calls import FORMS, answers, asked, streamed, text
from tests.contract.test_long_calls import QUESTION
from tests.contract.test_tasks import KNOWS, become, created, get
from tests.support.asking_server import asking_server
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import BOUND_S, OTHER_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from tests.support.wire_client import WireClient
from wicketgate.errors import InputRequired
from wicketgate.models.provider import ToolCall
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

pytestmark = pytest.mark.usefixtures("patient_stores")

SOON = {"tasks": {"after_s": 0.05}}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to wait for a row that its process could not write."""
    monkeypatch.setattr("wicketgate.gateway.kept_calls._COMES_S", 0.2)


def client(service: RunningService, path: str = "/mcp/namespaced", capabilities: Any = FORMS) -> WireClient:
    return WireClient(service, path=path, capabilities=capabilities)


@requirement("FACE-76")
async def test_a_call_goes_on_while_another_attempt_waits_for_it(redis_url: str) -> None:
    async with asking_server() as server, two_gates(redis_url, [[server.upstream], []]) as (here, there):
        first = await client(here).call("old__later")
        left, waits = (
            asyncio.create_task(client(gate).call("old__later", more=answers(first))) for gate in (there, here)
        )
        await attended(here, 2)
        left.cancel()
        await attended(here, 1)
        again = asyncio.create_task(client(there).call("old__later", more=answers(first)))
        await attended(here, 2)
        waits.cancel()
        await attended(here, 1)
        server.go.set()
        assert text(await again) == "accept Ada"
    assert not server.cancelled.is_set()


async def attended(gate: RunningService, attempts: int) -> None:
    """Returns when *attempts* attempts wait for the held call of *gate*. All other gates together count as one."""
    (call,) = gate.app.state.gate.runtime.running._held.values()
    await until(lambda: len(call.door.caller._present) == attempts)


@requirement("FACE-105")
async def test_progress_reaches_an_attempt_at_the_other_gate(redis_url: str) -> None:
    async with asking_server() as server, two_gates(redis_url, [[server.upstream], []]) as (here, there):
        first = await client(here).call("old__later")
        asyncio.get_running_loop().call_later(2.0, server.go.set)
        second, heard = await streamed(client(there), "second", answers(first))
        assert text(second) == "accept Ada"
        assert ("second", "after") in heard


@requirement("FACE-202")
async def test_an_attempt_whose_row_the_store_has_lost_gets_its_result_or_is_of_use_later(redis_url: str) -> None:
    async with asking_server() as server, two_gates(redis_url, [[server.upstream], []]) as (here, there):
        first = await client(here).call("old__later")
        waits = asyncio.create_task(client(there).call("old__later", more=answers(first)))
        await attended(here, 1)
        (call,) = here.app.state.gate.runtime.running._held.values()
        store = here.app.state.gate.runtime.kept._store
        await store.drop(store.key(call.owner, call.id))
        server.go.set()
        answer = await waits
        if "error" in answer:
            assert answer["error"]["data"] == {"reason": "not_reached", "retryable": True}
            answer = await client(there).call("old__later", more=answers(first))
        assert text(answer) == "accept Ada"


@requirement("FACE-108", "FACE-71")
async def test_a_second_attempt_for_a_handle_is_made_at_the_other_gate_and_once(redis_url: str) -> None:
    ends = InputRequired({"who": {"method": "elicitation/create", "params": QUESTION}}, "s1")
    begun, runs = asyncio.Event(), list[str]()

    def upstream(name: str) -> StubUpstream:
        async def run(tool: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            runs.append(name)
            await begun.wait()
            if context.answers is None:
                raise ends
            return {"content": [{"type": "text", "text": f"{arguments} {context.answers.request_state}"}]}

        return StubUpstream([{"name": "index", "inputSchema": {"type": "object"}}], run, name="files")

    async with two_gates(redis_url, [[upstream("here")], [upstream("there")]], **SOON) as (here, there):
        execute = {"tool_id": "files:index", "args": {"a": "secret"}}
        handle = (await client(here, "/mcp").call("tool_execute", execute))["result"]["structuredContent"]["handle"]
        begun.set()
        wait = {"handle": handle, "selector": {"type": "wait", "timeout_s": 5}}
        first = await client(there, "/mcp").call("tool_view", wait)
        again = await client(here, "/mcp").call("tool_view", wait)
        assert [*asked(again)[1].values()] == [*asked(first)[1].values()]
        tries = [client(gate, "/mcp").call("tool_view", wait, more=answers(first)) for gate in (there, here)]
        bodies = [one["result"]["structuredContent"] for one in await asyncio.gather(*tries)]
        assert sorted(body.get("error", "") for body in bodies) == ["", "VIEW_FAILED"]
        assert "'a': 'secret'" in str(bodies)
    assert len(runs) == 2


@requirement("OPS-352", "FACE-110")
async def test_a_result_that_is_too_large_to_keep_is_the_gates_alone_that_has_it(redis_url: str) -> None:
    begun = asyncio.Event()

    async def run(tool: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await begun.wait()
        return {"content": [{"type": "text", "text": "x" * 9_000_000}]}

    job = StubUpstream([{"name": "index", "inputSchema": {"type": "object"}}], run, name="files")
    async with two_gates(redis_url, [[job], []], **SOON) as (here, there):
        task_id = await created(client(here, capabilities=KNOWS), "files__index")
        begun.set()
        assert len(str(await become(client(here, capabilities=KNOWS), task_id, "completed"))) > 9_000_000
        async with asyncio.timeout(BOUND_S):
            while "result" in (found := await get(client(there, capabilities=KNOWS), task_id)):
                assert found["result"]["status"] == "working"
        assert found["error"]["data"] == {"reason": "not_reached", "retryable": True}


@requirement("FACE-204")
async def test_a_result_that_was_fetched_at_the_other_gate_makes_room_for_others(redis_url: str) -> None:
    files = FileServer()
    tasks = {"after_s": 0.05, "max_running": 1}
    async with two_gates(redis_url, [[files], []], tasks=tasks) as (here, there):
        first, second = client(here, capabilities=KNOWS), client(there, capabilities=KNOWS)
        task_id = await created(first)
        files.release.set()
        await become(second, task_id, "completed")
        files.release.clear()
        await until(lambda: any(call.given for call in here.app.state.gate.runtime.running._held.values()))
        assert await created(first) != task_id


@requirement("FACE-109")
async def test_results_outlive_the_gate_that_made_them(redis_url: str) -> None:
    files = FileServer()
    settings = {"tasks": {"after_s": 0.05}}
    async with two_gates(redis_url, [[], [FileServer()]], **settings) as (_, there):
        async with two_gates(redis_url, [[files], []], **settings) as (here, _):
            first = client(here, capabilities=KNOWS)
            done, left = await created(first), await created(first)
            execute = {"tool_id": "files:slow", "args": {}}
            handle = (await client(here, "/mcp").call("tool_execute", execute))["result"]["structuredContent"]["handle"]
            await first.ask("tasks/cancel", {"taskId": left})
            await become(first, left, "cancelled")
            files.release.set()
            await become(first, done, "completed")
        second = client(there, capabilities=KNOWS)
        ended = await become(second, done, "completed")
        assert "at last" in str(ended["result"])
        assert isinstance(ended["ttlMs"], int)
        assert (await get(second, left))["result"]["status"] == "cancelled"
        stranger = {"Authorization": f"Bearer {OTHER_KEY}"}
        assert (await get(second, done, headers=stranger))["error"]["message"] == "Task not found"
        shown = await client(there, "/mcp").call(
            "tool_view", {"handle": handle, "selector": {"type": "wait", "timeout_s": 1}}
        )
        assert shown["result"]["structuredContent"]["summary"] == "at last"


@requirement("FACE-108")
async def test_a_chat_views_a_handle_of_the_other_gate(redis_url: str) -> None:
    settings = {"storage": {"url": redis_url}, **SEAL, "tasks": {"after_s": 2}}
    slow = FileServer()
    async with running_service(upstreams=[slow], settings=settings) as here:
        execute = {"tool_id": "files:slow", "args": {}}
        handle = (await client(here, "/mcp").call("tool_execute", execute))["result"]["structuredContent"]["handle"]
        viewing = {"handle": handle, "selector": {"type": "wait", "timeout_s": 5}}
        model = ScriptModel(calls(ToolCall("c1", "tool_view", viewing, json.dumps(viewing))), says("seen"))
        async with running_service(model, [FileServer()], settings=settings) as there:
            chat = asyncio.create_task(there.chat())
            slow.release.set()
            events = await chat
    assert "at last" in str(events)
