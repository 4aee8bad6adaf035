"""Two gates of one service, as a balancer without stickiness shows them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from tests.support.service import RunningService, running_service
from wicketgate.ports import Upstream

SEAL = {"auth": {"seal_keys": ["k" * 40]}}


@asynccontextmanager
async def two_gates(
    url: str, upstreams: Sequence[Sequence[Upstream]], **settings: Any
) -> AsyncIterator[tuple[RunningService, RunningService]]:
    shared: Mapping[str, Any] = {"storage": {"url": url}, **SEAL, **settings}
    async with (
        running_service(upstreams=upstreams[0], settings=shared) as here,
        running_service(upstreams=upstreams[1], settings=shared) as there,
    ):
        yield here, there


Gates = Callable[..., AbstractAsyncContextManager[tuple[RunningService, RunningService]]]
"""Takes the upstreams of the gate where calls run, those of the other one if there are any, and settings."""


@pytest.fixture(params=["same gate", "other gate"])
def gates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Gates:
    """Serves the gate where calls run, and the one to which later requests about them come: the same, or another."""

    @asynccontextmanager
    async def same(
        upstreams: Sequence[Upstream], others: Sequence[Upstream] = (), **settings: Any
    ) -> AsyncIterator[tuple[RunningService, RunningService]]:
        async with running_service(upstreams=upstreams, settings=settings) as service:
            yield service, service

    if request.param == "same gate":
        return same
    request.getfixturevalue("patient_stores")
    # Nothing has to wait for a row that its process could not write.
    monkeypatch.setattr("wicketgate.gateway.kept_calls._COMES_S", 0.2)
    url = request.getfixturevalue("redis_url")
    return lambda upstreams, others=(), **settings: two_gates(url, [upstreams, others], **settings)
