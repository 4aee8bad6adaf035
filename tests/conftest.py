import os

import pytest
from hypothesis import settings

# The same examples in every run, and no deadline on a machine that others use too: a failure is of the code. To look
# for new ones: EXPLORE=1 make pytest.
settings.register_profile("repeat", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "repeat")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
