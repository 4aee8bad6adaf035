"""The soak: many callers over many upstreams while one upstream is killed every few seconds (``make soak``).

Every answer is checked for being its own, every call for ending, and at the end what the service holds is compared with
what it held after the warm-up: memory, tasks, threads, files, streams, processes. The exit code is 1 for any fault.

64 callers (a third each at ``/mcp`` in the two eras and at ``/engine/chat`` with the scripted model) call ten
upstreams: three servers over stdio written by hand, two with the SDK, three over streamable HTTP, an HTTP service by
its OpenAPI document, typed Python functions. Every three seconds one of their processes is killed or stopped for up to
five seconds. Callers abandon one call in twenty. Every half minute a SIGHUP adds or removes an eleventh upstream. A
good answer contains a mark that only this call can have. A call that does not end within 15 s and a traceback in the
service's log are faults too.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from bench.soak_callers import ERAS, Caller, Tally
from bench.soak_chaos import Chaos, Upstream, make_upstreams
from bench.table import figure, percentile, table
from tests.support.process import Program, alive, children, program
from wicketgate.storage.keys import new_key

TIMEOUT_S = 2.0
"""For one attempt; the service makes at most two, and half a second between them."""
BOUND_S = 15.0
_SETTLE_S = 45.0
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Held:
    """Sizes of the service while nobody calls."""

    memory_mb: float
    tasks: int
    threads: int
    files: int
    streams: int
    processes: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The amount by which more may be held at the end than after the warm-up."""

    memory: float
    memory_mb: float
    tasks: int = 5
    threads: int = 8
    files: int = 24


class Soak:
    def __init__(self, running: Program, http: httpx.AsyncClient, upstreams: Sequence[Upstream]) -> None:
        self._running = running
        self._http = http
        self._upstreams = upstreams
        self._told = 0
        self.seen: set[int] = set()
        """Every process that the service ever had, as far as anybody looked."""

    async def metrics(self) -> dict[str, float]:
        text = (await self._http.get("/metrics")).text
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        self.seen.update(children(self._running.process.pid))
        return {name: float(value) for name, value in lines}

    def tell_tracebacks(self) -> None:
        """The newest of them, as soon as there are more."""
        found = _tracebacks(self._running.stdout.rpartition("\n")[0])
        if len(found) > self._told:
            self._told = len(found)
            print(f"    {found[-1]}", flush=True)

    async def settled(self) -> Held:
        """Once every upstream is ready and no call runs: what is held then. Raises TimeoutError."""
        async with asyncio.timeout(_SETTLE_S):
            while not await self._quiet():  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        told = await self.metrics()
        return Held(
            told["process_resident_memory_bytes"] / _MB,
            int(told["wicketgate_tasks"]),
            int(told["wicketgate_threads"]),
            int(told["process_open_fds"]),
            int(sum(count for name, count in told.items() if name.startswith('wicketgate_active{kind="streams_'))),
            len(children(self._running.process.pid)),
        )

    async def _quiet(self) -> bool:
        health = (await self._http.get("/readyz")).json()["upstreams"]
        return len(health) == len(self._upstreams) and all(
            one["state"] == "ready" and one["tools"] == 1 and not one["in_flight"] and not one["queued"]
            for one in health.values()
        )

    async def tool_ids(self) -> dict[str, str]:
        """The id of each upstream's tool, as any caller would find it."""
        found = {}
        for upstream in self._upstreams:
            params = {"name": "tool_browse", "arguments": {"path": f"/{upstream.name}"}}
            finder = Caller("finder", "handshake", self._http, {}, Tally(), BOUND_S, 0, random.Random(0))
            await finder.open()
            reply = await finder.ask("tools/call", params)
            await finder.close()
            (card,) = reply["result"]["structuredContent"]["cards"]
            found[upstream.name] = card["id"]
        return found


