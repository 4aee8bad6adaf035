"""Acts of an operator at one gate, done at the other: servers switched and reconnected, definitions accepted."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.console.test_accept import LATER, PAY
from tests.app.console.test_servers import WRITER, crashing, get, post
from tests.contract.replicas import SEAL
from tests.support.requirement import requirement
from tests.support.service import RunningService, running_service
from tests.support.until import until
from wicketgate.catalog.pins import pin_all
from wicketgate.config.lock_file import read_lock, write_lock
from wicketgate.errors import ConfigError
from wicketgate.storage.encoding import hashed, packed
from wicketgate.storage.store import Kind, Put, StoreUnavailable
from wicketgate.upstreams.embedded import StubUpstream


def shared(redis_url: str, settings: dict[str, Any]) -> dict[str, Any]:
    auth = {"keys": [WRITER], **SEAL["auth"]}
    return {**settings, "storage": {"url": redis_url}, "auth": auth}


Gates = tuple[RunningService, RunningService]


@pytest.fixture
async def gates(redis_url: str, tmp_path: Path) -> AsyncIterator[Gates]:
    settings = shared(redis_url, crashing(tmp_path))
    async with (
        running_service(upstreams=None, settings=settings) as here,
        running_service(upstreams=None, settings=settings) as there,
    ):
        yield here, there


async def is_so(service: RunningService, *, enabled: bool, switched: bool, name: str = "bad") -> None:
    """Waits until the server is so at this gate."""

    async def so() -> bool:
        found = await get(service, f"servers/{name}")
        return (found["enabled"], found["switched"]) == (enabled, switched)

    await until(so)


async def outcomes_are(service: RunningService, *wanted: tuple[str, bool]) -> None:
    async def so() -> bool:
        found = (await get(service, "servers/bad"))["outcomes"]
        return sorted((each["act"], each["done"]) for each in found) == sorted(wanted)

    await until(so)


@requirement("OPS-294", "OPS-295")
async def test_a_server_is_switched_and_reconnected_at_both_gates(gates: Gates) -> None:
    here, there = gates

    async def ready() -> bool:
        return all([(await get(each, "servers/bad"))["state"] == "ready" for each in (here, there)])

    await until(ready)
    assert await post(here, "servers/bad/disable") == (
        202,
        {"done": "disabled until the next reload", "until_reload": True},
    )
    for each in (here, there):
        await is_so(each, enabled=False, switched=True)
        await outcomes_are(each, ("disable", True), ("disable", True))
    assert (await post(there, "servers/bad/disable"))[0] == 409
    assert (await post(there, "servers/bad/enable"))[0] == 202
    for each in (here, there):
        await is_so(each, enabled=True, switched=False)
    await until(ready)
    assert (await post(there, "servers/bad/reconnect"))[0] == 202
    await outcomes_are(here, ("reconnect", True), ("reconnect", True))
    kinds = [event["kind"] for event in (await get(here, "servers/bad"))["events"]]
    assert kinds.count("reconnect") == 1
    # One record, at the process that was asked.
    assert len((await get(here, "calls?operation=server"))["calls"]) == 1


@requirement("OPS-294")
async def test_gates_that_are_asked_for_different_things_at_once_end_up_alike(gates: Gates) -> None:
    here, there = gates
    for _ in range(5):
        await asyncio.gather(post(here, "servers/bad/disable"), post(there, "servers/bad/enable"))
        await post(here, "servers/bad/disable")
        await post(there, "servers/bad/enable")
    for each in (here, there):
        await is_so(each, enabled=True, switched=False)


@requirement("OPS-295")
async def test_a_gate_where_it_is_not_possible_is_shown_and_caught_up_by_the_same_request(
    gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = gates
    applied = there.app.state.gate.applied

    async def fails(name: str, *, enabled: bool) -> bool:
        raise ConfigError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(applied, "switch", fails)
        assert (await post(here, "servers/bad/disable"))[0] == 202
        await outcomes_are(here, ("disable", True), ("disable", False))
        assert (await get(there, "servers/bad"))["enabled"]
    assert (await post(here, "servers/bad/disable"))[0] == 202
    await is_so(there, enabled=False, switched=True)
    await outcomes_are(here, ("disable", True), ("disable", True))
    assert (await post(here, "servers/bad/disable"))[0] == 409


@requirement("OPS-295")
async def test_without_the_store_it_is_done_here_and_the_same_request_later_reaches_the_others(
    gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = gates

    async def unavailable(*given: Any, **more: Any) -> Any:
        raise StoreUnavailable("it is away")

    with monkeypatch.context() as patched:
        for name in ("step", "get", "of_owner", "read_log"):
            patched.setattr(here.app.state.gate.shared.store, name, unavailable)
        status, done = await post(here, "servers/bad/disable")
        assert (status, "at this process alone" in done["done"]) == (202, True)
        found = await get(here, "servers/bad")
        assert (found["enabled"], found["outcomes"]) == (False, None)
    assert (await get(there, "servers/bad"))["enabled"]
    assert (await post(here, "servers/bad/disable"))[0] == 202
    await is_so(there, enabled=False, switched=True)


@requirement("OPS-296")
@pytest.mark.parametrize("one_file", [True, False], ids=["one file", "a file each"])
async def test_an_accepted_definition_is_in_force_at_both_gates(
    redis_url: str, tmp_path: Path, one_file: bool, caplog: pytest.LogCaptureFixture
) -> None:
    locks = [tmp_path / "a" / "wicketgate.lock", tmp_path / ("a" if one_file else "b") / "wicketgate.lock"]
    for lock in locks:
        lock.parent.mkdir(exist_ok=True)
        write_lock(lock, pin_all({"bank": [PAY]}))

    def settings(lock: Path) -> dict[str, Any]:
        return shared(redis_url, {"pins": {"file": str(lock), "suspicious": "quarantine"}})

    async with (
        running_service(upstreams=[StubUpstream([LATER], name="bank")], settings=settings(locks[0])) as here,
        running_service(upstreams=[StubUpstream([LATER], name="bank")], settings=settings(locks[1])) as there,
    ):
        (held,) = (await get(there, "held"))["held"]
        wanted = {"upstream": "bank", "tool": "pay", "digest": held["digest"]}
        assert await post(here, "accept", wanted) == (200, {"accepted": "bank:pay"})

        async def nothing_held() -> bool:
            return all([(await get(each, "held"))["held"] == [] for each in (here, there)])

        await until(nothing_held)
        assert [read_lock(lock)["bank"]["pay"].sha256 for lock in locks] == [held["digest"]] * 2
        if not one_file:
            # A process that cannot follow has a line in its log.
            locks[1].write_text("broken")
            write_lock(locks[0], pin_all({"bank": [PAY]}))
            await here.app.state.gate.applied.read_pins()
            assert (await post(here, "accept", wanted))[0] == 200

            async def told() -> bool:
                return "bank:pay was accepted elsewhere, but is not in force here" in caplog.text

            await until(told)


@requirement("OPS-354")
async def test_a_gate_that_starts_later_takes_over_what_is_switched_where_it_is_configured_alike(
    redis_url: str, tmp_path: Path
) -> None:
    settings = shared(redis_url, crashing(tmp_path))
    other = {**settings["upstreams"][0], "name": "other"}
    settings["upstreams"] = [*settings["upstreams"], other]
    async with running_service(upstreams=None, settings=settings) as here:
        for name in ("bad", "other"):
            assert (await post(here, f"servers/{name}/disable"))[0] == 202
        changed = {**settings, "upstreams": [settings["upstreams"][0], {**other, "timeout_s": 7.0}]}
        async with running_service(upstreams=None, settings=changed) as there:
            await is_so(there, enabled=False, switched=True)
            await is_so(there, enabled=True, switched=False, name="other")


@requirement("OPS-354", "OPS-243")
async def test_a_start_after_all_have_ended_has_the_servers_as_configured(redis_url: str, tmp_path: Path) -> None:
    settings = shared(redis_url, crashing(tmp_path))
    async with running_service(upstreams=None, settings=settings) as here:
        assert (await post(here, "servers/bad/disable"))[0] == 202
    async with running_service(upstreams=None, settings=settings) as later:
        store = later.app.state.gate.shared.store

        async def tidied() -> bool:
            kinds = (Kind("switch", listed=True), Kind("switch_outcome", listed=True))
            return not any([await store.of_owner(kind, None) for kind in kinds])

        await until(tidied)
        await is_so(later, enabled=True, switched=False)


@requirement("OPS-243", "OPS-294")
async def test_a_reload_at_one_gate_ends_what_was_switched_at_all(gates: Gates) -> None:
    here, there = gates
    configured = there.app.state.gate.settings.model_copy(deep=True)
    assert (await post(here, "servers/bad/disable"))[0] == 202
    await is_so(there, enabled=False, switched=True)
    await there.app.state.gate.apply(configured)
    for each in (here, there):
        await is_so(each, enabled=True, switched=False)
        await outcomes_are(each)


@requirement("OPS-488")
async def test_damaged_rows_of_switches_are_refused_and_logged(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_service(upstreams=None, settings=shared(redis_url, crashing(tmp_path))) as here:
        gate, key = here.app.state.gate, hashed("bad")
        for data in (b"{", packed(["bad", "no", ""]), packed(["else", False, ""]), packed([1])):
            await gate.shared.store.step(
                [Put(Kind("switch", listed=True), key, data), *gate.shared.news.ops("switch", server="bad")]
            )
        await gate.shared.store.step(gate.shared.news.ops("switch"))

        async def refused() -> bool:
            wanted = (f"damaged row (switch '{key}')", "damaged row (news 'all, switch')")
            return all(each in caplog.text for each in wanted)

        await until(refused)
        outcome = Put(Kind("switch_outcome", listed=True), f"{key}.p", packed(["explode", True]), key)

        async def outcome_refused() -> bool:
            # Written each time, because gates remove outcomes of processes that are gone.
            await gate.shared.store.step([outcome])
            found = await get(here, "servers/bad")
            assert (found["enabled"], found["outcomes"]) == (True, [])
            return f"damaged row (switch_outcome '{key}.p')" in caplog.text

        await until(outcome_refused)
