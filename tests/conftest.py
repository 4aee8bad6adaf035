import gc
import os

import pytest
from hypothesis import settings

from tests.support.ways import both_ways as both_ways

# The same examples in every run, and no deadline on a machine that others use too: a failure is of the code.
# `make quick` takes fewer of them; `make explore` looks for new ones.
settings.register_profile("repeat", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("repeat"), max_examples=15)
settings.register_profile("explore", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "1000")))
settings.load_profile(os.environ.get("PROPERTIES", "repeat"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


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


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end; without them the garbage collector is done in a hundredth of the
    time."""
    gc.collect()
    gc.freeze()
