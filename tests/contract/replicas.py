"""Two gates of one service, as a balancer without stickiness shows them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

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
