"""Steps of many callers, sent together: those that wait while others are under way go with one write (EXEC-56).

So a burst of callers takes a few connections and a few exchanges, in place of one of each for every caller.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import exceptions

from wicketgate.storage.redis.patience import Patience
from wicketgate.storage.redis.scripts import Step
from wicketgate.task_end import end_tasks

LANES = 4
_AT_ONCE = 200


@dataclass(eq=False, slots=True)
class _Asked:
    """*found* has a result or an error for each of *steps*; behind them, of those who wait for one, the number of
    replicas that have what was written."""

    steps: Sequence[Step]
    waits: bool
    found: asyncio.Future[list[Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Lanes:
    """*client* gives the client in use, *replica_ms* is the longest wait for a replica of Redis. For use from one event
    loop only."""

    def __init__(self, client: Callable[[], Any], wait_s: float, replica_ms: int) -> None:
        self._client = client
        self._wait_s = wait_s
        self._replica_ms = replica_ms
        self._waiting: deque[_Asked] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, steps: Sequence[Step], *, waits: bool) -> list[Any]:
        """Runs *steps* in this order. Returns results and errors; at the end the number of replicas if it *waits* for
        one. Raises the errors of redis-py and of the network; what was sent is not taken back by a cancellation."""
        asked = _Asked(steps, waits)
        self._waiting.append(asked)
        if len(self._tasks) < LANES:
            task = asyncio.create_task(self._send(), name="steps in Redis")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asked.found

    async def aclose(self) -> None:
        await end_tasks(*self._tasks)

    async def _send(self) -> None:
        while batch := self._batch():
            try:
                async with Patience(self._wait_s):
                    await self._exchange(batch)
            except (exceptions.RedisError, OSError) as error:
                _fail(batch, error)
            except BaseException:
                _fail(batch, exceptions.ConnectionError("given up"))
                raise

    def _batch(self) -> list[_Asked]:
        """Takes the next ones that still wait. Who waits for a replica holds up nobody who does not."""
        batch: list[_Asked] = []
        count = 0
        while self._waiting and count < _AT_ONCE:
            asked = self._waiting[0]
            if batch and asked.waits != batch[0].waits:
                break
            self._waiting.popleft()
            if not asked.found.done():
                batch.append(asked)
                count += len(asked.steps)
        return batch

    async def _exchange(self, batch: Sequence[_Asked]) -> None:
        found = await self._run(batch)
        # A Redis that was restarted has forgotten the scripts.
        again = [asked for asked, each in zip(batch, found, strict=True) if any(map(_is_unknown, each))]
        if again:
            for text in {script.text for asked in again for script, _, _ in asked.steps}:
                await self._client().script_load(text)
            anew = dict(zip(again, await self._run(again), strict=True))
            found = [anew.get(asked, each) for asked, each in zip(batch, found, strict=True)]
        for asked, each in zip(batch, found, strict=True):
            if not asked.found.done():
                asked.found.set_result(each)

    async def _run(self, batch: Sequence[_Asked]) -> list[list[Any]]:
        # On one connection with WAIT, which speaks of what its own connection has written.
        pipeline = self._client().pipeline(transaction=False)
        for asked in batch:
            for script, keys, arguments in asked.steps:
                pipeline.evalsha(script.digest, len(keys), *keys, *arguments)
        waits = batch[0].waits
        if waits:
            pipeline.wait(1, self._replica_ms)
        results = await pipeline.execute(raise_on_error=False)
        found, at = [], 0
        for asked in batch:
            own = results[at : at + len(asked.steps)]
            at += len(asked.steps)
            found.append([*own, results[-1]] if waits else own)
        return found


def _is_unknown(result: Any) -> bool:
    return isinstance(result, exceptions.NoScriptError)


def _fail(batch: Sequence[_Asked], error: Exception) -> None:
    for asked in batch:
        if not asked.found.done():
            asked.found.set_exception(error)