async def soak(given: argparse.Namespace) -> int:
    chance = random.Random(given.seed)
    key, digest = new_key("soak")
    with tempfile.TemporaryDirectory() as folder:
        upstreams = make_upstreams(given.upstreams, Path(folder))
        config = Path(folder) / "wicketgate.yaml"
        write_config(config, upstreams, digest, extra=False)
        async with AsyncExitStack() as stack:
            for upstream in upstreams:
                stack.push_async_callback(upstream.end)
                await upstream.start()
            running = await stack.enter_async_context(
                program("app", "serve", "--config", str(config), "--port", "0", cold=True)
            )
            url = (await running.wait_for(r"ready on (http://\S+)")).group(1)

            async def client() -> httpx.AsyncClient:
                # One for each caller: a request that is given up while it shares httpx's pool can leave another one
                # waiting there for ever.
                made = httpx.AsyncClient(
                    base_url=url,
                    headers={"Authorization": f"Bearer {key}"},
                    timeout=BOUND_S * 2,
                    trust_env=False,
                )
                return await stack.enter_async_context(made)

            http = await client()
            service = Soak(running, http, upstreams)
            await service.settled()
            tools = await service.tool_ids()
            tally = Tally()
            callers = [
                Caller(
                    f"c{n}", ERAS[n % len(ERAS)], await client(), tools, tally, BOUND_S, given.pause_s, random.Random(n)
                )
                for n in range(given.callers)
            ]
            for caller in callers:
                await caller.open()
            chaos = Chaos(upstreams, running.process.pid, given.kill_every_s, chance)

            print(f"soak: {given.callers} callers, {given.upstreams} upstreams, {given.minutes:g} minutes", flush=True)
            reloads = Reloads(config, upstreams, digest, running.process.pid)
            begin = await phase(service, callers, chaos, reloads, tally, given.minutes * 60 * given.warm_up, "warm-up")
            end = await phase(service, callers, chaos, reloads, tally, given.minutes * 60 * (1 - given.warm_up), "soak")
            for caller in callers:
                await caller.close()
            stopped = await running.stop(signal.SIGTERM)
            left = [pid for pid in service.seen if alive(pid)]
            tracebacks = _tracebacks(running.stdout)
    faults = [*tally.faults, *judge(begin, end, Limits(given.memory, given.memory_mb)), *tracebacks]
    if not tally.total("ok"):
        faults.append("no call had a good answer")
    if stopped != 0:
        faults.append(f"the service ended with {stopped}")
    if left:
        faults.append(f"processes left behind: {left}")
    report(tally, chaos, reloads, begin, end)
    for fault in faults:
        print(f"FAULT: {fault}")
    print("\nsoak: " + ("failed" if faults else "passed"))
    return 1 if faults else 0


class Reloads:
    """Every now and then the configuration gains or loses an upstream that nobody calls."""

    def __init__(self, config: Path, upstreams: Sequence[Upstream], digest: str, gateway: int) -> None:
        self._config = config
        self._upstreams = upstreams
        self._digest = digest
        self._gateway = gateway
        self.count = 0

    async def go_on(self, stop: asyncio.Event, every_s: float) -> None:
        while not stop.is_set():
            self._reload(extra=self.count % 2 == 0)
            try:
                async with asyncio.timeout(every_s):
                    await stop.wait()
            except TimeoutError:
                continue
        self._reload(extra=False)

    def _reload(self, *, extra: bool) -> None:
        self.count += 1
        write_config(self._config, self._upstreams, self._digest, extra=extra)
        os.kill(self._gateway, signal.SIGHUP)


