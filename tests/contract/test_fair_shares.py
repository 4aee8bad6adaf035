"""Streams, runs without a reader, calls under way and threads are shared among actors (CHAT-88 to CHAT-90, UP-235)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.contract.test_before_the_stream import refusal
from tests.support import python_tools
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import (
    BOUND_S,
    OPERATOR_KEY,
    OTHER_KEY,
    READER_KEY,
    RunningService,
    chat_body,
    frames,
    running_service,
)
from tests.support.until import until
from wicketgate.config import runtime

BOB: dict[str, str] = {}
ALICE, CARL = {"Authorization": f"Bearer {OTHER_KEY}"}, {"Authorization": f"Bearer {READER_KEY}"}


def keyed(number: int) -> dict[str, str]:
    return {"Idempotency-Key": f"order-{number}", "X-On-Disconnect": "continue"}


def waiting(number: int) -> ScriptModel:
    """The first *number* runs wait for ever, the others answer."""
    never = asyncio.Event()
    return ScriptModel(*([never] for _ in range(number)), *(says("ok") for _ in range(20)))


@asynccontextmanager
async def open_stream(service: RunningService, headers: dict[str, str]) -> AsyncIterator[httpx.Response]:
    async with service.http.stream("POST", "/engine/chat", json=chat_body(), headers=headers) as response:
        yield response


async def left_alone(service: RunningService, headers: dict[str, str]) -> int:
    """The status of a stream whose client leaves as soon as it has begun."""
    async with open_stream(service, headers) as response:
        return response.status_code


async def chat(service: RunningService, headers: dict[str, str]) -> httpx.Response:
    return await service.http.post("/engine/chat", json=chat_body(), headers=headers)


@requirement("CHAT-88")
async def test_one_actor_cannot_take_all_streams() -> None:
    settings = {"engine": {"max_streams": 10}}
    async with running_service(waiting(8), settings=settings) as service, AsyncExitStack() as streams:
        statuses = [(await streams.enter_async_context(open_stream(service, BOB))).status_code for _ in range(8)]
        ninth = await chat(service, BOB)
        other = await chat(service, ALICE)
    assert statuses == [200] * 8
    refusal(ninth, 429, "rate_limited")
    assert ninth.headers["retry-after"] == "1"
    assert frames(other.text)[-1][0] == "done"


@requirement("CHAT-88")
async def test_a_limit_for_each_actor_is_429_and_that_of_all_503() -> None:
    settings = {"engine": {"max_streams": 2, "max_streams_per_actor": 1}}
    async with running_service(waiting(2), settings=settings) as service:
        async with open_stream(service, BOB), open_stream(service, ALICE):
            bob, carl = await chat(service, BOB), await chat(service, CARL)
        assert service.app.state.gate.streams.active <= 2
    refusal(bob, 429, "rate_limited")
    refusal(carl, 503, "engine_unavailable")
    assert bob.headers["retry-after"] == carl.headers["retry-after"] == "1"


@requirement("CHAT-88")
async def test_runs_that_nobody_reads_leave_room_for_other_actors() -> None:
    async with running_service(waiting(16), settings={"engine": {"max_streams": 20}}) as service:
        statuses = [await left_alone(service, keyed(number)) for number in range(20)]
        other = [await chat(service, ALICE) for _ in range(2)]
    assert statuses == [200] * 16 + [429] * 4
    assert [answer.status_code for answer in other] == [200, 200]


async def until_detached(service: RunningService, number: int) -> None:
    """Wait until so many runs have lost their readers."""
    await until(lambda: service.app.state.gate.shared.limits.detached.held == number)


@requirement("CHAT-89")
async def test_an_actor_has_only_so_many_runs_without_a_reader_and_a_further_one_ends_as_with_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "MAX_DETACHED", 2)
    settings = {"engine": {"resume": {"grace_s": 0.05}}}
    model = waiting(4)
    async with running_service(model, settings=settings) as service:
        for number in (1, 2):
            await left_alone(service, keyed(number))
            await until_detached(service, number)
        await left_alone(service, keyed(3))
        async with asyncio.timeout(BOUND_S):
            await model.aborted.wait()
        third = await chat(service, keyed(3))
        assert service.app.state.gate.shared.limits.detached.held == 2
        # Another actor has room of its own, and a run whose reader is back is none without a reader.
        await left_alone(service, {**ALICE, **keyed(4)})
        await until_detached(service, 3)
        async with open_stream(service, keyed(1)):
            await until_detached(service, 2)
        await until_detached(service, 3)
    assert frames(third.text)[-1] == ("done", {**frames(third.text)[-1][1], "finish_reason": "cancelled"})


@requirement("CHAT-90")
async def test_the_run_detached_last_gives_way_to_an_actor_that_finds_no_place() -> None:
    async with running_service(waiting(4), settings={"engine": {"max_streams": 4}}) as service:
        for number in (1, 2, 3, 4):
            await left_alone(service, keyed(number))
            await until_detached(service, number)
        newcomer = await chat(service, ALICE)
        last = await chat(service, keyed(4))
        assert service.app.state.gate.shared.limits.detached.held == 3
    assert frames(newcomer.text)[-1][0] == "done"
    assert frames(last.text)[-1][1]["finish_reason"] == "cancelled"


@requirement("CHAT-90")
async def test_no_run_gives_way_to_an_actor_that_holds_as_much_nor_one_that_is_read() -> None:
    never = asyncio.Event()
    async with running_service(
        ScriptModel(*([never] for _ in range(4))), settings={"engine": {"max_streams": 3}}
    ) as service:
        await left_alone(service, keyed(1))
        await until_detached(service, 1)
        async with open_stream(service, ALICE), open_stream(service, BOB):
            refusal(await chat(service, ALICE), 503, "engine_unavailable")
            refusal(await chat(service, BOB), 503, "engine_unavailable")
            async with open_stream(service, CARL) as newcomer:
                assert newcomer.status_code == 200
                refusal(await chat(service, {"Authorization": f"Bearer {OPERATOR_KEY}"}), 503, "engine_unavailable")


@requirement("UP-235")
@pytest.mark.parametrize(("threads", "most"), [(8, 7), (2, 1)])
async def test_one_actor_cannot_take_all_threads_of_a_python_upstream_not_even_by_leaving_them(
    threads: int, most: int
) -> None:
    upstream = {"name": "pyt", "python": "tests.support.python_tools:registry", "timeout_s": 2, "threads": threads}
    python_tools.release.clear()

    def call(headers: dict[str, str], operation: str, **given: str) -> Coroutine[Any, Any, httpx.Response]:
        body = {"operation": f"/pyt/{operation}", "input": given}
        return service.http.post("/operations/call", json=body, headers=headers)

    try:
        async with running_service(upstreams=None, settings={"upstreams": [upstream]}) as service:
            bobs = [asyncio.create_task(call(BOB, "hold")) for _ in range(60)]
            await until(lambda: sum(thread.name.startswith("tools of pyt") for thread in threading.enumerate()) >= most)
            beside = await call(ALICE, "count", text="four")
            ends = {answer.status_code for answer in await asyncio.gather(*bobs)}
            after = await call(ALICE, "count", text="four")
            health = await service.health()
            again = await call(BOB, "count", text="four")
            python_tools.release.set()
    finally:
        python_tools.release.set()
    assert (beside.json(), after.json()) == ({"result": 4}, {"result": 4})
    assert ends <= {429, 503, 504}
    assert health["upstreams"]["pyt"]["error"] == f"{most} of {threads} threads still run cancelled calls"
    assert again.status_code == 503
