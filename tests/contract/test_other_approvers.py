"""Calls that wait for an approver who is not their caller."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.console.test_approvals import decide, desk, read, waiting_totals
from tests.contract.test_approvals import READ, Conversation, asked, results
from tests.contract.test_audited_service import audited, records
from tests.contract.test_tool_calls import IDS
from tests.support.issuer import Issuer
from tests.support.mcp_client import NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import OPERATOR_KEY, OTHER_KEY, FileServer, RunningService, running_service
from wicketgate.access.approvers import Need
from wicketgate.access.identity import Identity, hash_key
from wicketgate.access.policy import AccessPolicy, AccessRule, NeedsApproval
from wicketgate.config.settings import Settings

LEAD = "wg_lead_0123456789012345678901234567890123456789"
SECOND = "wg_second_0123456789012345678901234567890123456789"
TWIN = "wg_twin_0123456789012345678901234567890123456789"
"""Another key of the caller, with the role."""
PAYER = "wg_payer_0123456789012345678901234567890123456789"


def key(id: str, secret: str, actor: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "sha256": hash_key(secret), "actor": actor, "permissions": ["nothing"], **more}


KEYS = [
    key("lead", LEAD, "lena", roles=["lead"]),
    key("second", SECOND, "sven", roles=["lead"]),
    key("twin", TWIN, "owner_1", roles=["lead"], permissions=["tools:*"]),
    key("payer", PAYER, "paul", permissions=["approve:payments"]),
]


def gated(by: str = "role:lead", count: int = 1, keys: Any = KEYS, **more: Any) -> dict[str, Any]:
    rule = {"match": "files:read_file", "approval": {"by": by, "count": count}}
    return {"access": [rule], "auth": {"keys": keys, "seal_keys": ["k" * 40]}, **more}


async def ask_of(service: RunningService, secret: str | None = LEAD) -> dict[str, Any]:
    (ask,) = (await desk(service, secret))["waiting"]
    found: dict[str, Any] = ask
    return found


@requirement("ACCESS-170", "ACCESS-171", "CHAT-146", "CHAT-147")
async def test_one_with_the_role_sees_the_call_with_its_arguments_and_it_runs_once() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated()) as service:
        refused = (await read(service)).json()
        assert (refused["code"], refused["details"]["by"]) == ("APPROVAL_REQUIRED", "role:lead")
        assert "role:lead" in refused["message"] and "Approvals" in refused["message"]
        await read(service)
        # The approver may use no tool at all, and sees all that it decides on.
        ask = await ask_of(service)
        assert (ask["actor"], ask["tool_id"], ask["args"], ask["needs"], ask["own"]) == (
            "owner_1",
            IDS["read_file"],
            {"path": "a.md"},
            "role:lead",
            False,
        )
        assert (ask["may_decide"], ask["approver"], ask["votes"]) == (True, True, [])
        assert ask["definition"] == service.app.state.gate.runtime.catalog().items[IDS["read_file"]].digest
        # The caller sees that it waits, and for whom; who may read the gate, without arguments; others nothing.
        own = await ask_of(service, None)
        assert (own["may_decide"], own["args"], own["needs"]) == (False, {"path": "a.md"}, "role:lead")
        operator = await ask_of(service, OPERATOR_KEY)
        assert (operator["args"], operator["may_decide"]) == (None, False)
        assert (await desk(service, OTHER_KEY))["waiting"] == (await desk(service, PAYER))["waiting"] == []
        assert [await waiting_totals(service, each) for each in (None, LEAD, OTHER_KEY)] == [1, 1, 0]
        assert await decide(service, ask["id"], "approve", OTHER_KEY) == 404
        assert await decide(service, ask["id"], "approve", OPERATOR_KEY) == 403
        assert await decide(service, ask["id"], "approve", LEAD) == 200
        ran = await asyncio.gather(*(read(service) for _ in range(3)))
        assert sorted(each.status_code for each in ran) == [200, 403, 403]
        assert len(files.calls) == 1
        (decided,) = (await desk(service, LEAD))["decided"]
        assert (decided["decision"], decided["used"]) == ("approve", True)
        assert [(each["actor"], each["decision"]) for each in decided["votes"]] == [("lena", "approve")]


@requirement("ACCESS-172")
async def test_nobody_approves_a_call_of_its_own_by_whichever_key() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated()) as service:
        await read(service)
        ask = await ask_of(service)
        assert await decide(service, ask["id"], "approve") == 403
        assert await decide(service, ask["id"], "approve", TWIN) == 403
        assert (await ask_of(service, TWIN))["may_decide"] is False
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        assert files.calls == []


@requirement("ACCESS-170")
@pytest.mark.parametrize(("by", "secret"), [("permission:approve:payments", PAYER), ("actor:lena", LEAD)])
async def test_approvers_are_named_by_permission_or_by_actor(by: str, secret: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated(by)) as service:
        await read(service)
        ask = await ask_of(service, secret)
        assert await decide(service, ask["id"], "approve", SECOND) == 404
        assert await decide(service, ask["id"], "approve", secret) == 200
        assert (await read(service)).status_code == 200


@requirement("ACCESS-170")
async def test_by_caller_is_the_approval_of_the_caller() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated("caller")) as service:
        assert (await read(service)).json()["details"].get("by") is None
        ask = await ask_of(service, None)
        assert (ask["needs"], ask["may_decide"]) == ("", True)
        assert await decide(service, ask["id"], "approve") == 200
        assert (await read(service)).status_code == 200


@requirement("ACCESS-177")
async def test_the_schema_of_an_operation_says_who_has_to_approve() -> None:
    async with running_service(upstreams=[FileServer()], settings=gated(count=2)) as service:
        answer = await service.http.get("/operations/schema", params={"name": "/files/read_file"})
    control = answer.json()["access_control"]
    assert (control["approval"], control["approval_by"]) == ("always", ["2 of role:lead"])


@requirement("ACCESS-173", "CHAT-148")
async def test_two_approvers_are_two_actors_and_the_second_completes_it() -> None:
    files = FileServer()
    keys = [*KEYS, key("lead2", "wg_lead2_012345678901234567890", "lena", roles=["lead"])]
    async with running_service(upstreams=[files], settings=gated(count=2, keys=keys)) as service:
        assert (await read(service)).json()["details"]["by"] == "2 of role:lead"
        ask = await ask_of(service)
        assert await decide(service, ask["id"], "approve", LEAD) == 200
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        # The same actor is one approver, with every key.
        assert await decide(service, ask["id"], "approve", LEAD) == 409
        assert await decide(service, ask["id"], "approve", "wg_lead2_012345678901234567890") == 409
        seen = await ask_of(service, LEAD)
        assert (seen["id"], seen["may_decide"]) == (ask["id"], False)
        assert [each["actor"] for each in (await ask_of(service, SECOND))["votes"]] == ["lena"]
        assert files.calls == []
        assert await decide(service, ask["id"], "approve", SECOND) == 200
        assert (await read(service)).status_code == 200
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        assert len(files.calls) == 1


@requirement("ACCESS-173", "CHAT-149")
async def test_a_denial_of_any_approver_ends_it_and_refuses_the_next_same_call_once() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated(count=2)) as service:
        await read(service)
        ask = await ask_of(service)
        await decide(service, ask["id"], "approve", LEAD)
        assert await decide(service, ask["id"], "deny", SECOND) == 200
        assert await decide(service, ask["id"], "approve", LEAD) == 404
        refused = (await read(service)).json()
        assert (refused["code"], refused["message"]) == ("FORBIDDEN", "Denied by an approver. It was not run.")
        assert (await read(service)).json()["code"] == "APPROVAL_REQUIRED"
        assert files.calls == []


@requirement("CHAT-149")
async def test_its_caller_may_withdraw_a_call() -> None:
    async with running_service(upstreams=[FileServer()], settings=gated()) as service:
        await read(service)
        ask = await ask_of(service)
        assert await decide(service, ask["id"], "deny") == 200
        assert (await desk(service, LEAD))["waiting"] == []


@requirement("ACCESS-174")
async def test_a_role_that_ended_decides_nothing_any_more() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated()) as service:
        await read(service)
        ask = await ask_of(service)
        without = [{**each, "roles": []} if each["id"] == "lead" else each for each in KEYS]
        await service.app.state.gate.apply(Settings.model_validate(gated(keys=without)))
        assert await decide(service, ask["id"], "approve", LEAD) == 404
        assert (await desk(service, LEAD))["waiting"] == []
        assert await decide(service, ask["id"], "approve", SECOND) == 200


@requirement("ACCESS-175")
async def test_a_rule_that_asks_for_others_since_needs_their_approval() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated("caller")) as service:
        await read(service)
        await decide(service, (await ask_of(service, None))["id"], "approve")
        await service.app.state.gate.apply(Settings.model_validate(gated()))
        assert (await read(service)).json()["details"]["by"] == "role:lead"
        assert files.calls == []
        await decide(service, (await ask_of(service))["id"], "approve", LEAD)
        assert (await read(service)).status_code == 200


@requirement("CHAT-147")
async def test_other_arguments_need_an_approval_of_their_own() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated()) as service:
        await read(service)
        await decide(service, (await ask_of(service))["id"], "approve", LEAD)
        other = {"operation": "/files/read_file", "input": {"path": "A.md"}}
        assert (await service.http.post("/operations/call", json=other)).json()["code"] == "APPROVAL_REQUIRED"
        assert files.calls == []


@requirement("CHAT-150", "CHAT-151")
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "idempotency-key"])
async def test_a_chat_ends_and_its_next_post_goes_on_with_what_the_approver_decided(keyed: bool) -> None:
    files = FileServer()
    model = ScriptModel(calls(READ), says("It says hello."))
    async with running_service(model, [files], settings=gated()) as service:
        talk = Conversation(service)
        number = iter(range(9))

        async def go_on(*decisions: tuple[str, str]) -> Any:
            talk.request = {"headers": {"Idempotency-Key": f"run-{next(number)}"}} if keyed else {}
            return await talk.go_on(*decisions)

        stream = await go_on()
        assert stream[-1][1]["finish_reason"] == "approval_required"
        id, _, by = asked(stream)["c1"].partition(" by ")
        assert by == "role:lead"
        ask = await ask_of(service)
        assert (ask["door"], ask["args"]) == ("chat", {"path": "a.md"})
        assert await decide(service, ask["id"], "approve", LEAD) == 200
        # The client says nothing of it, or says that it was approved: both go on.
        stream = await (go_on((id, "approve")) if keyed else go_on())
        assert json.loads(results(stream)["c1"]["output"])["summary"] == "contents of a.md"
        assert stream[-1][1]["finish_reason"] == "stop"
        assert len(files.calls) == 1


@requirement("ACCESS-172", "CHAT-150")
async def test_the_owner_of_a_chat_cannot_approve_what_others_have_to() -> None:
    files = FileServer()
    model = ScriptModel(calls(READ), calls(READ), says("ended"))
    async with running_service(model, [files], settings=gated()) as service:
        talk = Conversation(service)
        id = asked(await talk.go_on())["c1"].partition(" by ")[0]
        # With the call in the history, and without it.
        stream = await talk.go_on((id, "approve"))
        assert results(stream)["c1"]["error"].startswith("approval_refused")
        first = (await desk(service, LEAD))["waiting"][0]
        talk.messages = [{"role": "user", "content": "read it"}]
        await talk.go_on((id, "approve"))
        assert files.calls == []
        # It waits for its approver all the same.
        assert first["needs"] == "role:lead"
        assert await decide(service, first["id"], "approve", LEAD) == 200
        assert (await read(service)).status_code == 200


@requirement("ACCESS-175", "CHAT-150")
@pytest.mark.parametrize("in_history", [True, False])
async def test_an_approval_that_the_owner_brings_after_the_rule_named_others_runs_nothing(in_history: bool) -> None:
    files = FileServer()
    model = ScriptModel(calls(READ), says("ended") if in_history else calls(READ))
    async with running_service(model, [files], settings=gated("caller")) as service:
        talk = Conversation(service)
        id = asked(await talk.go_on())["c1"]
        await service.app.state.gate.apply(Settings.model_validate(gated()))
        if not in_history:
            talk.messages = [{"role": "user", "content": "read it"}]
        result = results(await talk.go_on((id, "approve")))["c1"]
        refused = "approval_refused: the approval of others is needed now"
        assert result["error"] == refused if in_history else result["error"].endswith(" by role:lead")
        assert files.calls == []


@requirement("ACCESS-170")
async def test_an_approver_may_have_its_role_by_a_token() -> None:
    async with Issuer() as issuer:
        corp = {"name": "corp", "issuer": issuer.url, "audience": ["gate"], "roles": "claims.roles"}
        settings = gated()
        settings["auth"]["issuers"] = [corp]
        settings["server"] = {"public_url": "https://gate.example"}
        async with running_service(upstreams=[FileServer()], settings=settings) as service:
            await read(service)
            without = issuer.token(aud="gate", sub="tom", roles=["clerk"])
            assert (await desk(service, without))["waiting"] == []
            token = issuer.token(aud="gate", sub="tess", roles=["lead"])
            assert await decide(service, (await ask_of(service, token))["id"], "approve", token) == 200
            assert (await read(service)).status_code == 200


@requirement("CHAT-68", "CHAT-70")
@pytest.mark.parametrize("by", ["caller", "role:lead"])
async def test_a_chat_cannot_approve_what_was_denied_elsewhere(by: str) -> None:
    files = FileServer()
    async with running_service(ScriptModel(calls(READ), says("A pity.")), [files], settings=gated(by)) as service:
        talk = Conversation(service)
        id = asked(await talk.go_on())["c1"].partition(" by ")[0]
        decider = None if by == "caller" else LEAD
        assert await decide(service, (await ask_of(service, decider))["id"], "deny", decider) == 200
        assert results(await talk.go_on((id, "approve")))["c1"]["error"].startswith(("approval_refused", "denied"))
        assert files.calls == []


@requirement("CHAT-151")
async def test_a_chat_learns_of_a_denial() -> None:
    files = FileServer()
    async with running_service(ScriptModel(calls(READ), says("A pity.")), [files], settings=gated()) as service:
        talk = Conversation(service)
        await talk.go_on()
        await decide(service, (await ask_of(service))["id"], "deny", LEAD)
        assert results(await talk.go_on())["c1"]["error"] == "denied by an approver"
        assert files.calls == []


@requirement("CHAT-152")
@pytest.mark.parametrize("mode", [OLD, NEW])
async def test_an_mcp_client_is_not_asked_but_told_who_decides_and_its_retry_runs(mode: str) -> None:
    async def never(context: Any, params: Any) -> Any:
        raise AssertionError("the caller is not the one to ask")

    files, made = FileServer(), {"tool_id": IDS["read_file"], "args": {"path": "a.md"}}
    async with (
        running_service(upstreams=[files], settings=gated()) as service,
        mcp_client(service, mode, client={"elicitation_callback": never}) as client,
    ):
        tried = await client.call_tool("tool_execute", {**made, "dry_run": True})
        assert tried.structured_content is not None
        assert tried.structured_content["checks"]["approval_by"] == "role:lead"
        refused = await client.call_tool("tool_execute", made)
        assert refused.is_error and refused.structured_content is not None
        assert refused.structured_content["error"] == "APPROVAL_REQUIRED"
        assert refused.structured_content["details"]["by"] == "role:lead"
        await decide(service, (await ask_of(service))["id"], "approve", LEAD)
        assert not (await client.call_tool("tool_execute", made)).is_error
    assert len(files.calls) == 1


@requirement("CHAT-153")
async def test_each_decision_is_recorded_with_who_decided_and_on_what(tmp_path: Path) -> None:
    settings = audited(tmp_path, **gated(count=2))
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        await read(service)
        ask = await ask_of(service)
        await decide(service, ask["id"], "approve", LEAD)
        await decide(service, ask["id"], "approve", SECOND)
        await read(service)
    decisions = [each for each in records(tmp_path, "approval") if each["actor"] != "owner_1"]
    assert [(each["actor"], each["key_id"], each["outcome"]) for each in decisions] == [
        ("lena", "lead", "allowed"),
        ("sven", "second", "allowed"),
    ]
    for each in decisions:
        assert "owner_1" in each["detail"] and ask["definition"] in each["detail"] and "role:lead" in each["detail"]
        assert each["tool_id"] == IDS["read_file"]
    (call,) = [each for each in records(tmp_path, "execute") if each["outcome"] == "allowed" and each["phase"] == "end"]
    assert {each["arguments_sha256"] for each in decisions} == {call["arguments_sha256"]} != {""}


@requirement("ACCESS-176")
def test_names_that_meet_different_rules_need_the_approvers_of_both() -> None:
    policy = AccessPolicy(
        [
            AccessRule("a:pay", approval=Need("role:lead")),
            AccessRule("b:pay", approval=Need("actor:ann")),
            AccessRule("c:pay", approval="always"),
        ]
    )
    ann = Identity("bob", ("tools:*",))
    both = policy.decide(ann, (("a", ("pay",)), ("b", ("pay",)), ("c", ("pay",))), {})
    assert both == NeedsApproval((Need("role:lead"), Need("actor:ann")))
    assert policy.decide(ann, (("c", ("pay",)),), {}) == NeedsApproval()


@requirement("OPS-533")
async def test_metrics_show_how_many_calls_wait_for_an_approval() -> None:
    async with running_service(upstreams=[FileServer()], settings=gated()) as service:
        assert "wicketgate_approvals_waiting 0.0" in (await service.metrics()).splitlines()
        await read(service)
        assert "wicketgate_approvals_waiting 1.0" in (await service.metrics()).splitlines()
        await decide(service, (await ask_of(service))["id"], "approve", LEAD)
        assert "wicketgate_approvals_waiting 0.0" in (await service.metrics()).splitlines()
