"""Acts of an operator at one gate, done at the other: servers switched and connected anew, definitions accepted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.console.test_accept import LATER, PAY
from tests.app.console.test_servers import WRITER, crashing, get, post, until
from tests.contract.replicas import SEAL
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.service import RunningService, running_service
from wicketgate.catalog.pins import pin_all
from wicketgate.config.lock_file import read_lock, write_lock
from wicketgate.upstreams.embedded import StubUpstream


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


def shared(redis: RedisServer, settings: dict[str, Any]) -> dict[str, Any]:
    auth = {"keys": [WRITER], **SEAL["auth"]}
    return {**settings, "storage": {"url": redis.url}, "auth": auth}


async def silent(wanted: Any) -> Any:
    raise RuntimeError


@requirement("OPS-294")
async def test_a_server_is_switched_and_connected_anew_at_both_gates(redis: RedisServer, tmp_path: Path) -> None:
    settings = shared(redis, crashing(tmp_path))
    async with (
        running_service(upstreams=None, settings=settings) as here,
        running_service(upstreams=None, settings=settings) as there,
    ):

        async def state(service: RunningService) -> tuple[bool, bool]:
            found = await get(service, "servers/bad")
            return found["enabled"], found["switched"]

        async def ready() -> bool:
            return all([(await get(each, "servers/bad"))["state"] == "ready" for each in (here, there)])

        await until(ready)
        status, done = await post(here, "servers/bad/disable")
        assert (status, done["elsewhere"]) == (202, {"done": 1, "failed": 0, "unreached": 0})
        assert [await state(each) for each in (here, there)] == [(False, True)] * 2
        assert (await post(there, "servers/bad/disable"))[0] == 409
        assert (await post(there, "servers/bad/enable"))[0] == 202
        assert [await state(each) for each in (here, there)] == [(True, False)] * 2
        await until(ready)
        assert (await post(there, "servers/bad/reconnect"))[1]["elsewhere"]["done"] == 1
        kinds = [event["kind"] for event in (await get(here, "servers/bad"))["events"]]
        assert "reconnect" in kinds
        # One record, at the process that was asked.
        assert len((await get(here, "calls?operation=server"))["calls"]) == 1


@requirement("OPS-295")
async def test_a_gate_that_was_not_reached_is_told_and_caught_up_by_the_same_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    settings = shared(redis, crashing(tmp_path))
    async with (
        running_service(upstreams=None, settings=settings) as here,
        running_service(upstreams=None, settings=settings) as there,
    ):
        peers = there.app.state.gate.peers
        answers = peers._answers["console_operate"]
        peers.answer("console_operate", silent)
        status, done = await post(here, "servers/bad/disable")
        assert (status, done["elsewhere"]["unreached"]) == (202, 1)
        assert done["done"] == "disabled until the next reload; 1 other process could not be reached"
        assert (await get(here, "calls?operation=server"))["calls"][0]["detail"] == done["done"]
        assert (await get(there, "servers/bad"))["enabled"]
        status, refused = await post(here, "servers/bad/disable")
        assert status == 409
        assert "could not be reached" in refused["message"]
        peers.answer("console_operate", answers)
        assert (await post(here, "servers/bad/disable"))[0] == 202
        assert not (await get(there, "servers/bad"))["enabled"]


@requirement("OPS-296")
@pytest.mark.parametrize("one_file", [True, False], ids=["one file", "a file each"])
async def test_an_accepted_definition_is_in_force_at_both_gates(
    redis: RedisServer, tmp_path: Path, one_file: bool
) -> None:
    locks = [tmp_path / "a" / "wicketgate.lock", tmp_path / ("a" if one_file else "b") / "wicketgate.lock"]
    for lock in locks:
        lock.parent.mkdir(exist_ok=True)
        write_lock(lock, pin_all({"bank": [PAY]}))

    def settings(lock: Path) -> dict[str, Any]:
        return shared(redis, {"pins": {"file": str(lock), "suspicious": "quarantine"}})

    async with (
        running_service(upstreams=[StubUpstream([LATER], name="bank")], settings=settings(locks[0])) as here,
        running_service(upstreams=[StubUpstream([LATER], name="bank")], settings=settings(locks[1])) as there,
    ):
        (held,) = (await get(there, "held"))["held"]
        wanted = {"upstream": "bank", "tool": "pay", "digest": held["digest"]}
        status, accepted = await post(here, "accept", wanted)
        assert (status, accepted["shortfall"], accepted["elsewhere"]["done"]) == (200, "", 1)
        for service, lock in zip((here, there), locks, strict=True):
            assert (await get(service, "held"))["held"] == []
            assert read_lock(lock)["bank"]["pay"].sha256 == held["digest"]
        if not one_file:
            # A process that cannot take it is told.
            locks[1].write_text("broken")
            write_lock(locks[0], pin_all({"bank": [PAY]}))
            await here.app.state.gate.read_pins()
            status, accepted = await post(here, "accept", wanted)
            assert (status, accepted["elsewhere"]["failed"]) == (200, 1)
            assert "whose log says why" in accepted["shortfall"]


@requirement("OPS-354")
async def test_a_gate_that_starts_later_takes_over_what_is_switched_where_it_is_configured_alike(
    redis: RedisServer, tmp_path: Path
) -> None:
    settings = shared(redis, crashing(tmp_path))
    other = {**settings["upstreams"][0], "name": "other"}
    settings["upstreams"] = [*settings["upstreams"], other]
    async with running_service(upstreams=None, settings=settings) as here:
        for name in ("bad", "other"):
            assert (await post(here, f"servers/{name}/disable"))[0] == 202
        changed = {**settings, "upstreams": [settings["upstreams"][0], {**other, "timeout_s": 7.0}]}
        async with running_service(upstreams=None, settings=changed) as there:

            async def taken_over() -> bool:
                return not (await get(there, "servers/bad"))["enabled"]

            await until(taken_over)
            found = await get(there, "servers/other")
            assert (found["enabled"], found["switched"]) == (True, False)
