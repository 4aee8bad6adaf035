"""Sums of what was spent over one store: processes, bounds, outages, damage (OPS-552, OPS-556)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.errors import NotAdmitted
from wicketgate.gateway.spending import OTHER, SpentRow
from wicketgate.storage import spending as module
from wicketgate.storage.encoding import hashed
from wicketgate.storage.fail_modes import USUAL, FailModes
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.spending import StoredLedger
from wicketgate.storage.store import Kind, Put, Store, StoreUnavailable

Stores = tuple[str, Callable[[], Store]]
DAY = "2026-11-27"
TURN = ("model", "m", "k1")


def add(ledger: StoredLedger, actor: str = "ann", cost: int = 1, *budgets: str) -> None:
    ledger.add(DAY, actor, TURN, (1, 10, 3, 5, cost), budgets)


async def costs(ledger: StoredLedger) -> dict[str, int]:
    return {actor: numbers[-1] for actor, _, numbers in await rows(ledger)}


async def rows(ledger: StoredLedger, day: str = DAY) -> list[SpentRow]:
    await ledger.write()
    return [*await ledger.rows(day)]


@requirement("OPS-552")
async def test_processes_add_to_the_same_sums_and_lose_nothing(stores: Stores) -> None:
    _, make = stores
    ledgers = [StoredLedger(make()) for _ in range(3)]
    for _ in range(5):
        for ledger in ledgers:
            for actor in ("ann", "ben"):
                add(ledger, actor, 10**15, "role:dev 2026-11")
        await asyncio.gather(*(ledger.write() for ledger in ledgers))
    for ledger in ledgers:
        assert await ledger.spent(["role:dev 2026-11", "role:dev 2026-12"]) == [30 * 10**15, 0]
        assert sorted(await rows(ledger)) == [(each, TURN, [15, 150, 45, 75, 15 * 10**15]) for each in ("ann", "ben")]
        assert await rows(ledger, "2026-11-28") == []


@requirement("OPS-552")
async def test_a_budget_knows_what_its_process_has_not_written_yet() -> None:
    ledger = StoredLedger(MemoryStore())
    add(ledger, "ann", 7, "actor:ann 2026-11")
    assert await ledger.spent(["actor:ann 2026-11"]) == [7]
    await ledger.write()
    assert await ledger.spent(["actor:ann 2026-11"]) == [7]


@requirement("OPS-552")
async def test_sums_are_written_while_it_runs_and_at_the_end() -> None:
    store = MemoryStore()
    ledger, other = StoredLedger(store), StoredLedger(store)
    async with ledger.running():
        add(ledger)
    assert await costs(other) == {"ann": 1}


@requirement("OPS-552")
async def test_actors_beyond_a_thousand_a_day_are_one_and_no_row_gives_way(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SPENT", Kind("spent", owner_rows=20, listed=True))
    assert module.MOST_ACTORS == 1_000
    _, make = stores
    ledger = StoredLedger(make())
    for number in range(20):
        add(ledger, f"actor_{number}")
    await ledger.write()
    for number in range(50):
        add(ledger, f"actor_{number}", 10)
    await ledger.write()
    found = await costs(ledger)
    assert found.pop(OTHER) == 30 * 10
    assert found == {f"actor_{number}": 11 for number in range(20)}
    ledger.add("2026-11-28", "actor_30", TURN, (1, 0, 0, 0, 1), ())
    assert [row[0] for row in await rows(ledger, "2026-11-28")] == ["actor_30"]


@requirement("OPS-552")
async def test_the_tools_of_an_actor_are_bounded_and_counted_all_the_same() -> None:
    ledger = StoredLedger(MemoryStore())
    for number in range(1_500):
        ledger.add(DAY, "ann", ("tool", f"t{number}", "k"), (1, 0, 0, 0, 2), ())
        if number % 700 == 0:
            await ledger.write()
    found = await rows(ledger)
    assert (len(found), sum(row[2][-1] for row in found)) == (1_001, 3_000)
    assert [row[2][0] for row in found if row[1] == ("tool", OTHER, "")] == [500]


@requirement("OPS-556")
async def test_without_its_store_a_process_goes_on_with_what_it_counted_and_writes_it_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FailingStore()
    ledger = StoredLedger(store)
    store.unavailable = True
    for _ in range(3):
        add(ledger, "ann", 2, "actor:ann 2026-11")
        await ledger.write()
        with caplog.at_level(logging.ERROR):
            await ledger.spent(["actor:ann 2026-11"])
    assert await ledger.spent(["actor:ann 2026-11"]) == [6]
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "budgets cannot be kept for all processes: it is unavailable"
    ]
    with pytest.raises(StoreUnavailable):
        await ledger.rows(DAY)
    store.unavailable = False
    assert await costs(ledger) == {"ann": 6}
    assert await ledger.spent(["actor:ann 2026-11"]) == [6]


@requirement("OPS-556")
async def test_closed_means_that_no_chat_with_a_budget_begins() -> None:
    store = FailingStore()
    ledger = StoredLedger(store, FailModes({**USUAL, "budgets": "closed"}))
    assert await ledger.spent(["actor:ann 2026-11"]) == [0]
    store.unavailable = True
    with pytest.raises(NotAdmitted):
        await ledger.spent(["actor:ann 2026-11"])


@requirement("OPS-556")
async def test_in_an_outage_a_process_knows_what_it_knew_before() -> None:
    store = FailingStore()
    ledger = StoredLedger(store)
    add(ledger, "ann", 7, "actor:ann 2026-11")
    await ledger.write()
    store.unavailable = True
    assert await ledger.spent(["actor:ann 2026-11"]) == [7]


@requirement("OPS-556")
@pytest.mark.parametrize("mode", ["open", "closed"])
async def test_no_room_for_a_budget_is_as_no_store(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUDGET", Kind("budget", most_rows=1))
    ledger = StoredLedger(MemoryStore(), FailModes({**USUAL, "budgets": "open" if mode == "open" else "closed"}))
    add(ledger, "ann", 3, "actor:ann 2026-11")
    await ledger.write()
    add(ledger, "ben", 5, "actor:ben 2026-11")
    await ledger.write()
    assert (await ledger.spent(["actor:ann 2026-11"]), await costs(ledger)) == ([3], {"ann": 3, "ben": 5})
    if mode == "open":
        assert await ledger.spent(["actor:ben 2026-11"]) == [5]  # this process still counts it
    else:
        with pytest.raises(NotAdmitted):
            await ledger.spent(["actor:ben 2026-11"])


class SlowStore(MemoryStore):
    """Each step waits until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.reached = asyncio.Event(), asyncio.Event()

    async def step(self, *args: Any, **given: Any) -> Any:
        self.reached.set()
        await self.released.wait()
        return await super().step(*args, **given)


