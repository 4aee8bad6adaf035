"""The metrics of all workers at each of them, through the store that they share."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from app.workers import metrics as module
from app.workers.metrics import WorkerMetrics
from app.workers.place import Loads, Place
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.storage.figures import SharedFigures
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Kind, Put, Store, StoreUnavailable


def worker(store: Store, number: int, process: str, *, starts: int = 1, service: str = "one", of: int = 2) -> Any:
    place = Place(number, of, starts, -1, -1, Loads.of(of), service=service)
    text = f"# HELP calls Calls.\n# TYPE calls counter\ncalls {len(process)}.0\n"

    async def read() -> bytes:
        return text.encode()

    return WorkerMetrics(place, read, SharedFigures(store, service, process))


def values(text: bytes, name: str) -> dict[str, str]:
    return dict(re.findall(rf'^{name}{{worker="(\d)"}} (\S+)$', text.decode(), re.MULTILINE))


async def until_shown(shown: Any, name: str, wanted: dict[str, str]) -> None:
    await until(shown.metrics, lambda text: values(text, name) == wanted)


@requirement("OPS-180")
async def test_each_worker_shows_all_of_its_service(stores: tuple[str, Callable[[], Store]]) -> None:
    _, make = stores
    async with AsyncExitStack() as stack:
        one, other = worker(make(), 0, "p"), worker(make(), 1, "pq")
        for each in (one, other, worker(make(), 1, "elsewhere", service="two")):
            await stack.enter_async_context(each.sharing())
        for each in (one, other):
            await until_shown(each, "calls", {"0": "1.0", "1": "2.0"})
            await until_shown(each, "wicketgate_worker_up", {"0": "1.0", "1": "1.0"})
        # One that came in the place of another counts.
        async with worker(make(), 1, "pqr", starts=2).sharing():
            await until_shown(one, "calls", {"0": "1.0", "1": "3.0"})
            await until_shown(one, "wicketgate_worker_starts_total", {"0": "1.0", "1": "2.0"})
        await until_shown(one, "calls", {"0": "1.0", "1": "2.0"})
    await until_shown(one, "wicketgate_worker_up", {"0": "1.0", "1": "0.0"})


@requirement("OPS-180")
async def test_figures_lapse_after_fifteen_seconds_without_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    store = MemoryStore(lambda: now)
    monkeypatch.setattr(module, "WRITE_EVERY_S", 0.01)
    one = worker(store, 0, "p")
    other = worker(store, 1, "pq")
    async with other.sharing():
        await until_shown(one, "wicketgate_worker_up", {"0": "1.0", "1": "1.0"})
        now = 20.0
        await until_shown(one, "wicketgate_worker_up", {"0": "1.0", "1": "1.0"})
        other._shared.drop = other._shared.others  # it is killed
    now = 40.0
    await until_shown(one, "wicketgate_worker_up", {"0": "1.0", "1": "0.0"})


@requirement("OPS-180")
async def test_without_the_store_a_worker_shows_its_own_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    one = worker(store, 0, "p")

    async def away(*given: Any) -> Any:
        raise StoreUnavailable("it is away")

    async def hangs(*given: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "_READ_S", 0.05)
    for broken in (away, hangs):
        monkeypatch.setattr(store, "of_owner", broken)
        assert values(await one.metrics(), "wicketgate_worker_up") == {"0": "1.0", "1": "0.0"}


@requirement("OPS-180", "OPS-488")
async def test_damaged_figures_are_refused_with_their_key(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    one, other = worker(store, 0, "p"), worker(store, 1, "pq")
    async with other.sharing():
        await until_shown(one, "wicketgate_worker_up", {"0": "1.0", "1": "1.0"})
        (row,) = await store.of_owner(Kind("figures", listed=True), None)
        for data in (b"{", b"[1]", b'[true, 1, ""]', b"[1, 1, 2]"):
            await store.step([Put(Kind("figures", listed=True), "x", data, row.owner)])
            await until_shown(one, "wicketgate_worker_up", {"0": "1.0", "1": "1.0"})
    assert caplog.text.count("damaged row (figures 'x')") >= 4
