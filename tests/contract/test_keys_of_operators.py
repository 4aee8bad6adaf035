"""Keys that operators make, suspend and revoke in the console (ACCESS-340 to ACCESS-342)."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OPERATOR_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import KeySettings

ADMIN_KEY = "wg_admin_0123456789012345678901234567890123456789"
FILE_KEY = "wg_file_01234567890123456789012345678901234567890"
KEYS = [
    {
        "id": "admin",
        "sha256": hash_key(ADMIN_KEY),
        "actor": "olga",
        "permissions": ["ops:read", "ops:write", "tools:files:*", "keys:ann"],
        "roles": ["lead"],
    },
    {"id": "file", "sha256": hash_key(FILE_KEY), "actor": "fred", "permissions": ["tools:*"]},
]
ANN: dict[str, Any] = {"id": "ann-1", "actor": "ann", "permissions": ["tools:files:read_file"], "roles": ["lead"]}


def served(folder: Path | None = None) -> Any:
    storage = {} if folder is None else {"storage": {"url": f"sqlite:///{folder}/store.db"}}
    seal = {"seal_keys": ["k" * 40]}
    return running_service(upstreams=[FileServer()], settings={"auth": {"keys": KEYS, **seal}, **storage})


async def asked(
    service: RunningService, method: str, path: str, body: Any = None, key: str = ADMIN_KEY
) -> tuple[int, Mapping[str, Any]]:
    headers = {"Authorization": f"Bearer {key}"}
    answer = await service.http.request(method, f"/console/api/{path}", json=body, headers=headers)
    return answer.status_code, answer.json()


async def calls(service: RunningService, key: str) -> int:
    body = {"operation": "/files/read_file", "input": {"path": "a"}}
    headers = {"Authorization": f"Bearer {key}"}
    return (await service.http.post("/operations/call", json=body, headers=headers)).status_code


@requirement("ACCESS-340", "ACCESS-342")
async def test_a_key_is_made_used_suspended_and_revoked() -> None:
    async with served() as service:
        status, made = await asked(service, "POST", "keys", {**ANN, "days": 30})
        assert status == 201
        key = made["key"]
        assert key.startswith("wg_ann-1_")
        assert await calls(service, key) == 200
        listed = {each["id"]: each for each in (await asked(service, "GET", "keys"))[1]["keys"]}
        assert key not in str(listed) and hash_key(key) not in str(listed)
        ann = listed["ann-1"]
        assert (ann["actor"], ann["roles"], ann["made_here"], ann["state"]) == ("ann", ["lead"], True, "good")
        assert ann["expires_at"] == pytest.approx(listed["ann-1"]["last_used"] + 30 * 86_400, abs=60)
        assert listed["file"]["made_here"] is False
        for action, state, good in (
            ("suspend", "suspended", 401),
            ("resume", "good again", 200),
            ("revoke", "revoked", 401),
        ):
            assert await asked(service, "POST", f"keys/ann-1/{action}") == (200, {"done": state})
            assert await calls(service, key) == good
        assert (await asked(service, "POST", "keys/ann-1/revoke"))[0] == 404
        records = (await asked(service, "GET", "calls?operation=key"))[1]["calls"]
        assert [each["detail"] for each in reversed(records)] == [
            "ann-1 made for ann: tools:files:read_file, role:lead",
            "ann-1 suspended",
            "ann-1 good again",
            "ann-1 revoked",
        ]
        assert {each["actor"] for each in records} == {"olga"}


@requirement("ACCESS-340")
async def test_a_key_of_the_configuration_is_suspended_until_it_is_resumed() -> None:
    async with served() as service:
        assert await calls(service, FILE_KEY) == 200
        assert (await asked(service, "POST", "keys/file/suspend"))[0] == 200
        assert await calls(service, FILE_KEY) == 401
        gate = service.app.state.gate
        await gate.apply(gate.settings.model_copy(update={"quota": gate.settings.quota.model_copy()}))
        assert await calls(service, FILE_KEY) == 401
        status, told = await asked(service, "POST", "keys/file/revoke")
        assert (status, "configuration" in told["message"]) == (409, True)
        assert (await asked(service, "POST", "keys/file/resume"))[0] == 200
        assert await calls(service, FILE_KEY) == 200


@requirement("ACCESS-340")
async def test_all_processes_follow_and_a_later_start_knows_the_keys(tmp_path: Path) -> None:
    async with served(tmp_path) as one, served(tmp_path) as other:
        key = (await asked(one, "POST", "keys", ANN))[1]["key"]
        await until(lambda: _accepted(other, "ann-1"), bound_s=BOUND_S)
        assert await calls(other, key) == 200
        await asked(other, "POST", "keys/ann-1/suspend")
        await until(lambda: _accepted(one, "ann-1") == "suspended", bound_s=BOUND_S)
        assert await calls(one, key) == 401
        await asked(one, "POST", "keys/file/suspend")
    async with served(tmp_path) as later:
        assert (await calls(later, key), await calls(later, FILE_KEY)) == (401, 401)
        await asked(later, "POST", "keys/ann-1/resume")
        assert await calls(later, key) == 200


def _accepted(service: RunningService, id: str) -> str:
    found = next((each for each in service.app.state.gate.keys.accepted() if each.id == id), None)
    return "" if found is None else "suspended" if found.suspended else "good"


@requirement("ACCESS-340")
async def test_what_a_suspended_key_has_started_ends() -> None:
    async with served() as service:
        key = (await asked(service, "POST", "keys", {**ANN, "permissions": ["tools:files:*"]}))[1]["key"]
        headers = {"Authorization": f"Bearer {key}"}
        body = {"operation": "/files/slow", "input": {}}
        running = asyncio.create_task(service.http.post("/operations/call", json=body, headers=headers))
        server = service.app.state.gate.fleet.members["files"].upstream
        await until(lambda: server.slow_running, bound_s=BOUND_S)
        await asked(service, "POST", "keys/ann-1/suspend")
        async with asyncio.timeout(BOUND_S):
            await server.slow_cancelled.wait()
            await asyncio.gather(running, return_exceptions=True)


@requirement("ACCESS-341")
@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({"permissions": ["tools:*"]}, 403, "tools:*"),
        ({"permissions": ["*"]}, 403, "*"),
        ({"roles": ["boss"]}, 403, "role:boss"),
        ({"permissions": ["role:lead"]}, 400, "permissions"),
        ({"permissions": "tools:*"}, 400, "permissions"),
        ({"id": "Ann 1"}, 400, "id"),
        ({"id": None}, 400, "id"),
        ({"id": "file"}, 409, "id"),
        ({"actor": ""}, 400, "actor"),
        ({"days": 0}, 400, "days"),
        ({"days": True}, 400, "days"),
        ({"days": 10**9}, 400, "days"),
        ({"actor": "bert"}, 403, "keys:bert"),
        ({"permissions": [f"tools:files:{at}" for at in range(101)]}, 400, "100"),
    ],
)
async def test_nobody_grants_what_they_do_not_have_and_odd_fields_are_named(
    change: Mapping[str, Any], status: int, told: str
) -> None:
    async with served() as service:
        before = len(service.app.state.gate.keys.accepted())
        answer, message = await asked(service, "POST", "keys", {**ANN, **change})
        code = {400: "invalid_request", 403: "forbidden", 409: "conflict"}[status]
        assert (answer, message["code"], told in message["message"]) == (status, code, True), message
        assert len(service.app.state.gate.keys.accepted()) == before


@requirement("ACCESS-340")
async def test_of_two_changes_at_the_same_time_one_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as one, served(tmp_path) as other:
        wanted = [{**ANN, "permissions": [f"tools:files:{name}"]} for name in ("a", "b")]
        made = await asyncio.gather(asked(one, "POST", "keys", wanted[0]), asked(other, "POST", "keys", wanted[1]))
        assert sorted(status for status, _ in made) == [201, 409]
        await until(lambda: all(_accepted(each, "ann-1") for each in (one, other)), bound_s=BOUND_S)
        (revoked, _), (suspended, _) = await asyncio.gather(
            asked(one, "POST", "keys/ann-1/revoke"), asked(other, "POST", "keys/ann-1/suspend")
        )
        assert 200 in (revoked, suspended)
        left = "" if revoked == 200 else "suspended"
        await until(lambda: all(_accepted(each, "ann-1") == left for each in (one, other)), bound_s=BOUND_S)


@requirement("ACCESS-340")
async def test_what_the_file_says_is_changed_there() -> None:
    keys = [*KEYS, {"id": "held", "sha256": "1" * 64, "actor": "hal", "suspended": True}]
    async with running_service(settings={"auth": {"keys": keys, "seal_keys": ["k" * 40]}}) as service:
        status, told = await asked(service, "POST", "keys/held/resume")
        assert (status, "configuration" in told["message"]) == (409, True)


@requirement("ACCESS-340")
async def test_a_made_key_that_the_file_takes_over_stays_suspendable() -> None:
    async with served() as service:
        key = (await asked(service, "POST", "keys", ANN))[1]["key"]
        gate = service.app.state.gate
        taken = KeySettings(id="ann-1", sha256=hash_key(key), actor="ann", permissions=("tools:files:*",))
        auth = gate.settings.auth.model_copy(update={"keys": (*gate.settings.auth.keys, taken)})
        await gate.apply(gate.settings.model_copy(update={"auth": auth}))
        assert (await asked(service, "POST", "keys/ann-1/revoke"))[0] == 409
        for action, answer in (("suspend", 401), ("resume", 200)):
            assert (await asked(service, "POST", f"keys/ann-1/{action}"))[0] == 200
            assert await calls(service, key) == answer


@requirement("ACCESS-341")
async def test_only_operators_change_keys_and_nobody_their_own() -> None:
    async with served() as service:
        for key in (KEY, OPERATOR_KEY, FILE_KEY):
            for path, body in (("keys", ANN), ("keys/file/suspend", None)):
                assert (await asked(service, "POST", path, body, key))[0] == 403
        assert (await asked(service, "POST", "keys/admin/suspend"))[0] == 409
        assert (await asked(service, "POST", "keys/file/resume"))[0] == 409
        assert (await asked(service, "POST", "keys/nobody/suspend"))[0] == 404
        assert (await asked(service, "POST", "keys/file/delete"))[0] == 404
