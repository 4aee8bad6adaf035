import asyncio
import math
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest

from tests.support.requirement import requirement
from wicketgate.models.read_watch import ReadWatch


class SilentBody(httpx.AsyncByteStream):
    """Says nothing until it is closed, and breaks off then, as a connection does."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await self.closed.wait()
        raise httpx.ReadError("closed")

    async def aclose(self) -> None:
        self.closed.set()


async def read(response: httpx.Response, watch: ReadWatch, seconds: float) -> None:
    watch.begin(asyncio.get_running_loop().time() + seconds)
    with anyio.fail_after(5):
        await anext(response.aiter_raw())


async def pause(seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await asyncio.Event().wait()


@requirement("E74")
@pytest.mark.parametrize("earlier", [[], [60.0], [0.01], [60.0, 0.02, 30.0]])
async def test_a_read_that_outlasts_its_deadline_fails_whatever_the_deadlines_before_it_were(
    earlier: list[float],
) -> None:
    response = httpx.Response(200, stream=SilentBody())
    watch = ReadWatch(response)
    for seconds in earlier:
        watch.begin(asyncio.get_running_loop().time() + seconds)
        watch.read_by = math.inf
    with pytest.raises(httpx.ReadError):
        await read(response, watch, 0.05)
    assert watch.expired
    await watch.aclose()


async def test_a_deadline_already_past_ends_the_read_at_once() -> None:
    response = httpx.Response(200, stream=SilentBody())
    watch = ReadWatch(response)
    with pytest.raises(httpx.ReadError):
        await read(response, watch, -1)
    await watch.aclose()


async def test_between_reads_no_time_runs() -> None:
    body = SilentBody()
    watch = ReadWatch(httpx.Response(200, stream=body))
    watch.begin(asyncio.get_running_loop().time() + 0.02)
    watch.read_by = math.inf
    await pause(0.06)
    assert (watch.expired, body.closed.is_set()) == (False, False)
    await watch.aclose()
    assert body.closed.is_set()


async def test_once_closed_the_deadline_of_a_read_given_up_means_nothing() -> None:
    watch = ReadWatch(httpx.Response(200, stream=SilentBody()))
    watch.begin(asyncio.get_running_loop().time() + 0.02)
    await watch.aclose()
    await pause(0.06)
    assert not watch.expired
