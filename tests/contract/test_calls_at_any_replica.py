"""Two gates over one Redis, with no stickiness: what one of them began is answered, polled, viewed and ended at the
other."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.replicas import SEAL, two_gates
from tests.contract.test_held_calls import FORMS, answers, asked, text
from tests.contract.test_long_calls import Job, body, result_of, view
from tests.contract.test_tasks import KNOWS, become, created, get
from tests.support.asking_server import asking_server
from tests.support.mcp_client import NEW, OLD, mcp_client
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import BOUND_S, OTHER_KEY, FileServer, RunningService, running_service
from tests.support.wire_client import WireClient
from wicketgate.models.provider import ToolCall

pytestmark = pytest.mark.usefixtures("patient_stores")

SOON = {"tasks": {"after_s": 0.05}}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


def client(service: RunningService, path: str = "/mcp/namespaced", capabilities: Any = FORMS) -> WireClient:
    return WireClient(service, path=path, capabilities=capabilities)


@requirement("FACE-105")
async def test_a_question_of_a_held_call_is_answered_at_the_other_gate(redis: RedisServer) -> None:
    async with (
        asking_server() as server,
        asking_server() as other,
        two_gates(redis.url, [[server.upstream], [other.upstream]]) as (here, there),
    ):
        first = await client(here).call("old__twice")
        again = await client(there).call("old__twice", more={"requestState": asked(first)[0], "inputResponses": {}})
        assert asked(again)[1] == asked(first)[1], "it is asked again"
        second = await client(there).call("old__twice", more=answers(first))
        third = await client(there).call("old__twice", more=answers(second))
        assert text(third) == "accept Ada, accept Ada"
        assert text(await client(there).call("old__twice", more=answers(second))) == text(third)
        for method, params in (("prompts/get", {"name": "old__greet"}), ("resources/read", {"uri": "old+doc:///who"})):
            first = await client(here).ask(method, params)
            second = await client(there).ask(method, {**params, **answers(first)})
            assert "accept Ada" in str(second["result"]), second
    assert (server.calls.count("twice"), other.calls) == (1, [])


@requirement("FACE-125")
async def test_what_was_asked_before_a_gate_drained_is_answered_at_the_other_gate(redis: RedisServer) -> None:
    async with asking_server() as server, two_gates(redis.url, [[server.upstream], []]) as (here, there):
        first = await client(here).call("old__twice")
        drain = here.app.state.gate.drain
        drain.begin(BOUND_S)
        drained = asyncio.create_task(drain.wait())
        second = await client(there).call("old__twice", more=answers(first))
        assert text(await client(there).call("old__twice", more=answers(second))) == "accept Ada, accept Ada"
        async with asyncio.timeout(BOUND_S):
            await drained
    assert server.calls == ["twice"]


@requirement("FACE-106")
async def test_a_task_is_polled_answered_and_cancelled_at_the_other_gate(redis: RedisServer) -> None:
    files, other = FileServer(), FileServer()
    async with two_gates(redis.url, [[files], [other]], **SOON) as (here, there):
        first, second = client(here, capabilities=KNOWS), client(there, capabilities=KNOWS)
        task_id = await created(first)
        assert (await get(second, task_id))["result"]["status"] == "working"
        stranger = {"Authorization": f"Bearer {OTHER_KEY}"}
        assert (await get(second, task_id, headers=stranger))["error"]["message"] == "Task not found"
        files.release.set()
        ended = await become(second, task_id, "completed")
        assert "at last" in str(ended["result"])
        files.release.clear()
        task_id = await created(first)
        cancelled = await second.ask("tasks/cancel", {"taskId": task_id})
        assert "result" in cancelled
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        await become(second, task_id, "cancelled")
    assert other.slow_at_once == 0


@requirement("FACE-107")
async def test_a_task_that_asks_is_answered_at_the_other_gate(redis: RedisServer) -> None:
    async with asking_server() as server, two_gates(redis.url, [[server.upstream], []], **SOON) as (here, there):
        first = (await client(here, capabilities=KNOWS).call("old__ask"))["result"]
        task_id = first.get("taskId")
        second = client(there, capabilities=KNOWS)
        if task_id is None:
            # The question came before the call became a task: it is answered like one of a held call.
            done = await second.call("old__ask", more=answers({"result": first}))
            result = done["result"]
            if result["resultType"] == "task":
                result = (await become(second, result["taskId"], "completed"))["result"]
        else:
            waiting = await become(second, task_id, "input_required")
            replies = {key: {"action": "accept", "content": {"name": "Ada"}} for key in waiting["inputRequests"]}
            await second.ask("tasks/update", {"taskId": task_id, "inputResponses": replies})
            result = (await become(second, task_id, "completed"))["result"]
    assert "accept Ada" in str(result)


@requirement("FACE-108")
@pytest.mark.parametrize("mode", [NEW, OLD])
async def test_a_handle_is_viewed_and_cancelled_at_the_other_gate(redis: RedisServer, mode: str) -> None:
    job, other = Job(), Job()
    gates = two_gates(redis.url, [[job.upstream()], [other.upstream()]], tasks={"after_s": 0.01})
    async with gates as (here, there), mcp_client(here, mode) as first, mcp_client(there, mode) as second:
        running = await body(first.call_tool("tool_execute", {"tool_id": "files:index", "args": {}}))
        handle = running["handle"]
        assert (await view(second, handle))["status"] == "running"
        async with mcp_client(there, mode, OTHER_KEY) as stranger:
            assert (await view(stranger, handle))["error"] == "VIEW_FAILED"
        assert (await view(second, handle[:-1] + ("0" if handle[-1] != "0" else "1")))["error"] == "VIEW_FAILED"
        job.end.set()
        ended = await result_of(second, handle)
        assert ended["summary"] == "indexed for nobody"
        job.end.clear()
        handle = (await body(first.call_tool("tool_execute", {"tool_id": "files:index", "args": {}})))["handle"]
        cancelled = await view(second, handle, type="cancel")
        assert "was cancelled" in cancelled["summary"]
        async with asyncio.timeout(BOUND_S):
            await job.cancelled.wait()
    assert not other.begun.is_set()


@requirement("FACE-108")
async def test_a_question_of_a_long_call_is_put_to_the_client_that_waits_at_the_other_gate(redis: RedisServer) -> None:
    from mcp import types as t

    async def answer(context: Any, params: Any) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={"name": "Ada"})

    job = Job(asks=True)
    callbacks = {"elicitation_callback": answer}
    gates = two_gates(redis.url, [[job.upstream()], []], tasks={"after_s": 0.05})
    async with (
        gates as (here, there),
        mcp_client(here, OLD, client=callbacks) as first,
        mcp_client(there, OLD, client=callbacks) as second,
    ):
        handle = (await body(first.call_tool("tool_execute", {"tool_id": "files:index", "args": {}})))["handle"]
        job.end.set()
        assert (await result_of(second, handle))["summary"] == "indexed for Ada"


@requirement("FACE-109")
async def test_results_outlive_the_gate_that_made_them(redis: RedisServer) -> None:
    files = FileServer()
    settings = {"tasks": {"after_s": 0.05}}
    async with two_gates(redis.url, [[], [FileServer()]], **settings) as (_, there):
        async with two_gates(redis.url, [[files], []], **settings) as (here, _):
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
async def test_a_chat_views_a_handle_of_the_other_gate(redis: RedisServer) -> None:
    settings = {"storage": {"url": redis.url}, **SEAL, "tasks": {"after_s": 2}}
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
