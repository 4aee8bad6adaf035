import gc
import importlib
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.ways import both_ways as both_ways
from wicketgate.storage import sqlite_writer
from wicketgate.storage.redis import client, runs

# The same examples in every run, and no deadline on a machine that others use too: a failure is of the code.
# `make quick` takes fewer of them; `make explore` looks for new ones.
settings.register_profile("repeat", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("repeat"), max_examples=15)
settings.register_profile("explore", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "1000")))
settings.load_profile(os.environ.get("PROPERTIES", "repeat"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


PATIENT_S = 6.0


@pytest.fixture
def real_waits() -> None:
    """Leaves the waits of stores as they are, in a file that uses ``patient_stores``."""


@pytest.fixture
def patient_stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets stores wait longer than a second for a busy machine, in tests that are about what is kept and not about
    the wait."""
    if "real_waits" in request.fixturenames:
        return
    for module in (client, runs, sqlite_writer):
        monkeypatch.setattr(module, "WAIT_S", PATIENT_S)
    monkeypatch.setattr(sqlite_writer, "_BUSY_S", PATIENT_S)
    monkeypatch.setattr(client, "_CONNECT_S", PATIENT_S / 2)


# They start processes and wait for them. One that was left for the end would run alone.
LONGEST = (
    "tests/e2e",
    "tests/docs",
    "tests/bench",
    "tests/public",
    "tests/examples",
    "tests/upstreams",
    "tests/contract",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


# Hardly anything that is made while tests are collected is garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: the garbage collector is spared them, and comes as rarely as in
    the service. Between them that is a tenth of all the time of the tests."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each worker begins with other modules of tests. All import them all, and where none is compiled yet, in a fresh
    clone, they would go through them side by side and compile each as often as there are workers."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("test_*.py"))[number::count]:
        # What is wrong with a module is said where it is collected.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
