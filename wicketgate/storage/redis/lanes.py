"""Steps and commands of many callers, sent together: those that wait for a lane go with one write (EXEC-56).

So a burst of callers takes a few connections and a few exchanges, in place of one of each for every caller.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, cast

from redis import exceptions

from wicketgate.task_end import end_tasks, hold

LANES = 4
ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
"""The errors of redis-py and of the network."""
_AT_ONCE = 200
_PARTS = 4


class Script:
    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


Step = tuple[Script | str, Sequence[str], Sequence[str | bytes | int | float]]
"""A Lua script or the name of a command, its keys and its arguments."""


class Patience:
    """Ends its body with TimeoutError as ``asyncio.timeout`` does, but does not count the time in which this process
    stood still: time is counted in four parts, each from when the loop came to it, and of a pause one part counts."""

    def __init__(self, limit_s: float) -> None:
        self._part_s = limit_s / _PARTS
        self._left = _PARTS
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._timer = asyncio.get_running_loop().call_later(self._part_s, self._tick)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._left -= 1
        if self._left:
            self._timer = loop.call_later(self._part_s, self._tick)
        else:
            self._timeout.reschedule(loop.time())


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

    def __init__(self, client: Callable[[], Any], wait_s: float, replica_ms: int, *, is_cluster: bool) -> None:
        self._client = client
        self._wait_s = wait_s
        self._replica_ms = replica_ms
        self._is_cluster = is_cluster
        self._waiting: deque[_Asked] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: list[Any] = []

    async def ask(self, steps: Sequence[Step], *, waits: bool) -> list[Any]:
        """Runs *steps* in this order. Returns results and errors; at the end the number of replicas if it *waits* for
        one. Raises the errors of redis-py and of the network; what was sent is not taken back by a cancellation."""
        asked = _Asked(steps, waits)
        self._waiting.append(asked)
        if len(self._tasks) < LANES:
            # Past the loop's factory: its work is that of many callers (``app/pace.py``).
            hold(asyncio.Task(self._send(), loop=asyncio.get_running_loop(), name="steps in Redis"), self._tasks)
        return await asked.found

    async def aclose(self) -> None:
        await end_tasks(*self._tasks)
        self._connections.clear()

    async def _send(self) -> None:
        while batch := self._batch():
            try:
                async with Patience(self._wait_s):
                    await self._exchange(batch)
            except ERRORS as error:
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
        again = [asked for asked, each in zip(batch, found, strict=True) if any(map(_must_repeat, each))]
        for error in (result for each in found for result in each if isinstance(result, exceptions.MovedError)):
            await self._client().nodes_manager.move_slot(error)
        if again:
            for text in {step[0].text for asked in again for step in asked.steps if isinstance(step[0], Script)}:
                await self._client().script_load(text)
            repeated = dict(zip(again, await self._run(again), strict=True))
            found = [repeated.get(asked, each) for asked, each in zip(batch, found, strict=True)]
        for asked, each in zip(batch, found, strict=True):
            if not asked.found.done():
                asked.found.set_result(each)

    async def _run(self, batch: Sequence[_Asked]) -> list[list[Any]]:
        # On one connection with WAIT, which speaks of what its own connection has written.
        commands = [_command(step) for asked in batch for step in asked.steps]
        waits = batch[0].waits
        if waits:
            commands.append(("WAIT", 1, self._replica_ms))
        client = self._client()
        if self._is_cluster:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            # Nothing is sent to the node that a slot is on its way to: it has only some of the keys that a script uses.
            results = await pipeline.execute(raise_on_error=False, allow_redirections=False)
        else:
            results = await self._on_connection(client, commands)
        found, at = [], 0
        for asked in batch:
            own = results[at : at + len(asked.steps)]
            at += len(asked.steps)
            found.append([*own, results[-1]] if waits else own)
        return found

    async def _on_connection(self, client: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """As a pipeline of redis-py, whose own steps cost several times as much as the exchange. A connection stays
        with the lanes: one that was closed in the meantime is opened again by the second attempt."""
        connections = self._connections
        connection = connections.pop() if connections else await client.connection_pool.get_connection()

        async def exchange() -> list[Any]:
            if not connection.is_connected:
                await connection.connect()  # sending would connect too, but without asking Sentinel
            await connection.send_packed_command(connection.pack_commands(commands))
            results: list[Any] = []
            for name, *_ in commands:
                try:
                    results.append(await client.parse_response(connection, name))
                except exceptions.ResponseError as error:
                    results.append(error)
            return results

        try:
            attempts = connection.retry.call_with_retry(exchange, lambda error: connection.disconnect())
            return cast(list[Any], await attempts)
        except BaseException:
            await connection.disconnect(nowait=True)  # it may have answers that nobody has read
            raise
        finally:
            connections.append(connection)


def _command(step: Step) -> Sequence[Any]:
    script, keys, arguments = step
    if isinstance(script, Script):
        return "EVALSHA", script.digest, len(keys), *keys, *arguments
    return script, *keys, *arguments


def _must_repeat(result: Any) -> bool:
    return isinstance(result, exceptions.NoScriptError | exceptions.MovedError)


def _fail(batch: Sequence[_Asked], error: Exception) -> None:
    for asked in batch:
        if not asked.found.done():
            asked.found.set_exception(error)
