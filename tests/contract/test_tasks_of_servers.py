"""A tool whose server makes a task of each call, behind every face: its caller sees a plain call."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import running_service
from tests.support.task_server import WORKING, ScriptedTasks, asking, done, failed, task_server
from tests.support.wire_client import WireClient
from wicketgate.models.provider import ToolCall

BY_FACE = {
    "namespaced": ("raw__job", {}),
    "transparent": ("tool_execute", {"tool_id": "raw:job"}),
    "gateway": ("tool_execute", {"tool_id": "raw:job"}),
    "registry": ("call", {"operation": "/raw/job"}),
}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}


@requirement("UP-107", "UP-108")
async def test_the_result_of_a_task_is_that_of_a_plain_call_at_every_face() -> None:
    tasks = ScriptedTasks(done("the answer is 42"))
    async with task_server(tasks) as server, running_service(upstreams=[server.upstream]) as service:
        for era in (MODERN, HANDSHAKE):
            for face, (name, arguments) in BY_FACE.items():
                answer = await WireClient(service, era, f"/mcp/{face}").call(name, arguments)
                assert "the answer is 42" in json.dumps(answer["result"]), (era, face)
                assert not answer["result"].get("isError")
                assert answer["result"].get("resultType") in (None, "complete")


@requirement("UP-108")
async def test_a_failed_task_keeps_its_code_and_its_words() -> None:
    tasks = ScriptedTasks(failed(1234, "no paper"))
    async with task_server(tasks) as server, running_service(upstreams=[server.upstream]) as service:
        answer = await WireClient(service).call("raw__job")
    assert (answer["error"]["code"], "no paper" in answer["error"]["message"]) == (1234, True)


@requirement("UP-110")
@pytest.mark.parametrize("face", ["namespaced", "gateway"])
async def test_a_question_of_a_task_reaches_a_client_and_its_second_attempt_reaches_the_task(face: str) -> None:
    tasks = ScriptedTasks(asking("who"), after=(WORKING, done("hello Ada")))
    name, arguments = BY_FACE[face]
    async with task_server(tasks) as server, running_service(upstreams=[server.upstream]) as service:
        client = WireClient(service, path=f"/mcp/{face}", capabilities={"elicitation": {"form": {}}})
        first = (await client.call(name, arguments))["result"]
        assert first["resultType"] == "input_required"
        assert "task-1" not in first["requestState"], "sealed"
        ((key, request),) = first["inputRequests"].items()
        assert request["params"]["message"] == "`raw` asks: Who?"
        more = {"inputResponses": {key: ACCEPTED}, "requestState": first["requestState"]}
        second = await client.call(name, arguments, more)
        (update,) = server.seen("tasks/update")
        assert len(server.seen("tools/call")) == 1
    assert "hello Ada" in json.dumps(second["result"])
    assert update["params"]["inputResponses"] == {"who": ACCEPTED}


@requirement("UP-107", "UP-108")
async def test_the_engines_model_gets_the_result_of_a_task() -> None:
    call = ToolCall("c1", "tool_execute", {"tool_id": "raw:job"}, '{"tool_id": "raw:job"}')
    tasks = ScriptedTasks(WORKING, done("at last"))
    async with (
        task_server(tasks) as server,
        running_service(ScriptModel(calls(call), says("ok")), [server.upstream]) as service,
    ):
        events = await service.chat()
    (output,) = [data for event, data in events if event == "tool-result"]
    assert "at last" in json.dumps(output)


@requirement("UP-111", "UP-114")
async def test_a_task_that_lasts_too_long_ends_its_call_and_is_cancelled() -> None:
    tasks = ScriptedTasks(WORKING)
    short: dict[str, Any] = {"engine": {"tool_timeout_s": 0.1}, "tasks": {"longest_s": 0.3}}
    async with (
        task_server(tasks) as server,
        running_service(upstreams=[server.upstream], settings=short) as service,
    ):
        answer = await WireClient(service).call("raw__job")
        await tasks.came("tasks/cancel")
    assert "within 0.3 s" in json.dumps(answer)


@requirement("UP-111")
async def test_a_client_that_hangs_up_has_its_task_cancelled() -> None:
    tasks = ScriptedTasks(WORKING)
    async with task_server(tasks) as server, running_service(upstreams=[server.upstream]) as service:
        calling = asyncio.create_task(WireClient(service).call("raw__job"))
        await tasks.came("tasks/get")
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await tasks.came("tasks/cancel")


@requirement("UP-111")
async def test_a_gate_that_stops_has_its_tasks_cancelled() -> None:
    tasks = ScriptedTasks(WORKING)
    async with task_server(tasks) as server:
        async with running_service(upstreams=[server.upstream], settings={"server": {"drain_s": 0}}) as service:
            calling = asyncio.create_task(WireClient(service).call("raw__job"))
            await tasks.came("tasks/get")
        await asyncio.gather(calling, return_exceptions=True)
        await tasks.came("tasks/cancel")
