"""A key that a reload takes back at one process is good at none (OPS-486)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.contract.replicas import SEAL
from tests.contract.test_revocation import (
    ADA,
    ADA_KEY,
    ADA_NEXT,
    ADA_NEXT_KEY,
    BOB,
    BOB_KEY,
    by,
    listening_chat,
    operation,
    rest,
    until_running,
)
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import BOUND_S, FileServer, RunningService, running_service
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings
from wicketgate.models.provider import TextDelta
from wicketgate.storage.store import Append, Kind, Put


def settings(redis_url: str, keys: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"auth": {"keys": list(keys), **SEAL["auth"]}, "storage": {"url": redis_url}}


async def reload(service: RunningService, redis_url: str, keys: Sequence[dict[str, Any]]) -> None:
    await service.app.state.gate.apply(Settings(**settings(redis_url, keys)))


async def status(service: RunningService, key: str) -> int:
    return (await service.http.get("/operations", headers=by(key))).status_code


async def until_status(service: RunningService, key: str, wanted: int) -> None:
    await until(lambda: status(service, key), lambda now: now == wanted)


@pytest.mark.parametrize("keys", [[BOB], [{**ADA, "suspended": True}, BOB]], ids=["removed", "suspended"])
@requirement("OPS-486")
async def test_a_reload_at_one_gate_ends_at_the_other_what_the_key_has_started(
    redis_url: str, keys: list[dict[str, Any]]
) -> None:
    files, go_on = FileServer(), asyncio.Event()
    turn = [[TextDelta("one")], go_on, *says("two")]
    before = settings(redis_url, [ADA, BOB])
    async with (
        running_service(upstreams=[], settings=before) as here,
        running_service(ScriptModel(turn, turn), [files], settings=before) as there,
    ):
        _, ada = await listening_chat(there, ADA_KEY)
        _, bob = await listening_chat(there, BOB_KEY)
        calls = [asyncio.create_task(operation(there, key)) for key in (ADA_KEY, BOB_KEY)]
        await until_running(files, 2)
        await reload(here, redis_url, keys)
        ends = await rest(ada)
        async with asyncio.timeout(BOUND_S):
            assert (await calls[0]).status_code == 401
        assert [await status(there, key) for key in (ADA_KEY, BOB_KEY)] == [401, 200]
        go_on.set()
        files.release.set()
        others = await rest(bob)
        assert (await calls[1]).status_code == 200
        # The news name the key by its id and hash.
        log = await there.app.state.gate.shared.store.read_log(Kind("news"), "all", 0, 0, 1_000)
        (entry,) = [data for _, data in log if b'"keys"' in data][-1:]
        assert hash_key(ADA_KEY).encode() in entry
        assert ADA_KEY.encode() not in entry
    assert [(event, data["finish_reason"]) for event, data in ends] == [("done", "cancelled")]
    assert [event for event, _ in others] == ["text-delta", "done"]


@requirement("OPS-486")
async def test_a_revoked_key_stays_so_until_it_is_accepted_again_anywhere(redis_url: str) -> None:
    before = settings(redis_url, [ADA, BOB])
    async with running_service(settings=before) as here, running_service(settings=before) as there:
        assert [await status(there, key) for key in (ADA_KEY, BOB_KEY)] == [200, 200]
        await reload(here, redis_url, [BOB])
        await until_status(there, ADA_KEY, 401)
        # What puts other things in force does not bring it back.
        await there.app.state.gate.applied.read_pins()
        assert await status(there, ADA_KEY) == 401
        await reload(here, redis_url, [ADA, BOB])
        await until_status(there, ADA_KEY, 200)
        # A reload of its own configuration overrides earlier news.
        await reload(here, redis_url, [BOB])
        await until_status(there, ADA_KEY, 401)
        await reload(there, redis_url, [ADA, BOB])
        assert await status(there, ADA_KEY) == 200
        await until_status(here, BOB_KEY, 200)
        assert await status(here, ADA_KEY) == 401


@requirement("OPS-486")
async def test_a_rotated_key_and_another_one_under_the_id_are_not_touched(redis_url: str) -> None:
    new = {**ADA, "sha256": hash_key(ADA_NEXT_KEY)}
    async with (
        running_service(settings=settings(redis_url, [ADA, BOB])) as here,
        running_service(settings=settings(redis_url, [new, BOB])) as there,
        running_service(settings=settings(redis_url, [ADA, ADA_NEXT])) as third,
    ):
        await reload(here, redis_url, [BOB])
        await until_status(third, ADA_KEY, 401)
        assert await status(third, ADA_NEXT_KEY) == 200
        assert await status(there, ADA_NEXT_KEY) == 200


@requirement("OPS-486", "OPS-487")
async def test_news_of_keys_that_nobody_wrote_end_nothing(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running_service(settings=settings(redis_url, [ADA, BOB])) as service:
        gate = service.app.state.gate
        damaged: list[dict[str, Any]] = [
            {"revoked": [["ada"]], "accepted": []},
            {"revoked": None, "accepted": []},
            {},
            {"revoked": "x"},
        ]
        for facts in damaged:
            await gate.shared.store.step(_foreign(gate, facts))
        await gate.shared.store.step(_foreign(gate, {"revoked": [["eve", ADA["sha256"]]], "accepted": []}))
        await until(lambda: caplog.text.count("damaged row (news 'all, keys')") >= 4)
        assert await status(service, ADA_KEY) == 200


def _foreign(gate: Any, facts: dict[str, Any]) -> list[Any]:
    ops = gate.shared.news.ops("keys", **facts)
    entry = ops[1].entries[0].replace(gate.shared.process.id.encode(), b"another")
    return [Put(Kind("news"), "all", b""), Append(Kind("news"), "all", 0, -1, [entry]), ops[2]]
