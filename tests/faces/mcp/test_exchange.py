"""What runs for a request in its own task, and ends with its exchange."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from tests.support.requirement import requirement
from wicketgate.faces.mcp.request import EXCHANGE, Exchange, RpcError, WithinOwnExchange

BOUND_S = 30.0


def request_of(exchange: Exchange) -> Any:
    http = SimpleNamespace(scope={EXCHANGE: exchange}, headers={})
    return SimpleNamespace(request=http, protocol_version="2026-07-28", method="tools/call", meta=None, params={})


async def run_within(exchange: Exchange, work: Callable[[], Awaitable[object]]) -> None:
    with WithinOwnExchange(request_of(exchange)):
        await work()
    await asyncio.sleep(0)  # nothing is left of a cancellation


async def forever() -> None:
    await asyncio.Event().wait()


@requirement("FACE-13")
@requirement("FACE-40")
async def test_it_ends_where_it_waits_with_the_reason_and_the_task_goes_on() -> None:
    exchange = Exchange()
    running = asyncio.create_task(run_within(exchange, forever))
    await asyncio.sleep(0)
    exchange.end("The key has ended.")
    exchange.end("Later.")
    with pytest.raises(RpcError, match="The key has ended"):
        async with asyncio.timeout(BOUND_S):
            await running
    assert running.cancelling() == 0


@requirement("FACE-13")
async def test_an_exchange_that_is_over_before_lets_nothing_wait() -> None:
    exchange = Exchange()
    exchange.end()
    with pytest.raises(RpcError, match="The client has left"):
        async with asyncio.timeout(BOUND_S):
            await run_within(exchange, forever)


@requirement("FACE-13")
async def test_what_has_ended_before_is_not_touched() -> None:
    exchange = Exchange()

    async def ends_it() -> None:
        exchange.end()

    await run_within(exchange, ends_it)
    for _ in range(5):
        await asyncio.sleep(0)


@requirement("FACE-13")
async def test_what_catches_the_cancellation_by_mistake_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wicketgate.task_end.AGAIN_S", 0.01)
    exchange = Exchange()
    caught = 0

    async def stubborn() -> None:
        nonlocal caught
        while caught < 2:
            try:
                await forever()
            except asyncio.CancelledError:
                caught += 1
        await forever()

    asyncio.get_running_loop().call_later(0, exchange.end)
    with pytest.raises(RpcError):
        async with asyncio.timeout(BOUND_S):
            await run_within(exchange, stubborn)
    assert caught == 2


@requirement("FACE-13")
async def test_cleaning_up_is_not_broken_off() -> None:
    exchange = Exchange()
    cleaned: list[str] = []

    async def cleans_up() -> None:
        try:
            await forever()
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0.5)  # work that is not to be broken off
            cleaned.append("up")

    asyncio.get_running_loop().call_later(0, exchange.end)
    with pytest.raises(RpcError):
        async with asyncio.timeout(BOUND_S):
            await run_within(exchange, cleans_up)
    assert cleaned == ["up"]


@requirement("FACE-40")
async def test_a_cancellation_of_the_task_itself_or_of_a_scope_around_it_stays_one() -> None:
    exchange = Exchange()
    running = asyncio.create_task(run_within(exchange, forever))
    await asyncio.sleep(0)
    exchange.end()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    # As the one of the request's key: it must be recognised by the scope that it belongs to.
    for first_scope in (True, False):
        exchange = Exchange()
        with anyio.CancelScope() as scope:
            ends = [scope.cancel, exchange.end] if first_scope else [exchange.end, scope.cancel]
            for end in ends:
                asyncio.get_running_loop().call_later(0, end)
            await run_within(exchange, forever)
        assert scope.cancelled_caught
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