def write_config(path: Path, upstreams: Sequence[Upstream], digest: str, *, extra: bool) -> None:
    listed: list[Mapping[str, Any]] = [{**one.settings, "timeout_s": TIMEOUT_S} for one in upstreams]
    if extra:
        listed.append(Upstream("guest", "stdio", path.parent).settings)
    whole = {
        "auth": {"keys": [{"id": "soak", "sha256": digest, "actor": "soak", "permissions": ["tools:*", "ops:read"]}]},
        "upstreams": listed,
        "server": {"log_level": "error"},
        # Small, so that it is full after the warm-up: what grows then is no store.
        "storage": {"max_bytes": 2 * _MB},
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(yaml.safe_dump(whole))
    fresh.replace(path)


async def phase(
    service: Soak,
    callers: Sequence[Caller],
    chaos: Chaos,
    reloads: Reloads,
    tally: Tally,
    seconds: float,
    name: str,
) -> Held:
    """Calls and kills for so long; then what the service holds when all is quiet again."""
    stop = asyncio.Event()
    began = time.monotonic()

    async def tell() -> None:
        while not stop.is_set():
            try:
                async with asyncio.timeout(min(10, seconds)):
                    await stop.wait()
            except TimeoutError:
                told = await service.metrics()
                service.tell_tracebacks()
                print(
                    f"  {name} {time.monotonic() - began:4.0f} s: {sum(tally.outcomes.values())} calls, "
                    f"{tally.total('ok')} ok, {tally.total('wrong')} wrong, {tally.total('hang')} hung, "
                    f"{sum(chaos.done.values())} strikes, {told['process_resident_memory_bytes'] / _MB:.0f} MB, "
                    f"{told['wicketgate_tasks']:.0f} tasks, {told['process_open_fds']:.0f} files",
                    flush=True,
                )

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tell())
        tasks.create_task(chaos.rage(stop))
        tasks.create_task(reloads.go_on(stop, max(2.0, seconds / 20)))
        for caller in callers:
            tasks.create_task(caller.live(stop))
        await asyncio.sleep(seconds)
        stop.set()
    return await service.settled()


def report(tally: Tally, chaos: Chaos, reloads: Reloads, begin: Held, end: Held) -> None:
    kinds = sorted({kind for _, kind in tally.outcomes})
    rows = [
        [
            era,
            str(sum(tally.outcomes[era, kind] for kind in kinds)),
            *(str(tally.outcomes[era, kind]) for kind in kinds),
        ]
        for era in ERAS
    ]
    print("\n" + table(["calls", "all", *kinds], rows))
    median, p99 = percentile(tally.seconds, 50), percentile(tally.seconds, 99)
    print(
        f"\ngood answers: median {figure(_ms(median))} ms, p99 {figure(_ms(p99))} ms; the longest call of any kind "
        f"{tally.longest_s:.1f} s\nstrikes: {dict(sorted(chaos.done.items()))}, reloads: {reloads.count}\n"
    )
    names = {"memory_mb": "memory, MB"}
    fields = Held.__dataclass_fields__
    held = [[names.get(one, one), *(figure(float(getattr(moment, one))) for moment in (begin, end))] for one in fields]
    print(table(["held while nobody calls", "after warm-up", "at the end"], held))


def judge(begin: Held, end: Held, limits: Limits) -> list[str]:
    """Things that have grown and should not have."""
    faults = []
    if end.memory_mb > begin.memory_mb * limits.memory + limits.memory_mb:
        faults.append(f"memory grew from {begin.memory_mb:.0f} to {end.memory_mb:.0f} MB")
    for one, more in (("tasks", limits.tasks), ("threads", limits.threads), ("files", limits.files)):
        if getattr(end, one) > getattr(begin, one) + more:
            faults.append(f"{one} grew from {getattr(begin, one)} to {getattr(end, one)}")
    for one in ("streams", "processes"):
        if getattr(end, one) != getattr(begin, one):
            faults.append(f"{one}: {getattr(begin, one)} after the warm-up, {getattr(end, one)} at the end")
    return faults


def _tracebacks(log: str) -> list[str]:
    """The first few failures inside the service that nobody expected."""
    found = [line for line in map(json.loads, log.splitlines()) if "exception" in line]
    return [f"in the service: {line['message']}\n{line['exception']}" for line in found[:5]]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1_000


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Soak the service while its upstreams are killed.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--upstreams", type=int, default=10)
    parser.add_argument("--kill-every", dest="kill_every_s", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--pause", dest="pause_s", type=float, default=0.5, metavar="SECONDS", help="between two calls")
    parser.add_argument("--warm-up", type=float, default=0.2, metavar="SHARE", help="of the time")
    parser.add_argument("--memory", type=float, default=1.10, metavar="TIMES", help="what it may grow to")
    parser.add_argument("--memory-mb", type=float, default=8.0, metavar="MB", help="and so much on top")
    parser.add_argument("--seed", type=int, default=1)
    return asyncio.run(soak(parser.parse_args(args)))


if __name__ == "__main__":
    sys.exit(main())
