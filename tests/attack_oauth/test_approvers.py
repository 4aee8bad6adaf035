"""Callers who would be their own approvers, and approvers whose word should not count any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from tests.app.console.test_approvals import decide, desk, read
from tests.contract.test_other_approvers import KEYS, LEAD, SECOND, TWIN, ask_of, gated, key
from tests.support.issuer import Issuer
from tests.support.requirement import requirement
from tests.support.service import KEY, OPERATOR_KEY, OTHER_KEY, FileServer, RunningService, running_service
from wicketgate.access.approvers import Need, Persons, fulfilled, vote_of
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings

BOTH = "wg_both_0123456789012345678901234567890123456789"


def by(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def call(service: Any, secret: str) -> Any:
    body = {"operation": "/files/read_file", "input": {"path": "a.md"}}
    return await service.http.post("/operations/call", json=body, headers=by(secret))


@asynccontextmanager
async def with_ann(*same: list[str], count: int = 1) -> AsyncIterator[tuple[RunningService, str, FileServer]]:
    """Ann has a key, and a token with the role of approvers, which is given."""
    files = FileServer()
    async with Issuer() as issuer:
        entry = {"name": "corp", "issuer": issuer.url, "audience": ["gate"], "roles": "roles"}
        ann = key("ann", BOTH, "ann", roles=["lead"], permissions=["tools:*"])
        settings = gated(count=count, keys=[ann, *KEYS], server={"public_url": "http://127.0.0.1:1"})
        settings["auth"].update(issuers=[entry], same_person=same)
        async with running_service(upstreams=[files], settings=settings) as service:
            yield service, issuer.token(aud="gate", sub="ann", roles=["lead"]), files


@requirement("ACCESS-237")
async def test_one_person_with_a_key_and_a_token_does_not_approve_itself() -> None:
    async with with_ann(["ann", "corp:ann"]) as (service, hers, files):
        assert (await call(service, BOTH)).json()["code"] == "APPROVAL_REQUIRED"
        ask = await ask_of(service, BOTH)
        assert await decide(service, ask["id"], "approve", hers) == 404
        assert (await desk(service, hers))["waiting"] == []
        assert files.calls == []
        assert await decide(service, ask["id"], "approve", LEAD) == 200
        assert (await call(service, BOTH)).status_code == 200


@requirement("ACCESS-237")
async def test_one_person_with_a_key_and_a_token_is_one_approver() -> None:
    async with with_ann(["sven", "x"], ["ann", "corp:ann"], count=2) as (service, hers, _):
        await read(service)
        ask = await ask_of(service)
        assert await decide(service, ask["id"], "approve", BOTH) == 200
        assert (await ask_of(service, hers))["may_decide"] is False
        assert await decide(service, ask["id"], "approve", hers) == 409
        assert (await read(service)).status_code == 403
        assert await decide(service, ask["id"], "approve", SECOND) == 200
        assert (await read(service)).status_code == 200


@requirement("ACCESS-237")
async def test_a_reload_says_that_two_actors_are_one_person() -> None:
    async with with_ann(count=2) as (service, hers, _):
        await read(service)
        ask = await ask_of(service)
        assert await decide(service, ask["id"], "approve", BOTH) == 200
        before = service.app.state.gate.settings.auth
        auth = {**before.model_dump(exclude_unset=True), "same_person": [["ann", "corp:ann"]]}
        settings = {**gated(count=2, server={"public_url": "http://127.0.0.1:1"}), "auth": auth}
        await service.app.state.gate.apply(Settings.model_validate(settings))
        assert await decide(service, ask["id"], "approve", hers) == 409


@requirement("ACCESS-237")
@pytest.mark.parametrize(
    ("same", "expected"),
    [
        ([["ann"]], "two actors or more"),
        ([["ann", "b b"]], "not an actor"),
        ([["ann", "b"], ["c", "ann"]], "'ann' is used"),
    ],
)
def test_who_is_one_person_is_said_once_of_each_actor(same: list[list[str]], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        Settings.model_validate({"auth": {"same_person": same}})


@requirement("ACCESS-235")
def test_one_person_with_two_roles_is_not_the_approver_of_both_rules() -> None:
    """Two rules that name different roles ask for two pairs of eyes."""
    bea = Identity("bea", (), roles=("lead", "security"))
    needs = (Need("role:lead"), Need("role:security"))
    first = vote_of(needs, bea, "approve", 0.0)
    assert not fulfilled(needs, [first])
    # Whoever comes next takes the place that it can, and she the other.
    for role in ("lead", "security"):
        other = vote_of(needs, Identity("cyd", (), roles=(role,)), "approve", 1.0)
        assert fulfilled(needs, [first, other]) and fulfilled(needs, [other, first])
    # Who was told to be one person after both had voted has the word of both.
    bob = [vote_of(needs, Identity(name, (), roles=(name,)), "approve", 0.0) for name in ("lead", "security")]
    persons = Persons([("lead", "security")])
    assert fulfilled(needs, bob) and not fulfilled(needs, bob, persons)
    assert fulfilled(needs, [*bob, vote_of(needs, Identity("cyd", (), roles=("security",)), "approve", 1.0)], persons)
    two = (Need("role:lead", 2), Need("role:security"))
    votes = [vote_of(two, Identity(name, (), roles=("lead", "security")), "approve", 0.0) for name in "abc"]
    assert fulfilled(two, votes) and not fulfilled(two, votes[:2])


@requirement("ACCESS-236")
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


@requirement("ACCESS-236")
@pytest.mark.parametrize("how", ["gone", "suspended", "no role", "of another"])
async def test_who_lost_a_word_with_a_key_gives_it_anew_with_another(how: str) -> None:
    new = "wg_lead-2_0123456789012345678901234567890123456789"
    changes: dict[str, dict[str, Any]] = {
        "gone": {"id": "other", "sha256": "0" * 64},
        "suspended": {"suspended": True},
        "no role": {"roles": []},
        "of another": {"actor": "eve"},
    }
    keys = [{**each, **changes[how]} if each["id"] == "lead" else each for each in KEYS]
    files = FileServer()
    async with running_service(upstreams=[files], settings=gated(count=2)) as service:
        await read(service)
        ask = await ask_of(service)
        assert await decide(service, ask["id"], "approve", LEAD) == 200
        assert len((await ask_of(service, SECOND))["votes"]) == 1
        keys.append(key("lead-2", new, "lena", roles=["lead"]))
        await service.app.state.gate.apply(Settings.model_validate(gated(count=2, keys=keys)))
        assert (await ask_of(service, SECOND))["votes"] == []
        assert await decide(service, ask["id"], "approve", new) == 200
        assert await decide(service, ask["id"], "approve", SECOND) == 200
        assert (await read(service)).status_code == 200


@requirement("ACCESS-236")
@pytest.mark.parametrize("change", [None, {"audience": ["gate", "other"]}], ids=["gone", "changed"])
async def test_the_word_of_a_token_ends_with_its_issuer(change: dict[str, Any] | None) -> None:
    files = FileServer()
    async with Issuer() as issuer:
        entry = {"name": "corp", "issuer": issuer.url, "audience": ["gate"], "roles": "roles"}

        def with_issuers(*entries: dict[str, Any]) -> dict[str, Any]:
            settings = gated(count=2, server={"public_url": "http://127.0.0.1:1"})
            settings["auth"]["issuers"] = list(entries)
            return settings

        async with running_service(upstreams=[files], settings=with_issuers(entry)) as service:
            await read(service)
            ask = await ask_of(service)
            assert await decide(service, ask["id"], "approve", issuer.token(aud="gate", roles=["lead"])) == 200
            changed = [] if change is None else [{**entry, **change}]
            await service.app.state.gate.apply(Settings.model_validate(with_issuers(*changed)))
            assert await decide(service, ask["id"], "approve", LEAD) == 200
            assert (await read(service)).status_code == 403


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
        assert (await desk(service, OTHER_KEY)) == {"waiting": [], "decided": []}
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
