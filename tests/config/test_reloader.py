"""When the configuration is read again, and what a broken one does (gatekit G126, G127)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.requirement import requirement
from wicketgate.config import reloader as module
from wicketgate.config.reloader import Reloader
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError

BOUND_S = 5.0


class House:
    """Counts what was applied; *trouble* is raised by the next reading."""

    def __init__(self) -> None:
        self.applied = 0
        self.trouble: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def load(self) -> Settings:
        if self.trouble is not None:
            raise self.trouble
        return Settings()

    async def apply(self, settings: Settings) -> None:
        await self.gate.wait()
        self.applied += 1

    async def ready(self) -> None:
        return

    async def count(self, applied: int) -> None:
        await eventually(lambda: self.applied == applied)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.002)


async def test_requests_that_come_meanwhile_are_one_more_and_none_is_lost() -> None:
    house = House()
    reloader = Reloader(house.load, house.apply, ready=house.ready)
    async with reloader.running():
        house.gate.clear()
        reloader.request()
        await asyncio.sleep(0.02)
        for _ in range(5):
            reloader.request()
        house.gate.set()
        await house.count(2)


@requirement("gatekit G127")
async def test_a_broken_file_is_told_in_one_line_and_the_next_good_one_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    reloader = Reloader(house.load, house.apply, ready=house.ready)
    async with reloader.running():
        for trouble in (ConfigError("a: wrong\nb: wrong too"), RuntimeError("nobody expects this")):
            house.trouble = trouble
            caplog.clear()
            reloader.request()
            await eventually(lambda: bool(caplog.records))
            assert "not applied, the one in force stays" in caplog.text
        house.trouble = ConfigError("a: wrong\nb: wrong too")
        caplog.clear()
        reloader.request()
        await eventually(lambda: bool(caplog.records))
        assert [record.getMessage() for record in caplog.records] == [
            "configuration not applied, the one in force stays: a: wrong; b: wrong too"
        ]
        house.trouble = None
        reloader.request()
        await house.count(1)


@requirement("gatekit G126")
async def test_a_watched_file_counts_when_it_was_written_replaced_or_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.005)
    file, house = tmp_path / "x.yaml", House()
    file.write_text("a")
    reloader = Reloader(house.load, house.apply, ready=house.ready, watched=file)
    file.write_text("changed before anybody looked")
    async with reloader.running():
        await house.count(1)
        (tmp_path / "y.yaml").write_text("b")
        (tmp_path / "y.yaml").replace(file)
        await house.count(2)
        file.unlink()
        file.write_text("longer than before")
        await house.count(3)
