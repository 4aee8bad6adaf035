"""Requests that are ready at once take turns (OPS-41). Time is a counter here: each step of work moves it."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from app.pace import Pace
from tests.support.front import front
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.access.identity import HashedKey, Identity, hash_key


class Work:
    """Counts the steps of work between two turns of another task, and moves the clock by *step_s* at each."""

    def __init__(self, step_s: float) -> None:
        self.time = 0.0
        self.step_s = step_s
        self.steps = 0
        self.order: list[int] = []
        self._in_turn = 0
        self.most_in_turn = 0
        self.turns = 0

    def now(self) -> float:
        return self.time

    async def steps_of(self, number: int, count: int) -> int:
        for _ in range(count):
            self.step(number)
            await asyncio.sleep(0)
        return number

    def step(self, number: int) -> None:
        self.time += self.step_s
        self.steps += 1
        self._in_turn += 1
        self.order.append(number)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async def watch() -> None:
            while True:
                self.turns += 1
                self.most_in_turn = max(self.most_in_turn, self._in_turn)
                self._in_turn = 0
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        try:
            async with asyncio.timeout(BOUND_S):
                yield
        finally:
            watching.cancel()


@requirement("OPS-41")
async def test_many_that_are_ready_at_once_take_turns() -> None:
    work = Work(0.001)
    pace = Pace(work.now)
    async with work.watched():
        ended = await asyncio.gather(*(pace.run(work.steps_of(n, 5)) for n in range(500)))
    assert ended == list(range(500))
    assert work.order == [*range(500)] * 5, "who is first in the line runs first"
    # Ten milliseconds of a millisecond each, and one that was begun.
    assert work.most_in_turn <= 11


@requirement("OPS-41")
async def test_short_steps_run_many_in_a_turn() -> None:
    work = Work(0.00002)
    pace = Pace(work.now)
    async with work.watched():
        await asyncio.gather(*(pace.run(work.steps_of(n, 5)) for n in range(1_000)))
    assert work.most_in_turn > 100
    assert work.turns < 100


@requirement("OPS-41")
async def test_the_tasks_of_a_request_are_paced_with_it_and_others_are_not() -> None:
    work = Work(0.001)
    pace = Pace(work.now)
    loop = asyncio.get_running_loop()
    pace.install(loop)
    others = 0

    async def request(number: int) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(work.steps_of, number, 3)

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    try:
        beside = asyncio.create_task(other())
        async with work.watched():
            await asyncio.gather(*(pace.run(request(n)) for n in range(50)))
        beside.cancel()
    finally:
        loop.set_task_factory(None)
    assert work.steps == 450
    assert work.most_in_turn <= 11
    assert others >= work.turns - 1


@requirement("OPS-41")
async def test_deadlines_and_failures_are_those_of_the_work() -> None:
    pace = Pace()

    async def bounded() -> str:
        with anyio.move_on_after(0.0):
            await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0):
                await asyncio.Event().wait()
        return "moved on"

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("as it came")

    async with asyncio.timeout(BOUND_S):
        assert await pace.run(bounded()) == "moved on"
        with pytest.raises(ValueError, match="as it came"):
            await pace.run(fails())


@requirement("OPS-41")
async def test_health_is_not_in_the_line() -> None:
    work = Work(0.02)
    pace = Pace(work.now)
    turns: dict[str, int] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        before = work.turns
        await work.steps_of(0, 2)
        turns[str(scope["path"])] = work.turns - before

    key = HashedKey("one", hash_key("good"), Identity("one", ()))
    asked: Callable[..., Awaitable[None]] = front(app, pace=pace, keys=[key])
    async with work.watched():
        busy = [asyncio.create_task(pace.run(work.steps_of(n, 10))) for n in range(50)]
        await asyncio.sleep(0)
        headers = [(b"host", b"localhost"), (b"authorization", b"Bearer good")]
        scopes = ({"type": "http", "method": "GET", "path": path, "headers": headers} for path in ("/mcp", "/healthz"))
        await asyncio.gather(*(asked(scope, None, None) for scope in scopes))
        await asyncio.gather(*busy)
    assert turns["/healthz"] <= 3
    assert turns["/mcp"] > 10


@requirement("OPS-41")
async def test_many_whose_wait_ends_with_an_error_at_once_take_turns_too() -> None:
    work = Work(0.001)
    pace = Pace(work.now)
    fails = [asyncio.get_running_loop().create_future() for _ in range(100)]

    async def request(number: int) -> None:
        try:
            if number < 50:
                async with asyncio.timeout(BOUND_S) as timeout:
                    timeouts.append(timeout)
                    await fails[number]
            else:
                await fails[number]
        except (TimeoutError, ConnectionError):
            work.step(number)

    timeouts: list[asyncio.Timeout] = []
    async with work.watched():
        requests = [asyncio.create_task(pace.run(request(number))) for number in range(100)]
        while len(timeouts) < 50:
            await asyncio.sleep(0)
        for timeout in timeouts:
            timeout.reschedule(asyncio.get_running_loop().time())
        for fail in fails[50:]:
            fail.set_exception(ConnectionError())
        await asyncio.gather(*requests)
    assert work.steps == 100
    assert work.most_in_turn <= 11


@requirement("OPS-49")
async def test_a_task_that_is_cancelled_in_the_line_begins_first_and_frees_what_it_was_given() -> None:
    work = Work(0.02)
    pace = Pace(work.now)
    loop = asyncio.get_running_loop()
    pace.install(loop)
    begun: list[int] = []
    freed: list[int] = []

    async def owner(number: int) -> None:
        begun.append(number)
        try:
            await asyncio.Event().wait()
        finally:
            freed.append(number)

    async def request(number: int) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(owner, number)
            work.step(number)
            scopes.append(tasks.cancel_scope)
            await asyncio.Event().wait()

    scopes: list[anyio.CancelScope] = []
    try:
        async with work.watched():
            requests = [asyncio.create_task(pace.run(request(number))) for number in range(20)]
            while len(scopes) < len(requests):
                await asyncio.sleep(0)
            assert len(begun) < 20, "some stand in the line"
            for scope in scopes:
                scope.cancel()
            await asyncio.gather(*requests)
    finally:
        loop.set_task_factory(None)
    assert sorted(begun) == list(range(20))
    assert sorted(freed) == list(range(20))
    assert not pace.waiting


@requirement("OPS-41", "OPS-49")
async def test_cancellations_of_many_in_the_line_take_turns_and_leave_it_empty() -> None:
    work = Work(0.001)
    pace = Pace(work.now)

    async def request(number: int) -> None:
        try:
            await work.steps_of(number, 1_000)
        finally:
            work.step(number)

    async with work.watched():
        requests = [asyncio.create_task(pace.run(request(number))) for number in range(200)]
        while work.steps < 400:
            await asyncio.sleep(0)
        for task in requests:
            task.cancel()
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert [task.cancelling() for task in requests] == [1] * 200
    assert work.most_in_turn <= 11
    assert not pace.waiting
    async with asyncio.timeout(BOUND_S):
        assert await pace.run(work.steps_of(7, 3)) == 7


@requirement("OPS-361")
async def test_a_task_that_is_cancelled_before_its_first_turn_leaves_no_warning() -> None:
    pace, loop = Pace(), asyncio.get_running_loop()
    ran = False

    async def work() -> None:
        nonlocal ran
        ran = True

    async def begun_and_cancelled() -> None:
        task = asyncio.create_task(work())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pace.install(loop)
        try:
            await pace.run(begun_and_cancelled())
        finally:
            loop.set_task_factory(None)
        gc.collect()
    assert not ran
    assert [str(each.message) for each in warned] == []
