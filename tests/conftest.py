import gc
import importlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from tests.contract.replicas import gates as gates
from tests.support.redis import RedisServer, redis_server
from tests.support.ways import both_ways as both_ways
from tests.support.ways import by_the_sdk as by_the_sdk
from wicketgate.storage import sqlite_writer
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.redis import client
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.store import Store

# The same examples in every run, and no deadline on a machine that others use too: a failure is of the code.
# `make quick` takes fewer of them; `make explore` looks for new ones.
settings.register_profile("repeat", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("repeat"), max_examples=15)
settings.register_profile("explore", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "1000")))
settings.load_profile(os.environ.get("PROPERTIES", "repeat"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def redis_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(redis_of_all: RedisServer) -> RedisServer:
    """One Redis for all tests, empty at the beginning of each, also behind one that has killed it."""
    if redis_of_all.process is None:
        redis_of_all.start()
    redis_of_all.flush()
    return redis_of_all


@pytest.fixture
def redis_url(redis: RedisServer) -> str:
    return redis.url


@pytest.fixture(params=["sqlite", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The ``storage.url`` of processes that share a store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    found: str = request.getfixturevalue("redis").url
    return found


@pytest.fixture
async def link(redis: RedisServer) -> AsyncIterator[RedisLink]:
    made = RedisLink(read_url(redis.url))
    yield made
    await made.aclose()


@pytest.fixture(params=["memory", "redis"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Callable[[], Store]]]:
    """The name of a back end, and a way to open it as one more process does. Processes share memory here.

    That a file does what memory does is tested once, in ``test_store``.
    """
    made: list[Store] = []
    links: list[RedisLink] = []
    url = request.getfixturevalue("redis").url if request.param == "redis" else ""

    def make() -> Store:
        if request.param == "redis":
            links.append(RedisLink(read_url(url)))
            made.append(RedisStore(links[-1]))
        elif not made:
            made.append(MemoryStore())
        return made[-1]

    yield request.param, make
    for store in made:
        await store.aclose()
    for link in links:
        await link.aclose()


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
    for module in (client, sqlite_writer):
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
