"""Held calls and tasks under attack: what changes, leaves or crosses while a person is asked."""

import asyncio
from typing import Any

import pytest

from tests.contract.replicas import Gates
from tests.contract.test_held_calls import answers, text
from tests.contract.test_tasks import SOON, become, client, created, served
from tests.support.asking_server import asking_server
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, OTHER_KEY, FileServer, RunningService, running_service
from tests.support.task_server import WORKING, ScriptedTasks, asking, done, task_server
from wicketgate.faces import long_calls

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


async def rules(service: RunningService, *entries: dict[str, Any]) -> None:
    gate = service.app.state.gate
    await gate.apply(gate.settings.model_validate({**gate.settings.model_dump(), "access": list(entries)}))


@requirement("FACE-93")
async def test_no_answer_is_lost_to_a_handle_when_a_tool_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second question stays open for longer than a request waits."""
    monkeypatch.setattr(long_calls, "_AFTER_AN_ANSWER_S", 0.5)
    async with asking_server() as server, served(server.upstream, tasks={"after_s": 0.5}) as service:
        gate, running = client(service, "/mcp", FORMS), service.app.state.gate.runtime.running
        (tool_id,) = [one for one in service.app.state.gate.runtime.catalog().items if ":twice#" in one]
        call = {"tool_id": tool_id, "args": {}}
        answer = await gate.call("tool_execute", call)
        for _ in range(2):
            (of_the_tool,) = [one for one in running._all if one.caller is not None]
            assert not await of_the_tool.settled(0.7), "a person takes time"
            answer = await gate.call("tool_execute", call, more=answers(answer))
    assert "accept Ada, accept Ada" in str(answer["result"]), answer


@requirement("FACE-94")
@pytest.mark.parametrize("how", ["cancel", "key", "stop"])
async def test_a_task_that_ends_while_its_server_asks_is_cancelled_there_too(how: str) -> None:
    tasks = ScriptedTasks(WORKING)
    async with task_server(tasks) as server, served(server.upstream) as service:
        gate = client(service)
        task_id = await created(gate, "raw__job")
        tasks.now(asking("who"))
        await become(gate, task_id, "input_required")
        match how:
            case "cancel":
                await gate.ask("tasks/cancel", {"taskId": task_id})
            case "key":
                service.app.state.gate.runtime.running.end_of("test")
            case "stop":
                await service.app.state.gate.runtime.running.aclose()
        await tasks.came("tasks/cancel")


@requirement("FACE-156")
async def test_questions_that_come_together_are_open_together_in_a_task() -> None:
    tasks = ScriptedTasks(WORKING, after=(done(),))
    async with task_server(tasks) as server, served(server.upstream) as service:
        gate = client(service)
        task_id = await created(gate, "raw__job")
        tasks.now(asking("who", "what"))
        first, second = (await become(gate, task_id, "input_required"))["inputRequests"]
        await gate.ask("tasks/update", {"taskId": task_id, "inputResponses": {first: {"action": "decline"}}})
        assert list((await become(gate, task_id, "input_required"))["inputRequests"]) == [second]
        assert server.seen("tasks/update") == []
        answered = {second: {"action": "accept", "content": {}}}
        await gate.ask("tasks/update", {"taskId": task_id, "inputResponses": answered})
        await become(gate, task_id, "completed")
    (told,) = server.seen("tasks/update")
    actions = {key: answer["action"] for key, answer in told["params"]["inputResponses"].items()}
    assert actions == {"who": "decline", "what": "accept"}


@requirement("FACE-95")
async def test_a_call_that_needs_an_approval_meanwhile_does_not_go_on() -> None:
    async with asking_server() as server, running_service(upstreams=[server.upstream]) as service:
        gate = client(service, capabilities=FORMS)
        held = await gate.call("old__ask")
        await rules(service, {"match": "old:*", "approval": "always"})
        refused = await gate.call("old__ask", more=answers(held))
        async with asyncio.timeout(BOUND_S):
            await server.wait_for(1)
    assert refused["result"]["isError"], refused
    assert "answers_refused" in str(refused["result"])
    assert set(server.answers) <= {"cancel", "cancelled"}


@requirement("FACE-96")
@pytest.mark.parametrize(("path", "name"), [("/mcp/namespaced", "files__slow"), ("/mcp", "tool_execute")])
async def test_the_task_of_a_tool_that_is_hidden_meanwhile_is_none(gates: Gates, path: str, name: str) -> None:
    files = FileServer()
    async with gates([files], [FileServer()], **SOON) as (here, there):
        gate = client(there, path)
        arguments = {"tool_id": "files:slow", "args": {}} if name == "tool_execute" else {}
        task_id = await created(client(here, path), name, arguments)
        await rules(there, {"match": "files:slow", "visibility": "internal"})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = (await gate.ask(method, {"taskId": task_id, "inputResponses": {}}))["error"]
            assert (error["code"], error["message"]) == (-32602, "Task not found")
        files.release.set()


@requirement("FACE-97")
async def test_cancelled_tasks_take_no_places() -> None:
    files = FileServer()
    async with served(files, tasks={"after_s": 0.05, "max_running": 1}) as service:
        gate = client(service)
        for _ in range(3):
            task_id = await created(gate)
            await gate.ask("tasks/cancel", {"taskId": task_id})
            async with asyncio.timeout(BOUND_S):
                await files.slow_cancelled.wait()
            files.slow_cancelled.clear()


@requirement("UP-126")
async def test_the_open_questions_of_one_actor_shut_out_no_other() -> None:
    """A server has one connection, and what it asks may be open for ten minutes."""
    other = {"headers": {"Authorization": f"Bearer {OTHER_KEY}"}}
    async with asking_server() as server, running_service(upstreams=[server.upstream]) as service:
        gate = client(service, capabilities=FORMS)
        member = next(iter(service.app.state.gate.runtime.fleet.members.values()))
        member._slots.resize(1_000, 1_000)
        await asyncio.gather(*[gate.call("old__ask") for _ in range(210)])
        held = await gate.call("old__ask", **other)
        assert text(await gate.call("old__ask", more=answers(held), **other)) == "accept Ada"
