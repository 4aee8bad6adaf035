"""Long calls of clients that know tasks (``io.modelcontextprotocol/tasks``), by hand and as they stand on the wire."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.contract.replicas import Gates
from tests.contract.test_mcp_under_way import stub
from tests.support.asking_server import asking_server
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE
from tests.support.service import BOUND_S, OTHER_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from tests.support.wire_client import WireClient
from wicketgate.errors import InputRequired, UpstreamRefused
from wicketgate.ports import CallContext, Upstream

pytestmark = pytest.mark.usefixtures("both_ways")

TASKS = "io.modelcontextprotocol/tasks"
KNOWS: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
SOON = {"tasks": {"after_s": 0.05}}
OTHER = {"Authorization": f"Bearer {OTHER_KEY}"}
FACES = {
    "/mcp/namespaced": ("files__slow", {}),
    "/mcp": ("tool_execute", {"tool_id": "files:slow", "args": {}}),
    "/mcp/transparent": ("tool_execute", {"tool_id": "files:slow", "args": {}}),
    "/mcp/registry": ("call", {"operation": "/files/slow", "input": {}}),
}


def client(service: RunningService, path: str = "/mcp/namespaced", capabilities: Any = KNOWS) -> WireClient:
    return WireClient(service, path=path, capabilities=capabilities)


@asynccontextmanager
async def served(*upstreams: Upstream, **more: Any) -> AsyncIterator[RunningService]:
    async with running_service(upstreams=upstreams, settings={**SOON, **more}) as service:
        yield service


async def created(gate: WireClient, name: str = "files__slow", arguments: Mapping[str, Any] | None = None) -> str:
    task = (await gate.call(name, arguments))["result"]
    assert task["resultType"] == "task", task
    return str(task["taskId"])


async def get(gate: WireClient, task_id: str, **given: Any) -> dict[str, Any]:
    return await gate.ask("tasks/get", {"taskId": task_id}, **given)


async def become(gate: WireClient, task_id: str, *statuses: str) -> dict[str, Any]:
    """The task, once it has one of *statuses*."""
    task: dict[str, Any] = {"status": ""}
    async with asyncio.timeout(BOUND_S):
        while task["status"] not in statuses:
            task = (await get(gate, task_id))["result"]
    return task


@requirement("FACE-80")
@pytest.mark.parametrize("path", FACES)
async def test_a_long_call_becomes_a_task_at_every_face(path: str) -> None:
    files = FileServer()
    name, arguments = FACES[path]
    async with served(files) as service:
        gate = client(service, path)
        first = (await gate.call(name, arguments))["result"]
        assert (first["resultType"], first["status"], first["ttlMs"]) == ("task", "working", None)
        assert re.fullmatch(r"[A-Za-z0-9_-]{40,}", first["taskId"])
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*Z$", first["createdAt"])
        assert {"result", "error", "inputRequests", "task"}.isdisjoint(first)
        working = (await get(gate, first["taskId"]))["result"]
        assert (working["resultType"], working["status"], working["taskId"]) == ("complete", "working", first["taskId"])
        files.release.set()
        ended = await become(gate, first["taskId"], "completed")
        again = (await get(gate, first["taskId"]))["result"]
        short = (await gate.call(name, arguments))["result"]
    assert "at last" in str(ended["result"])
    assert ended["ttlMs"] >= 900_000
    assert again["result"] == ended["result"], "it may be asked for again"
    assert short["resultType"] == "complete", "a short call is answered at once"
    if path == "/mcp/namespaced":
        assert ended["result"]["content"] == short["content"]


@requirement("FACE-80")
@pytest.mark.parametrize("capabilities", [{}, {"extensions": {}}, {"extensions": {"com.example/tasks": {}}}])
async def test_a_client_that_does_not_know_tasks_gets_none(capabilities: dict[str, Any]) -> None:
    files = FileServer()
    async with served(files) as service:
        call = asyncio.create_task(client(service, capabilities=capabilities).call("files__slow"))
        asyncio.get_running_loop().call_later(0.2, files.release.set)
        assert (await call)["result"]["resultType"] == "complete"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            params = {"taskId": "x", "inputResponses": {}}
            error = (await client(service, capabilities=capabilities).ask(method, params))["error"]
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        listen = {"notifications": {"taskIds": ["x"]}}
        error = (await client(service, capabilities=capabilities).ask("subscriptions/listen", listen))["error"]
        assert error["code"] == -32021


@requirement("FACE-80")
async def test_the_extension_is_declared_to_the_newer_era_and_known_to_no_other() -> None:
    async with served(FileServer()) as service:
        for path in FACES:
            found = (await client(service, path).ask("server/discover", {}))["result"]["capabilities"]
            assert found["extensions"][TASKS] == {}
            assert "tasks" not in found
        older = WireClient(service, HANDSHAKE, capabilities=KNOWS)
        assert (await older.ask("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601
        for method in ("tasks/list", "tasks/result"):
            assert (await client(service).ask(method, {"taskId": "x"}))["error"]["code"] == -32601
    async with running_service(settings={"tasks": {"after_s": 0}}) as service:
        found = (await client(service).ask("server/discover", {}))["result"]["capabilities"]
        assert TASKS not in found.get("extensions", {})
        assert (await get(client(service), "x"))["error"]["code"] == -32601


@requirement("FACE-81")
async def test_a_task_is_its_actors_alone_and_of_its_face() -> None:
    files = FileServer()
    async with served(files) as service:
        gate = client(service)
        task_id = await created(gate)
        forged = task_id[:-2] + ("AA" if not task_id.endswith("AA") else "BB")
        for path, wrong, headers in (
            ("/mcp/namespaced", task_id, OTHER),
            ("/mcp", task_id, {}),
            ("/mcp/namespaced", forged, {}),
            ("/mcp/namespaced", "1", {}),
        ):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                params = {"taskId": wrong, "inputResponses": {}}
                error = (await client(service, path).ask(method, params, headers=headers))["error"]
                assert (error["code"], error["message"]) == (-32602, "Task not found")
        assert not files.slow_cancelled.is_set()
        mismatch = await gate.ask("tasks/get", {"taskId": task_id}, headers={"Mcp-Name": "x"})
        assert mismatch["error"]["code"] == -32020
        assert (await get(gate, task_id))["result"]["status"] == "working"


@requirement("FACE-82", "FACE-106")
async def test_a_cancelled_task_is_cancelled_at_its_server(gates: Gates) -> None:
    files, other = FileServer(), FileServer()
    async with gates([files], [other], **SOON) as (here, there):
        task_id, gate = await created(client(here)), client(there)
        assert (await get(gate, task_id))["result"]["status"] == "working"
        assert (await get(gate, task_id, headers=OTHER))["error"]["message"] == "Task not found"
        for _ in range(2):
            told = (await gate.ask("tasks/cancel", {"taskId": task_id}))["result"]
            assert {"taskId", "status"}.isdisjoint(told)
            assert told["resultType"] == "complete"
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        assert "result" not in await become(gate, task_id, "cancelled")
        task_id = await created(client(here))
        files.release.set()
        assert "at last" in str((await become(gate, task_id, "completed"))["result"])
    assert other.slow_at_once == 0


@requirement("FACE-82")
async def test_the_key_of_a_task_ends_it() -> None:
    files = FileServer()
    async with served(files) as service:
        task_id = await created(client(service))
        service.app.state.gate.runtime.running.end_of("test")
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        assert (await get(client(service), task_id))["error"]["code"] == -32602


@requirement("FACE-83")
@pytest.mark.parametrize("outcome", ["refused", "failed", "isError"])
async def test_a_task_ends_as_the_call_would_have(outcome: str) -> None:
    go = asyncio.Event()

    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if arguments.get("wait"):
            await go.wait()
        match outcome:
            case "refused":
                raise UpstreamRefused("no", code=-32099, refusal="not today", data={"a": 1})
            case "failed":
                raise RuntimeError("secret")
        return {"content": [{"type": "text", "text": "no luck"}], "isError": True}

    async with served(stub(answer, "odd")) as service:
        gate = client(service)
        task_id = await created(gate, "files__odd", {"wait": True})
        go.set()
        task = await become(gate, task_id, "completed", "failed")
        plain = await gate.call("files__odd")
    if "error" in plain:
        assert (task["status"], task["error"]) == ("failed", plain["error"])
    else:
        assert task["status"] == "completed"
        assert task["result"]["isError"] is True
        assert task["result"]["content"] == plain["result"]["content"]
    assert "secret" not in str(task)


@requirement("FACE-84")
async def test_a_server_of_the_older_era_asks_through_its_task() -> None:
    async with asking_server() as server, served(server.upstream, tasks={"after_s": 30}) as service:
        quiet = client(service, capabilities={"extensions": {TASKS: {}}})
        assert (await quiet.call("old__ask"))["result"]["content"][0]["text"] == "cancel"
        gate = client(service)
        first = (await gate.call("old__later"))["result"]
        assert first["resultType"] == "input_required", "what is asked before is answered by a second attempt"
        responses = {key: {"action": "accept", "content": {"name": "Ada"}} for key in first["inputRequests"]}
        more = {"requestState": first["requestState"], "inputResponses": responses}
        running = service.app.state.gate.runtime.running
        running.limits = replace(running.limits, after_s=0.05)
        task = (await gate.call("old__later", more=more))["result"]
        assert task["resultType"] == "task"
        assert (await become(gate, task["taskId"], "working"))["statusMessage"] == "after"
        server.go.set()
        assert (await become(gate, task["taskId"], "completed"))["result"]["content"][0]["text"] == "accept Ada"


@requirement("FACE-84", "FACE-107")
async def test_a_server_of_either_era_asks_through_its_task(gates: Gates) -> None:
    """In the middle of a call, or by an answer that asks for another attempt."""
    go, form = asyncio.Event(), {"mode": "form", "message": "Name?", "requestedSchema": {"type": "object"}}

    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await go.wait()
        if name == "in_line":
            said = [(await context.caller.ask("elicitation/create", form))["action"] for _ in range(2)]
        elif context.answers is None:
            raise InputRequired({"who": {"method": "elicitation/create", "params": form}}, "theirs")
        else:
            said = [context.answers.responses["who"]["action"], str(context.answers.request_state)]
        return {"content": [{"type": "text", "text": " ".join(said)}]}

    async with gates([stub(answer, "in_line", "again")], **SOON) as (here, there):
        gate, texts = client(there), []
        for name in ("in_line", "again"):
            go.clear()
            task_id = await created(client(here), f"files__{name}")
            go.set()
            task = await become(gate, task_id, "input_required")
            asked = task["inputRequests"]
            assert [one["params"]["message"] for one in asked.values()] == ["`files` asks: Name?"]
            answers = {key: {"action": "accept", "content": {}} for key in asked}
            wrong = {"unknown": {"action": "decline"}, **{key: {"action": 5} for key in asked}}
            for responses in (wrong, answers, answers):
                told = await gate.ask("tasks/update", {"taskId": task_id, "inputResponses": responses})
                assert set(told["result"]) <= {"resultType", "_meta"}
                if responses is wrong:
                    assert (await get(gate, task_id))["result"]["inputRequests"] == asked
            if name == "in_line":
                task = await until(
                    partial(become, gate, task_id, "input_required"),
                    lambda task: task["inputRequests"].keys() != asked.keys(),
                )
                second = {key: {"action": "decline"} for key in task["inputRequests"]}
                await gate.ask("tasks/update", {"taskId": task_id, "inputResponses": second})
            texts.append((await become(gate, task_id, "completed"))["result"]["content"][0]["text"])
    assert texts == ["accept decline", "accept theirs"]


@requirement("FACE-80")
async def test_where_no_place_is_left_a_call_is_answered_when_it_ends() -> None:
    files = FileServer()
    async with served(files, tasks={"after_s": 0.05, "max_running": 1}) as service:
        await created(client(service))
        second = asyncio.create_task(client(service).call("files__slow"))
        asyncio.get_running_loop().call_later(0.2, files.release.set)
        assert (await second)["result"]["resultType"] == "complete"
