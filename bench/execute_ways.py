"""The ways to one tool that ``bench.execute`` compares, each opened as its users open it, all alive at once.

- *direct*: the official client on the upstream itself.
- *in process*: ``tool_execute`` of the gateway face in the caller's own process, as the engine calls it.
- *gateway*, *namespaced*: the faces of the real service at ``/mcp``, one process, by a lean client in either era.
- *mcp-proxy*, *FastMCP*: other gateways, by the same lean client.

Each way to each upstream has a client process (``bench.execute_caller``). The measured process is pinned to one core,
all others to another. Each HTTP upstream is one process for all ways; each way starts its own stdio upstream.
"""

import json
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.checkouts import HERE, Checkout, serving
from bench.cpu import MEASURED, as_load, cpu_s, pin
from bench.execute_caller import SDK_MODES, Spec, configured
from bench.execute_peers import find_peer, peer_target
from bench.execute_rows import DIRECT, GATEWAY, IN_PROCESS, NAMESPACED, PEERS, UPSTREAMS, WAYS, Block
from bench.helper_process import helper_process, next_line
from bench.quiet_process import quiet_process
from tests.support.process import children

_BOUND_S, _END_S = 120.0, 10.0
_SERVER = (sys.executable, "-m", "bench.execute_upstream")
LEAN = [sys.executable, "-m", "bench.lean_upstream"]
"""The upstream over stdio. A server of the SDK is so slow that its answers come one by one, and the figures of all ways
would depend on its speed."""


class Way:
    """*gateway* and *upstream* are the processes behind the client, None where there is none or where it changes."""

    def __init__(self, name: str, client: Any, gateway: int | None, upstream: int | None) -> None:
        self.name = name
        self.gateway = gateway
        self.upstream = upstream
        self.client: int = client.pid
        self._client = client

    async def block(self, chars: int, callers: int, calls: int, first: int) -> Block:
        """Makes *calls* calls, numbered from *first*. Raises RuntimeError when one fails."""
        before = self._cpu()
        order = {"chars": chars, "callers": callers, "calls": calls, "first": first}
        self._client.stdin.write(json.dumps(order).encode() + b"\n")
        done = await answer(self._client)
        gateway, upstream = ((late - early) / calls * 1e6 for early, late in zip(before, self._cpu(), strict=True))
        return Block(done["cpu_us"], gateway, upstream, done["wall_us"], done["latency_us"])

    def _cpu(self) -> tuple[float, ...]:
        return tuple(cpu_s(pid) if pid else 0.0 for pid in (self.gateway, self.upstream))


async def answer(client: Any) -> dict[str, float]:
    """The next answer of a client process. Raises RuntimeError if it is a failure."""
    line = await next_line(client, _BOUND_S)
    if not line:
        raise RuntimeError("the client process has ended")
    found: dict[str, Any] = json.loads(line)
    if "failed" in found:
        raise RuntimeError(found["failed"])
    return found


@dataclass(frozen=True, slots=True)
class Opened:
    """*ways* by upstream, in the order of ``WAYS``. *missing*: by upstream and way, why it could not be opened. *url*
    is the address of our own service, if it runs."""

    ways: Mapping[str, list[Way]]
    missing: dict[tuple[str, str], str] = field(default_factory=dict)
    url: str = ""


@asynccontextmanager
async def open_ways(
    upstreams: Sequence[str] = UPSTREAMS, wanted: Collection[str] = WAYS, checkouts: Sequence[Checkout] = (HERE,)
) -> AsyncIterator[Opened]:
    """*wanted* are names of ways; the direct one is always there. The faces are those of each of *checkouts*."""
    async with AsyncExitStack() as stack:
        stack.enter_context(as_load())
        targets: dict[str, str | Sequence[str]] = {"stdio": LEAN}
        pids: dict[str, int] = {}
        for name in (name for name in SDK_MODES if name in upstreams):
            option = "--http" if name == "http" else "--handshake"
            server = await stack.enter_async_context(quiet_process(*_SERVER, option))
            targets[name] = (await server.wait_for(r"listening on (http://\S+)")).group(1)
            pids[name] = server.pid
        ways: dict[str, list[Way]] = {name: [] for name in upstreams}
        missing: dict[tuple[str, str], str] = {}

        async def open_one(name: str, spec: Spec, gateway: int | None = None) -> None:
            client = await stack.enter_async_context(_client(spec))
            started = children(client.pid)
            if spec.way in (DIRECT, IN_PROCESS):
                pin(client.pid, MEASURED)
            elif gateway is None:
                gateway = started[0]
                pin(gateway, MEASURED)
            upstream = pids.get(spec.upstream) or next(iter(children(gateway) if gateway else started), None)
            ways[spec.upstream].append(Way(name, client, gateway, upstream))

        for way in (way for way in (DIRECT, IN_PROCESS) if way in {DIRECT, *wanted}):
            for name in upstreams:
                await open_one(way, Spec(way, name, targets[name]))
        doors = [way for way in (*GATEWAY, *NAMESPACED) if way in wanted]
        settings = {"upstreams": [configured(name, targets[name]) for name in upstreams]}
        services = [(one, await stack.enter_async_context(serving(settings, one))) for one in checkouts if doors]
        for way in doors:
            for checkout, service in services:
                for name in upstreams:
                    await open_one(checkout.at(way), Spec(way, name, service.url, service.key), service.pid)
        for way in (way for way in PEERS if way in wanted):
            peer = find_peer(way)
            if isinstance(peer, str):
                missing |= {(name, way): peer for name in upstreams}
                continue
            for name in upstreams:
                try:
                    target, pid = await stack.enter_async_context(peer_target(way, peer, targets[name]))
                    await open_one(way, Spec(way, name, target), pid)
                    await ways[name][-1].block(100, 1, 1, 0)
                except (RuntimeError, TimeoutError, OSError) as error:
                    ways[name] = [one for one in ways[name] if one.name != way]
                    missing[name, way] = f"{error!s:.200}"
        url = next((service.url for checkout, service in services if checkout == HERE), "")
        yield Opened(ways, missing, url)


@asynccontextmanager
async def _client(spec: Spec) -> AsyncIterator[Any]:
    async with helper_process("bench.execute_caller", json.dumps(asdict(spec))) as client:
        try:
            await answer(client)
            yield client
        finally:
            assert client.stdin is not None
            client.stdin.close()  # then it ends what it has started
            with suppress(TimeoutError):
                await next_line(client, _END_S)
