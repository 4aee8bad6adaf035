"""The owner's approval as a question between two attempts of a client of 2026-07-28."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.app.console.test_approvals import decide, desk
from tests.contract.test_approvals_over_mcp import GATED
from tests.contract.test_audited_service import audited, records
from tests.contract.test_held_calls import ADA, FORMS, answers, asked, client
from tests.contract.test_tool_calls import IDS
from tests.support.asking_server import asking_server
from tests.support.requirement import requirement
from tests.support.service import OTHER_KEY, TOOLS, FileServer, running_service
from tests.support.wire_client import WireClient
from wicketgate.config.settings import Settings

pytestmark = pytest.mark.usefixtures("both_ways")

READ, OTHER = {"path": "a.md"}, {"path": "b.md"}
YES, NO, LATER = {"action": "accept", "content": {}}, {"action": "decline"}, {"action": "cancel"}
NAME = "files__read_file"
LASTING = {"auth": {"seal_keys": ["k" * 40]}}


def text(answer: Mapping[str, Any]) -> str:
    return str(answer.get("error") or answer["result"]["content"])


@requirement("ACCESS-295")
@pytest.mark.parametrize(
    ("path", "name", "arguments"),
    [
        ("/mcp", "tool_execute", {"tool_id": IDS["read_file"], "args": READ}),
        ("/mcp/transparent", "tool_execute", {"tool_id": IDS["read_file"], "args": READ}),
        ("/mcp/registry", "call", {"operation": "/files/read_file", "input": READ}),
        ("/mcp/namespaced", NAME, READ),
    ],
)
async def test_every_face_asks_the_owner_and_runs_the_call_once(path: str, name: str, arguments: Any) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service:
        gate = client(service, path)
        first = await gate.call(name, arguments)
        ((question,),) = [asked(first)[1].values()]
        assert IDS["read_file"] in question["params"]["message"] and "a.md" in question["params"]["message"]
        assert question["params"]["requestedSchema"] == {"type": "object", "properties": {}}
        assert files.calls == [] and (await desk(service))["waiting"] == []
        again = answers(first, YES)
        done = await gate.call(name, arguments, more=again)
        replayed = await gate.call(name, arguments, more=again)
    assert "contents of a.md" in text(done)
    assert "this approval was decided before" in text(replayed)
    assert len(files.calls) == 1


@requirement("ACCESS-295", "ACCESS-296")
@pytest.mark.parametrize(
    ("reply", "says", "waits"),
    [(NO, "Denied by the owner", 0), (LATER, "wicketgate approvals approve", 1), (None, "wicketgate approvals", 1)],
)
async def test_what_is_no_approval_runs_nothing(reply: Any, says: str, waits: int) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service:
        first = await client(service).call(NAME, READ)
        again = answers(first, reply)
        refused = await client(service).call(NAME, READ, more=again if reply else {**again, "inputResponses": {}})
        assert len((await desk(service))["waiting"]) == waits
        late = await client(service).call(NAME, READ, more=answers(first, YES))
    assert says in text(refused)
    assert ("decided before" in text(late)) == (reply is NO)
    assert len(files.calls) == (reply is not NO)


@requirement("ACCESS-295", "ACCESS-296")
async def test_a_batch_asks_nothing() -> None:
    files, call = FileServer(), {"operation": "/files/read_file", "input": READ}
    async with running_service(upstreams=[files], settings=GATED) as service:
        ended = await client(service, "/mcp/registry").call("batch", {"calls": [call]})
    assert "APPROVAL_REQUIRED" in text(ended) and "wicketgate approvals approve" in text(ended)
    assert files.calls == []


@requirement("ACCESS-297")
async def test_a_state_of_another_actor_call_or_definition_runs_nothing() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service:
        first = await client(service).call(NAME, READ)
        again = answers(first, YES)
        other = {"headers": {"Authorization": f"Bearer {OTHER_KEY}"}}
        for attempt in (
            client(service).call(NAME, OTHER, more=again),
            client(service).call("files__fail", {}, more=again),
            client(service).call(NAME, READ, more=again, **other),
            client(service, "/mcp").call(NAME, READ, more=again),
            client(service).call(NAME, READ, more={**again, "requestState": again["requestState"][:-4] + "AAAA"}),
        ):
            assert (await attempt)["error"]["code"] == -32602
        files.tools = [{**TOOLS[0], "description": "Reads all."}, *TOOLS[1:]]
        await service.app.state.gate.runtime.refresh_catalog()
        changed = await client(service).call(NAME, READ, more=again)
    assert "approval_refused: the tool has changed" in text(changed)
    assert files.calls == []


@requirement("ACCESS-297")
async def test_two_attempts_at_the_same_moment_run_the_call_once() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service:
        again = answers(await client(service).call(NAME, READ), YES)
        both = await asyncio.gather(*(client(service).call(NAME, READ, more=again) for _ in range(2)))
    assert sorted("contents of a.md" in text(each) for each in both) == [False, True]
    assert len(files.calls) == 1


@requirement("ACCESS-295")
async def test_a_call_over_its_quota_asks_nobody() -> None:
    files, quota = FileServer(), {"quota": {"per_actor": 1}}
    async with running_service(upstreams=[files], settings={**GATED, **quota}) as service:
        gate = client(service)
        await gate.call(NAME, READ, more=answers(await gate.call(NAME, READ), YES))
        assert "RATE_LIMITED" in text(await gate.call(NAME, OTHER))
    assert len(files.calls) == 1


@requirement("ACCESS-298")
async def test_an_answer_after_a_restart_counts_once(tmp_path: Path) -> None:
    files = FileServer()
    settings = {**GATED, **LASTING, "storage": {"url": f"sqlite:///{tmp_path / 'gate.db'}"}}
    async with running_service(upstreams=[files], settings=settings) as service:
        again = answers(await client(service).call(NAME, READ), YES)
    said = []
    for _ in range(2):
        async with running_service(upstreams=[files], settings=settings) as service:
            said.append(text(await client(service).call(NAME, READ, more=again)))
    assert "contents of a.md" in said[0] and "decided before" in said[1]
    assert len(files.calls) == 1


@requirement("ACCESS-299")
async def test_a_server_asks_in_the_middle_of_an_approved_call() -> None:
    gated = {"access": [{"match": "old:*", "approval": "always"}]}
    async with asking_server() as server, running_service(upstreams=[server.upstream], settings=gated) as service:
        gate = client(service)
        first = await gate.call("old__ask")
        second = await gate.call("old__ask", more=answers(first, YES))
        (question,) = asked(second)[1].values()
        assert question["params"]["message"] == "`old` asks: Name?"
        third = await gate.call("old__ask", more=answers(second, ADA))
    assert "accept Ada" in text(third)
    assert server.calls == ["ask"]


@requirement("ACCESS-295")
async def test_a_denial_counts_although_no_rule_asks_any_more() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service:
        again = answers(await client(service).call(NAME, READ), NO)
        await service.app.state.gate.apply(Settings.model_validate({}))
        assert "Denied by the owner" in text(await client(service).call(NAME, READ, more=again))
    assert files.calls == []


@requirement("ACCESS-295", "CHAT-152")
@pytest.mark.parametrize(
    ("capabilities", "rule"),
    [({}, "always"), ({"elicitation": {"url": {}}}, "always"), (FORMS, {"by": "permission:approve:all"})],
)
async def test_a_client_that_cannot_decide_learns_where_a_person_does(capabilities: Any, rule: Any) -> None:
    files, rules = FileServer(), {"access": [{"match": "files:read_file", "approval": rule}]}
    async with running_service(upstreams=[files], settings=rules, public=True) as service:
        gate = WireClient(service, path="/mcp", capabilities=capabilities)
        call = {"tool_id": IDS["read_file"], "args": READ}
        refused = (await gate.call("tool_execute", call))["result"]
        same = (await gate.call("tool_execute", call))["result"]
        details = refused["structuredContent"]["details"]
        if rule == "always":
            ((waiting,),) = [(await desk(service))["waiting"]]
            assert waiting["id"] == details["id"]
            await decide(service, details["id"], "approve")
            assert not (await gate.call("tool_execute", call))["result"]["isError"]
    assert details["command"] == f"wicketgate approvals approve {details['id']}"
    assert details["console"] == f"{service.url}/console/approvals"
    assert details["command"] in refused["content"][0]["text"]
    assert same["structuredContent"]["details"] == details
    assert "apr_" not in str(refused)


@requirement("ACCESS-295")
async def test_the_question_and_the_decision_are_recorded(tmp_path: Path) -> None:
    async with running_service(upstreams=[FileServer()], settings=audited(tmp_path, **GATED)) as service:
        first = await client(service).call(NAME, READ)
        await client(service).call(NAME, READ, more=answers(first, YES))
    ends = [each["outcome"] for each in records(tmp_path, "execute") if each["phase"] == "end"]
    assert ends == ["approval_required", "allowed"]
    assert [each["outcome"] for each in records(tmp_path, "approval")] == ["allowed"]
