"""The processes of ``make chaos`` beside Redis: model, upstream, replicas, and nginx in front of them."""

import asyncio
import json
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from bench.chaos_redis import Redis
from bench.chaos_story import BANK, DESK, TOOLS
from bench.helper_process import helper_process, next_line
from tests.support.nginx import Nginx
from tests.support.ports import free_port
from tests.support.process import Program, program
from tests.support.warm_server import warm
from wicketgate.access.identity import hash_key
from wicketgate.catalog.tool_id import derive_tool_id

ACTORS = 4
DRAIN_S = 10.0
GRACE_S = 60.0
"""For runs with a key without a reader: longer than any fault."""
_BOUND_S = 60.0
_CLOCK_SLACK_S = 15.0


def tool_ids() -> dict[str, str]:
    """The canonical id of each tool, by its own name."""
    return {
        tool["name"]: derive_tool_id(tool["name"], tool["inputSchema"], None, namespace)
        for namespace, tools in TOOLS.items()
        for tool in tools
    }


@dataclass
class Replica:
    """*faults* are ends that no fault excuses; *tracebacks* the last words of those in its log."""

    name: str
    port: int
    line: Sequence[str]
    cold: bool
    listener: socket.socket | None = None
    """Passed to each process, as a service manager does; None: each opens the port itself."""
    running: Program | None = None
    log: Path | None = None
    """The file to which the output of each process is added at its end."""
    clock: Path | None = None
    """The file that says by how much the clock of each process is wrong; None: it has the clock of the machine."""
    faults: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns when it is ready."""
        self._held = AsyncExitStack()
        self.running = await self._held.enter_async_context(
            program(
                *self.line,
                cold=self.cold,
                passed=self.listener.fileno() if self.listener else None,
            )
        )
        async with asyncio.timeout(_BOUND_S), httpx.AsyncClient(trust_env=False) as http:
            while True:
                if self.running.process.returncode is not None:
                    raise RuntimeError(f"{self.name} did not start: {self.running.stderr[-2000:]}")
                try:
                    if (await http.get(f"{self.url}/readyz", headers={"Connection": "close"})).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)

    async def step_clock(self, by_s: int) -> None:
        """Returns when the process has the new time. Raises TimeoutError."""
        assert self.clock is not None
        self.clock.write_text(str(by_s))
        async with asyncio.timeout(_BOUND_S), httpx.AsyncClient(trust_env=False) as http:
            while True:
                with suppress(httpx.TransportError):
                    date = (await http.get(f"{self.url}/healthz")).headers["date"]
                    ahead_s = (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()
                    if abs(ahead_s - by_s) < _CLOCK_SLACK_S:
                        return
                await asyncio.sleep(0.1)

    def send(self, how: signal.Signals) -> None:
        if self.running is not None and self.running.process.returncode is None:
            self.running.process.send_signal(how)

    async def stop(self, how: signal.Signals) -> None:
        if self.running is None:
            return
        running, self.running = self.running, None
        try:
            code = await running.stop(how)
            self.exits.append(f"{how.name}: {code}")
            if how == signal.SIGTERM and code:
                self.faults.append(f"{self.name} ended with {code} at {how.name}")
        except TimeoutError:
            self.faults.append(f"{self.name} did not end at {how.name}")
        finally:
            await self._held.aclose()
            said = running.stdout + running.stderr
            self.tracebacks += _tracebacks(said)
            if self.log is not None:
                with self.log.open("a") as log:
                    log.write(f"{said}--- {how.name}\n")


@dataclass(frozen=True)
class Places:
    store: Redis | Path
    replicas: Sequence[Replica]
    nginx: Nginx
    effects_file: Path
    keys: Sequence[str]
    """Credentials, each of an actor of its own."""

    @property
    def redis(self) -> Redis:
        assert isinstance(self.store, Redis)
        return self.store

    def effects(self) -> list[int]:
        """The numbers of all effects so far, in order."""
        if not self.effects_file.exists():
            return []
        return [int(line) for line in self.effects_file.read_text().split("\n")[:-1]]


@dataclass(frozen=True)
class Servers:
    """The tool server and the model: the port and the process id of each."""

    upstream_port: int
    model_port: int
    pids: Sequence[int]


@asynccontextmanager
async def servers(folder: Path, *, cold: bool, slowness: float = 1.0) -> AsyncIterator[Servers]:
    """Both of them, ready. Effects are lines of ``effects`` in *folder*. *slowness* is that of the model."""
    ids = tool_ids()
    module, options = "bench.chaos_upstream", (str(folder / "effects"),)
    line = () if cold else warm(module, *options)
    async with (
        helper_process(module, *options, line=line) as upstream,
        helper_process("bench.chaos_model", ids["charge"], ids["look"], str(slowness)) as model,
    ):
        ports = [int(await next_line(one, _BOUND_S)) for one in (upstream, model)]
        yield Servers(ports[0], ports[1], (upstream.pid, model.pid))


def configuration(folder: Path, started: Servers, keys: Sequence[str], **sections: Any) -> Path:
    """Writes the file that all replicas share, in which each of *keys* is that of another actor."""
    file = folder / "wicketgate.yaml"
    held = [
        {"id": f"k{n}", "sha256": hash_key(key), "actor": f"actor_{n}", "permissions": ["tools:*"]}
        for n, key in enumerate(keys)
    ]
    whole = {
        "auth": {"keys": held, "seal_keys": [secrets.token_hex(24)]},
        "model": {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{started.model_port}/v1", "model": "m"},
        "engine": {"resume": {"grace_s": GRACE_S}},
        "server": {"log_level": "warning", "drain_s": DRAIN_S},
        "upstreams": [
            {"name": name, "url": f"http://127.0.0.1:{started.upstream_port}/{name}"} for name in (BANK, DESK)
        ],
        **sections,
    }
    file.write_text(yaml.safe_dump(whole))
    return file


@asynccontextmanager
async def places(
    folder: Path,
    store: Redis | Path,
    replicas: int,
    *,
    cold: bool,
    clocks: int = 0,
    passed: bool = False,
    slowness: float = 1.0,
    logs: Path | None = None,
) -> AsyncIterator[Places]:
    """All of them, ready, over a Redis or an SQLite file. The clocks of the first *clocks* replicas, which start cold,
    can be set. *passed*: the sockets of the replicas outlive them. *slowness* is that of the model; *logs*
    is a folder for what the replicas write."""
    keys = [f"wg_chaos_{secrets.token_hex(20)}" for _ in range(ACTORS)]
    async with AsyncExitStack() as stack:
        started = await stack.enter_async_context(servers(folder, cold=cold, slowness=slowness))
        file = configuration(folder, started, keys, storage={"url": _url(store)})
        made = []
        for number in range(replicas):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512)) if passed else None
            port = listener.getsockname()[1] if listener else free_port()
            clock = folder / f"clock-{number + 1}" if number < clocks else None
            if clock is not None:
                clock.write_text("0")
            first = ("app",) if clock is None else ("bench.chaos_clock", str(clock))
            line = (*first, "serve", "--config", str(file), *(() if listener else ("--port", str(port))))
            replica = Replica(f"replica {number + 1}", port, line, cold or number < clocks, listener, clock=clock)
            replica.log = None if logs is None else logs / f"replica-{number + 1}.log"
            stack.push_async_callback(replica.stop, signal.SIGKILL)
            made.append(replica)
        await asyncio.gather(*(replica.start() for replica in made))
        nginx = await stack.enter_async_context(Nginx(folder / "nginx", [one.port for one in made]))
        yield Places(store, made, nginx, folder / "effects", keys)


def _url(store: Redis | Path) -> str:
    return store.url if isinstance(store, Redis) else f"sqlite:///{store}"


def _tracebacks(text: str) -> list[str]:
    """The last words of each."""
    found = []
    for line in text.splitlines():
        if "Traceback" in line:
            with suppress(ValueError):
                line = "\n".join(map(str, json.loads(line).values()))
            frames = [one.strip() for one in line.splitlines() if "/wt/" in one or 'File "' in one]
            own = [one for one in frames if "site-packages" not in one and "/lib/python" not in one]
            found.append(" < ".join([*line.strip().splitlines()[-1:], *(own or frames)[:-4:-1]])[:600])
    return found