@requirement("OPS-552")
async def test_an_end_in_the_middle_of_a_write_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WRITE_EVERY_S", 0.001)
    store = SlowStore()
    ledger = StoredLedger(store)
    async with ledger.running():
        for number in range(100):
            add(ledger, f"actor_{number}", 1, "role:dev 2026-11")
        await store.reached.wait()
        add(ledger, "late", 1)
        assert (await ledger.spent(["role:dev 2026-11"])) == [100]  # also while it is written
        asyncio.get_running_loop().call_later(0.05, store.released.set)
    assert sum((await costs(StoredLedger(store))).values()) == 101


@requirement("OPS-552")
async def test_an_error_that_nobody_expected_does_not_end_the_writing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_WRITE_EVERY_S", 0.001)
    store, faults = MemoryStore(), [OSError("odd")]
    step = store.step

    async def failing(*args: Any, **given: Any) -> Any:
        if faults:
            raise faults.pop()
        return await step(*args, **given)

    monkeypatch.setattr(store, "step", failing)
    ledger = StoredLedger(store)
    async with ledger.running():
        add(ledger)
        await until(lambda: not faults)
        add(ledger, "ben")
        await until(lambda: not ledger._days)
    assert (await costs(ledger))["ben"] == 1
    assert "could not be written" in caplog.text


@requirement("OPS-552")
@pytest.mark.parametrize("data", [b"", b"[]", b'["ann"]', b'["ann",[["model","m","k",1,1,1,1,"1"]]]', b"\xff"])
async def test_a_damaged_row_is_logged_and_stops_nothing(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await store.step([Put(module._SPENT, hashed(f"{DAY} ann"), data, DAY)])
    await store.step([Put(module._BUDGET, hashed("actor:ann 2026-11"), b"x", "-")])
    ledger = StoredLedger(store)
    add(ledger, "ann", 1, "actor:ann 2026-11")
    add(ledger, "ben", 1)
    assert await costs(ledger) == {"ben": 1}
    assert await ledger.spent(["actor:ann 2026-11"]) == [1]  # what this process knows
    with pytest.raises(NotAdmitted):
        await StoredLedger(store, FailModes({**USUAL, "budgets": "closed"})).spent(["actor:ann 2026-11"])
    assert "damaged row" in caplog.text
