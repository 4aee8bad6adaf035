"""Approvers who are not the caller, over two gates that share a Redis."""

from typing import Any

import pytest

from tests.app.console.test_approvals import decide, desk, read, waiting_totals
from tests.app.console.test_approvals_anywhere import heard
from tests.contract.replicas import two_gates
from tests.contract.test_approvals import READ, Conversation, asked, results
from tests.contract.test_other_approvers import KEYS, LEAD, SECOND, TWIN, ask_of, gated
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import OPERATOR_KEY, OTHER_KEY, FileServer, running_service
from tests.support.until import until
from wicketgate.config.settings import Settings


def shared(redis: RedisServer, count: int = 1) -> dict[str, Any]:
    return gated(count=count, storage={"url": redis.url})


@requirement("CHAT-154")
async def test_approvers_at_two_gates_complete_a_call_that_runs_once_at_either(redis: RedisServer) -> None:
    files, others = FileServer(), FileServer()
    settings = gated(count=2)
    async with (
        two_gates(redis.url, [[files], [others]], **settings) as (here, there),
        heard(there) as news,
    ):
        await read(here)
        assert (await news.get())["change"] == "new"
        ask = await ask_of(there)
        assert (ask["args"], ask["may_decide"], ask["needs"]) == ({"path": "a.md"}, True, "2 of role:lead")
        assert (await ask_of(there, OPERATOR_KEY))["args"] is None
        assert (await desk(there, OTHER_KEY))["waiting"] == []
        assert [await waiting_totals(there, each) for each in (LEAD, OTHER_KEY)] == [1, 0]
        for key, status in ((None, 403), (TWIN, 403), (OTHER_KEY, 404), (LEAD, 200), (LEAD, 409)):
            assert await decide(there, ask["id"], "approve", key) == status
        assert [each["actor"] for each in (await ask_of(there, SECOND))["votes"]] == ["lena"]
        assert (await read(there)).json()["code"] == "APPROVAL_REQUIRED"
        assert await decide(here, ask["id"], "approve", SECOND) == 200
        assert sorted([(await read(there)).status_code, (await read(here)).status_code]) == [200, 403]
        assert len(files.calls) + len(others.calls) == 1


@requirement("CHAT-154", "CHAT-151")
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_chat_goes_on_at_the_other_gate(redis: RedisServer, decision: str) -> None:
    files, others = FileServer(), FileServer()
    async with (
        running_service(ScriptModel(calls(READ)), [files], settings=shared(redis)) as here,
        running_service(ScriptModel(says("done")), [others], settings=shared(redis)) as there,
    ):
        talk = Conversation(here)
        assert asked(await talk.go_on()).keys() == {"c1"}
        assert await decide(there, (await ask_of(there))["id"], decision, LEAD) == 200
        talk.service = there
        result = results(await talk.go_on())["c1"]
        assert result.get("error") == (None if decision == "approve" else "denied by an approver")
        assert len(others.calls) == (decision == "approve")


@requirement("ACCESS-236")
async def test_a_vote_ends_at_all_gates_with_its_key_at_one(redis: RedisServer) -> None:
    files, others = FileServer(), FileServer()
    async with two_gates(redis.url, [[files], [others]], **gated(count=2)) as (here, there):
        await read(here)
        ask = await ask_of(there)
        assert await decide(there, ask["id"], "approve", LEAD) == 200
        # Used at both, and removed from one.
        assert len((await ask_of(here))["votes"]) == 1
        without = [each for each in KEYS if each["id"] != "lead"]
        changed = {**gated(count=2, keys=without), "storage": {"url": redis.url}}
        await here.app.state.gate.apply(Settings.model_validate(changed))
        await until(lambda: ask_of(there, SECOND), lambda ask: not ask["votes"])
        assert await decide(there, ask["id"], "approve", SECOND) == 200
        assert (await read(here)).json()["code"] == "APPROVAL_REQUIRED"
        assert files.calls == others.calls == []
