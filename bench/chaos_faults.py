"""Brings the faults of ``chaos_plan`` upon the processes, and puts all in order again."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos_places import Places, Replica
from bench.chaos_plan import Kind, Strike, lane, lanes
from bench.chaos_redis import Server
from tests.support.locked_file import locked

CLOCK_S = 45
"""Below the minute that clocks of replicas may differ (`requestState` of the SDK)."""
LATE_S = 1.5


@dataclass
class Faults:
    """*done* counts what was brought. *told* are lines with the second of each."""

    places: Places
    began: float
    done: Counter[Kind] = field(default_factory=Counter)
    under_way: set[str] = field(default_factory=set)
    flushes: list[list[float]] = field(default_factory=list)
    """That of the ledger."""

    async def rage(self, kinds: Sequence[Kind], seed: int, every_s: float, stop: asyncio.Event) -> None:
        """Strikes in every lane until *stop*; all run again when this returns."""
        async with asyncio.TaskGroup() as tasks:
            for own in lanes(kinds):
                tasks.create_task(self._rage(own, seed, every_s, stop))

    async def _rage(self, kinds: Sequence[Kind], seed: int, every_s: float, stop: asyncio.Event) -> None:
        for strike in lane(kinds, seed, every_s):
            with suppress(TimeoutError):
                async with asyncio.timeout(strike.after_s):
                    await stop.wait()
                return
            await self.bring(strike)

    async def bring(self, strike: Strike) -> None:
        """One fault, from its beginning to its mend."""
        replicas = self.places.replicas
        if strike.kind == "clock":
            replicas = [replica for replica in replicas if replica.clock is not None]
        replica = replicas[int(strike.choice * len(replicas))]
        name = f"{strike.kind} {replica.name}" if strike.kind in ("kill", "pause", "clock") else strike.kind
        print(f"    {time.monotonic() - self.began:6.1f} s  {name}", flush=True)
        self.under_way.add(name)
        try:
            match strike.kind:
                case "kill":
                    await replica.stop(signal.SIGKILL)
                    await asyncio.sleep(strike.for_s)
                    await replica.start()
                case "pause":
                    await self._pause(replica, strike.for_s)
                case "roll":
                    for each in replicas:
                        await each.stop(signal.SIGTERM)
                        await each.start()
                case "redis-kill":
                    master = await self.places.redis.master()
                    master.kill()
                    await asyncio.sleep(strike.for_s)
                    await master.start()
                    await self._whole()
                case "failover":
                    master = await self.places.redis.master()
                    master.kill()
                    await self.places.redis.other_is_master(master)
                    await master.start()
                    await self._whole()
                case "disk":
                    await self._full_disk(await self.places.redis.master(), strike.for_s)
                    await self._whole()
                case "clock":
                    await replica.step_clock(CLOCK_S if strike.choice < 0.5 else -CLOCK_S)
                    try:
                        await asyncio.sleep(strike.for_s)
                    finally:
                        await replica.step_clock(0)
                case "slow":
                    await (await self.places.redis.master()).answer_late(strike.for_s, LATE_S)
                case "deaf":
                    await (await self.places.redis.master()).take_and_not_answer(strike.for_s)
                    await self._whole()
                case "full":
                    await (await self.places.redis.master()).refuse_writes("maxmemory", "1", strike.for_s)
                case "read-only":
                    await (await self.places.redis.master()).refuse_writes("min-replicas-to-write", "9", strike.for_s)
                case "flush":
                    # Noted before: a client may feel the loss before this process has the answer.
                    self.flushes.append([time.monotonic() - self.began])
                    await (await self.places.redis.master()).flush()
                    self.flushes[-1].append(time.monotonic() - self.began)
                case "lock":
                    assert isinstance(self.places.store, Path)
                    with locked(self.places.store):
                        await asyncio.sleep(strike.for_s)
                case "proxy":
                    await self.places.nginx.kill()
                    await asyncio.sleep(strike.for_s)
                    await self.places.nginx.start()
        finally:
            self.under_way.discard(name)
        self.done[strike.kind] += 1
        print(f"    {time.monotonic() - self.began:6.1f} s  {name} is mended", flush=True)

    async def _pause(self, replica: Replica, for_s: float) -> None:
        replica.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            replica.send(signal.SIGCONT)

    async def _full_disk(self, server: Server, for_s: float) -> None:
        """The server ends at its next write, and so does each that a service manager starts until there is room."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            if server.process is not None and server.process.poll() is None:
                server.fill_disk()
            else:
                server.kill()
                await server.launch()
            await asyncio.sleep(0.25)
        server.kill()
        await server.start()

    async def _whole(self) -> None:
        if self.places.redis.sentinels:
            await self.places.redis.until_replicated()
