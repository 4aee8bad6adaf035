"""Approvals at the desk: what waits, who decides, and the one call that an approval is good for."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.contract.test_approvals import GATED, READ, Conversation, asked, results
from tests.contract.test_tool_calls import IDS
from tests.support.mcp_client import NEW, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import (
    BOUND_S,
    OPERATOR_KEY,
    OTHER_KEY,
    READER_KEY,
    FileServer,
    RunningService,
    running_service,
)

API = "/console/api"
Found = dict[str, Any]


def as_key(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


async def read(service: RunningService, key: str | None = None) -> httpx.Response:
    arguments = {"operation": "/files/read_file", "input": {"path": "a.md"}}
    return await service.http.post("/operations/call", json=arguments, headers=as_key(key))


async def desk(service: RunningService, key: str | None = None) -> Found:
    answer = await service.http.get(f"{API}/approvals", headers=as_key(key))
    assert answer.status_code == 200, answer.text
    found: Found = answer.json()
    return found


async def decide(service: RunningService, id: str, decision: object, key: str | None = None) -> int:
    answer = await service.http.post(f"{API}/approvals/{id}", json={"decision": decision}, headers=as_key(key))
    return answer.status_code


async def waiting_totals(service: RunningService, key: str | None = None) -> int:
    answer = await service.http.get(f"{API}/traffic", headers=as_key(key))
    count: int = answer.json()["totals"]["waiting"]
    return count


@asynccontextmanager
async def waiting_call() -> AsyncIterator[tuple[RunningService, FileServer, Found]]:
    """A service, its server of files, and a call that waits at the desk."""
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service:
        await read(service)
        (ask,) = (await desk(service))["waiting"]
        yield service, files, ask


@requirement("OPS-253", "OPS-257")
async def test_what_waits_is_shown_with_its_arguments_to_its_actor_alone() -> None:
    async with running_service(upstreams=[FileServer()], settings=GATED) as service:
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        (own,) = (await desk(service))["waiting"]
        assert (own["tool_id"], own["args"], own["own"], own["may_decide"]) == (
            IDS["read_file"],
            {"path": "a.md"},
            True,
            True,
        )
        assert own["expires_at"] > own["asked_at"]
        (seen,) = (await desk(service, OPERATOR_KEY))["waiting"]
        assert (seen["id"], seen["args"], seen["arg_names"], seen["may_decide"]) == (own["id"], None, ["path"], False)
        assert (await desk(service, READER_KEY))["waiting"] == []
        assert [await waiting_totals(service, key) for key in (None, OPERATOR_KEY, READER_KEY)] == [1, 1, 0]


@requirement("OPS-254", "OPS-255")
async def test_only_the_actor_of_a_call_decides_and_its_next_same_call_runs_once() -> None:
    async with waiting_call() as (service, files, ask):
        assert await decide(service, ask["id"], "approve", OPERATOR_KEY) == 403
        assert await decide(service, ask["id"], "approve", READER_KEY) == 404
        assert await decide(service, ask["id"], "perhaps") == 400
        assert await decide(service, "unknown", "approve") == 404
        assert await decide(service, ask["id"], "approve") == 200
        assert await decide(service, ask["id"], "deny") == 404
        # Another's same call is not the approved one.
        assert (await read(service, OTHER_KEY)).json()["code"] == "APPROVAL_REQUIRED"
        ran = await asyncio.gather(*(read(service) for _ in range(4)))
        assert sorted(each.status_code for each in ran) == [200, 403, 403, 403]
        assert len(files.calls) == 1
        found = await desk(service)
        assert [(each["decision"], each["used"]) for each in found["decided"]] == [("approve", True)]
        assert len(found["waiting"]) == 1


@requirement("OPS-255")
async def test_another_argument_asks_again() -> None:
    async with waiting_call() as (service, files, ask):
        await decide(service, ask["id"], "approve")
        other = {"operation": "/files/read_file", "input": {"path": "A.md"}}
        refused = await service.http.post("/operations/call", json=other)
        assert refused.json()["code"] == "APPROVAL_REQUIRED"
        assert files.calls == []


@requirement("OPS-256")
async def test_a_denied_call_is_refused_the_next_time_it_is_made() -> None:
    async with waiting_call() as (service, files, ask):
        assert await decide(service, ask["id"], "deny") == 200
        refused = (await read(service)).json()
        assert (refused["code"], refused["message"]) == ("FORBIDDEN", "Denied by the owner. It was not run.")
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        assert files.calls == []


@requirement("OPS-255")
async def test_a_call_over_mcp_runs_by_an_approval_of_the_desk() -> None:
    files = FileServer()
    made = {"tool_id": IDS["read_file"], "args": {"path": "a.md"}}
    async with running_service(upstreams=[files], settings=GATED) as service, mcp_client(service, NEW) as client:
        assert (await client.call_tool("tool_execute", made)).is_error
        (ask,) = (await desk(service))["waiting"]
        assert await decide(service, ask["id"], "approve") == 200
        assert not (await client.call_tool("tool_execute", made)).is_error
        assert (await client.call_tool("tool_execute", made)).is_error
        assert len(files.calls) == 1


@requirement("OPS-255", "CHAT-135")
async def test_a_chat_goes_on_with_what_was_approved_at_the_desk() -> None:
    files = FileServer()
    model = ScriptModel(calls(READ), says("done"))
    async with running_service(model, [files], settings=GATED) as service:
        talk = Conversation(service)
        assert asked(await talk.go_on()).keys() == {"c1"}
        (ask,) = (await desk(service))["waiting"]
        assert await decide(service, ask["id"], "approve") == 200
        stream = await talk.go_on()
        assert "contents of a.md" in results(stream)["c1"]["output"]
        assert len(files.calls) == 1
        # The same id again, brought by the client this time: it is used up.
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"


@requirement("OPS-256", "CHAT-135")
async def test_a_chat_learns_of_a_denial_at_the_desk() -> None:
    files = FileServer()
    model = ScriptModel(calls(READ), says("so be it"))
    async with running_service(model, [files], settings=GATED) as service:
        talk = Conversation(service)
        await talk.go_on()
        (ask,) = (await desk(service))["waiting"]
        assert await decide(service, ask["id"], "deny") == 200
        stream = await talk.go_on()
        assert results(stream)["c1"]["error"] == "denied by the owner"
        assert files.calls == []


@requirement("CHAT-136")
async def test_a_decision_that_a_chat_brings_takes_the_call_off_the_list() -> None:
    files = FileServer()
    model = ScriptModel(calls(READ), says("done"))
    async with running_service(model, [files], settings=GATED) as service:
        talk = Conversation(service)
        id = asked(await talk.go_on())["c1"]
        (ask,) = (await desk(service))["waiting"]
        assert ask["id"] not in id
        await talk.go_on((id, "approve"))
        found = await desk(service)
        assert found["waiting"] == []
        assert [(each["id"], each["decision"], each["used"]) for each in found["decided"]] == [
            (ask["id"], "approve", True)
        ]
        assert await decide(service, ask["id"], "approve") == 404
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        assert len(files.calls) == 1


@requirement("OPS-255", "CHAT-137")
async def test_an_approval_that_was_used_at_the_desk_is_no_good_in_the_chat() -> None:
    files = FileServer()
    model = ScriptModel(calls(READ), says("done"))
    async with running_service(model, [files], settings=GATED) as service:
        talk = Conversation(service)
        id = asked(await talk.go_on())["c1"]
        await decide(service, (await desk(service))["waiting"][0]["id"], "approve")
        assert (await read(service)).status_code == 200
        stream = await talk.go_on((id, "approve"))
        assert results(stream)["c1"]["error"] == "approval_refused: this approval was decided before"
        assert len(files.calls) == 1


@requirement("OPS-257")
async def test_arguments_too_large_to_be_read_are_not_kept_and_not_decided_on() -> None:
    async with running_service(upstreams=[FileServer()], settings=GATED) as service:
        large = {"operation": "/files/read_file", "input": {"path": "x" * 20_000}}
        await service.http.post("/operations/call", json=large)
        (ask,) = (await desk(service))["waiting"]
        assert (ask["args"], ask["arg_names"], ask["may_decide"]) == (None, ["path"], False)
        assert await decide(service, ask["id"], "approve") == 409


@requirement("OPS-258")
async def test_decisions_are_recorded_without_arguments_and_pages_hear_of_them(tmp_path: Path) -> None:
    trail = tmp_path / "audit.jsonl"
    sink = {"handler": "audit_jsonl", "config": {"path": str(trail)}}
    settings = {**GATED, "plugins": {"auditing": {"_global": [sink]}}}
    async with (
        running_service(upstreams=[FileServer()], settings=settings) as service,
        asyncio.timeout(BOUND_S),
        service.http.stream("GET", f"{API}/events") as events,
    ):
        lines = events.aiter_lines()
        await read(service)
        (ask,) = (await desk(service))["waiting"]
        await decide(service, ask["id"], "deny")
        heard: list[Mapping[str, Any]] = []
        event = ""
        async for line in lines:
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == "approval":
                heard.append(json.loads(line.removeprefix("data: ")))
                if len(heard) == 2:
                    break
        assert heard == [{"id": ask["id"], "change": "new"}, {"id": ask["id"], "change": "decided"}]
    records = [json.loads(line) for line in trail.read_text().splitlines()]
    (decision,) = [each for each in records if each["operation"] == "approval"]
    assert (decision["outcome"], decision["actor"]) == ("denied", "owner_1")
    assert decision["detail"].startswith("denied by the owner; of a call by owner_1, definition ")
    assert "a.md" not in trail.read_text()
