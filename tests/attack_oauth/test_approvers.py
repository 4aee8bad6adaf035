"""Callers who would be their own approvers, and approvers whose word should not count any more."""

import asyncio
from typing import Any

import pytest

from tests.app.console.test_approvals import decide, desk, read
from tests.contract.test_other_approvers import KEYS, LEAD, SECOND, TWIN, ask_of, gated, key
from tests.support.issuer import Issuer
from tests.support.requirement import requirement
from tests.support.service import KEY, OPERATOR_KEY, OTHER_KEY, FileServer, running_service
from wicketgate.access.approvers import Need, fulfilled, vote_of
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings

BOTH = "wg_both_0123456789012345678901234567890123456789"


def by(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def call(service: Any, secret: str) -> Any:
    body = {"operation": "/files/read_file", "input": {"path": "a.md"}}
    return await service.http.post("/operations/call", json=body, headers=by(secret))


@pytest.mark.xfail(strict=True, reason="two sources of callers are always two actors")
@requirement("ACCESS-172")
async def test_one_person_with_a_key_and_a_token_does_not_approve_itself() -> None:
    """A key and a token of one person are two actors, which the operator cannot say are one."""
    files = FileServer()
    async with Issuer() as issuer:
        entry = {"name": "corp", "issuer": issuer.url, "audience": ["gate"], "roles": "roles", "permissions": []}
        ann = key("ann", BOTH, "ann", permissions=["tools:*"])
        settings = gated(keys=[ann])
        settings["auth"]["issuers"] = [{**entry, "permissions": [{"grant": ["tools:*"]}]}]
        async with running_service(upstreams=[files], settings=settings, public=True) as service:
            assert (await call(service, BOTH)).json()["code"] == "APPROVAL_REQUIRED"
            hers = issuer.token(aud="gate", sub="ann", roles=["lead"])
            ask = await ask_of(service, hers)
            assert await decide(service, ask["id"], "approve", hers) in (403, 404)


@pytest.mark.xfail(strict=True, reason="each need is counted for itself")
@requirement("ACCESS-173", "ACCESS-176")
def test_one_person_with_two_roles_is_not_the_approver_of_both_rules() -> None:
    """Two rules that name different roles ask for two pairs of eyes."""
    bea = Identity("bea", (), roles=("lead", "security"))
    needs = (Need("role:lead"), Need("role:security"))
    assert not fulfilled(needs, [vote_of(needs, bea, "approve", 0.0)])


@pytest.mark.xfail(strict=True, reason="ACCESS-174: a word that was given before stays, whatever became of its key")
@requirement("ACCESS-174")
async def test_the_word_of_a_key_that_was_revoked_meanwhile_does_not_complete_an_approval() -> None:
    """Keys are revoked because they were stolen: what the thief approved is half of an approval."""
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated(count=2)) as service:
        await read(service)
        ask = await ask_of(service)
        assert await decide(service, ask["id"], "approve", LEAD) == 200
        without = [each for each in KEYS if each["id"] != "lead"]
        await service.app.state.gate.apply(Settings.model_validate(gated(count=2, keys=without)))
        assert await decide(service, ask["id"], "approve", SECOND) == 200
        assert (await read(service)).status_code == 403
        assert files.calls == []


@requirement("ACCESS-172", "ACCESS-173")
async def test_approvers_at_the_same_moment_run_it_once_and_its_caller_never() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated(count=2)) as service:
        await read(service)
        ask = await ask_of(service)
        secrets = [None, TWIN, LEAD, SECOND, LEAD, SECOND, OTHER_KEY, OPERATOR_KEY]
        answers = await asyncio.gather(*(decide(service, ask["id"], "approve", each) for each in secrets))
        assert answers[:2] == [403, 403] or set(answers[:2]) <= {403, 404}
        assert answers.count(200) == 2
        ran = await asyncio.gather(*(read(service) for _ in range(6)))
        assert sorted(each.status_code for each in ran) == [200, 403, 403, 403, 403, 403]
        assert len(files.calls) == 1


@requirement("CHAT-147", "ACCESS-171")
async def test_garbage_at_the_desk_decides_nothing_and_shows_nothing_of_others() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated()) as service:
        await read(service)
        ask = await ask_of(service)
        for body in (
            b"",
            b"[]",
            b'{"decision":"run"}',
            b'{"decision":["approve"]}',
            b'{"decision":"approve","decision":"x"}',
            b"{" * 999,
            b"x" * 5_000,
        ):
            answer = await service.http.post(f"/console/api/approvals/{ask['id']}", content=body, headers=by(LEAD))
            assert 400 <= answer.status_code < 500, body[:30]
        for id in ("x", "%00", "../approvals", ask["id"][:4], ask["id"].upper() + "A"):
            assert await decide(service, id, "approve", LEAD) in (404, 405), id
        assert (await desk(service, OTHER_KEY)) == {"waiting": [], "decided": [], "unreached": 0}
        assert files.calls == []
        # Cross-site: a form of another page cannot decide.
        form = await service.http.post(
            f"/console/api/approvals/{ask['id']}",
            data={"decision": "approve"},
            headers={**by(LEAD), "origin": "https://evil.example"},
        )
        assert form.status_code == 403
        assert KEY not in form.text


@requirement("ACCESS-171", "ACCESS-174")
async def test_one_who_is_no_approver_any_more_reads_no_arguments_of_what_was_decided() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated()) as service:
        await read(service)
        await decide(service, (await ask_of(service))["id"], "approve", LEAD)
        assert (await desk(service, LEAD))["decided"][0]["args"] == {"path": "a.md"}
        without = [{**each, "roles": []} if each["id"] == "lead" else each for each in KEYS]
        await service.app.state.gate.apply(Settings.model_validate(gated(keys=without)))
        assert (await desk(service, LEAD))["decided"] == []
        assert [each["args"] for each in (await desk(service, OPERATOR_KEY))["decided"]] == [None]


@requirement("CHAT-147")
@pytest.mark.parametrize("path", ["a.md ", "./a.md", "A.md", "a.md\u200b", "\u0430.md"])
async def test_arguments_that_look_alike_are_not_the_same(path: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated()) as service:
        await read(service)
        await decide(service, (await ask_of(service))["id"], "approve", LEAD)
        body = {"operation": "/files/read_file", "input": {"path": path}}
        assert (await service.http.post("/operations/call", json=body)).json()["code"] == "APPROVAL_REQUIRED"
        assert files.calls == []
