"""The Redis of ``make chaos``: one server, or a master with a replica behind three Sentinels."""

import asyncio
import contextlib
import resource
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support.debian import debian_program
from tests.support.ports import free_port
from tests.support.redis import RedisServer

KEEPS = ("appendonly yes", "appendfsync always", "maxmemory-policy noeviction")
"""Settings of a Redis that keeps what it acknowledged."""
BEHIND_SENTINEL = "min-replicas-to-write 1"
_SERVICE = "gate"
_START_BOUND_S = 30.0
_FAILOVER_BOUND_S = 60.0
_MORE = ("repl-diskless-sync-delay 0", "save ''", "auto-aof-rewrite-percentage 0")


class Server:
    """One redis-server with a file that it may rewrite, as Sentinels want it, so that a restart knows its role."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        lines = (f"port {self.port}", "bind 127.0.0.1", f"dir {folder}", *_MORE, *options)
        (folder / "redis.conf").write_text("\n".join(lines) + "\n")

    async def start(self) -> None:
        await self.launch()
        async with asyncio.timeout(_START_BOUND_S):
            while not await self.answers():
                assert self.process is not None
                if self.process.poll() is not None:
                    raise RuntimeError((self._folder / "log").read_text()[-2000:])
                await asyncio.sleep(0.02)

    async def launch(self) -> None:
        program = await asyncio.to_thread(debian_program, "redis-server", "redis-server")
        with (self._folder / "log").open("ab") as log:
            # As Python does, it ignores SIGXFSZ: a write beyond the limit fails, as one on a full disk does.
            self.process = subprocess.Popen(  # noqa: ASYNC220
                [str(program.path), str(self._folder / "redis.conf")],
                env=program.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                restore_signals=False,
                start_new_session=True,
            )

    async def answers(self) -> bool:
        """Returns whether it serves; one that still loads does not."""
        try:
            return bool(await self._ask("PING", bound_s=1))
        except (redis.RedisError, OSError):
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    async def answer_late(self, for_s: float, late_s: float) -> None:
        """Every answer is up to *late_s* late."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            await self._ask("CLIENT", "PAUSE", int(late_s * 1000), "ALL")
            began = time.monotonic()
            await self._ask("PING", bound_s=late_s + 5)
            check_felt("slow", time.monotonic() - began > late_s / 2)
            await asyncio.sleep(0.1)

    async def take_and_not_answer(self, for_s: float) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
            check_felt("deaf", not await self.answers())
        finally:
            self.process.send_signal(signal.SIGCONT)

    async def refuse_writes(self, name: str, value: str, for_s: float) -> None:
        """Sets *name* so that no write is taken."""
        (_, before) = await self._ask("CONFIG", "GET", name)
        await self._ask("CONFIG", "SET", name, value)
        try:
            with contextlib.suppress(redis.ResponseError):
                await self._ask("SET", "chaos", "1")
                check_felt(name, felt=False)
            await asyncio.sleep(for_s)
        finally:
            await self._ask("CONFIG", "SET", name, before)

    async def flush(self) -> None:
        check_felt("flush", await self._ask("DBSIZE") > 0)
        await self._ask("FLUSHALL")

    async def _ask(self, *words: str | int, bound_s: float = 5.0) -> Any:
        """Asks once, without the retries of redis-py, which take many seconds."""
        once = Retry(NoBackoff(), 0)
        async with redis.asyncio.Redis(
            port=self.port, socket_timeout=bound_s, socket_connect_timeout=bound_s, retry=once, decode_responses=True
        ) as client:
            answer = await client.execute_command(*words)  # type: ignore[no-untyped-call]
        return [word for pair in answer.items() for word in pair] if isinstance(answer, dict) else answer

    def fill_disk(self) -> None:
        """No file may grow any more. A write fails from now on, and a Redis with ``appendfsync always`` ends then."""
        assert self.process is not None
        sizes = [path.stat().st_size for path in self._folder.rglob("*.aof")]
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (max(sizes, default=0), hard))


def check_felt(fault: str, felt: bool) -> None:
    """Raises RuntimeError for a fault that was not brought: nothing would be shown by what holds under it."""
    if not felt:
        raise RuntimeError(f"nothing was felt of the fault {fault!r}")


class Redis:
    """*servers* are one, or two; *sentinels* none, or three."""

    def __init__(self, servers: Sequence[Server], sentinels: Sequence[RedisServer]) -> None:
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        if not self.sentinels:
            return f"redis://127.0.0.1:{self.servers[0].port}"
        return f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in self.sentinels)}/{_SERVICE}"

    @property
    def settings(self) -> str:
        return ", ".join([*KEEPS, *([BEHIND_SENTINEL, "3 Sentinels"] if self.sentinels else [])])

    async def master(self) -> Server:
        if not self.sentinels:
            return self.servers[0]
        port = await self._master_port()
        return next(each for each in self.servers if each.port == port)

    async def other_is_master(self, than: Server) -> None:
        """Wait for the end of a failover. Raises TimeoutError."""
        async with asyncio.timeout(_FAILOVER_BOUND_S):
            while await self._master_port() == than.port:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def until_replicated(self) -> None:
        """Wait until the master has its replica. Raises TimeoutError."""
        async with asyncio.timeout(_FAILOVER_BOUND_S):
            while not await self._replicated():  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _replicated(self) -> bool:
        with contextlib.suppress(redis.RedisError, OSError):
            async with redis.asyncio.Redis(port=await self._master_port(), socket_timeout=1) as client:
                told = await client.info("replication")
                return bool(told["role"] == "master" and told.get("slave0", {}).get("state") == "online")
        return False

    async def _master_port(self) -> int:
        for each in self.sentinels:
            with contextlib.suppress(redis.RedisError, OSError):
                async with redis.asyncio.Redis(port=each.port, socket_timeout=1) as client:
                    told = await client.execute_command(  # type: ignore[no-untyped-call]
                        "SENTINEL GET-MASTER-ADDR-BY-NAME", _SERVICE
                    )
                    return int(told[1])
        raise RuntimeError("no Sentinel answers")


@asynccontextmanager
async def running_redis(folder: Path, *, sentinel: bool) -> AsyncIterator[Redis]:
    options = (*KEEPS, *([BEHIND_SENTINEL, "min-replicas-max-lag 10"] if sentinel else []))
    first = Server(folder / "redis-1", *options)
    servers = [first]
    sentinels: list[RedisServer] = []
    if sentinel:
        servers.append(Server(folder / "redis-2", *options, f"replicaof 127.0.0.1 {first.port}"))
        watch = (
            f"sentinel monitor {_SERVICE} 127.0.0.1 {first.port} 2",
            f"sentinel down-after-milliseconds {_SERVICE} 2000",
            f"sentinel failover-timeout {_SERVICE} 6000",
        )
        sentinels += [RedisServer(folder / f"sentinel-{number}", *watch, sentinel=True) for number in range(3)]
    made = Redis(servers, sentinels)
    try:
        for server in servers:
            await server.start()
        for each in sentinels:
            await asyncio.to_thread(each.start)
        if sentinel:
            await made.until_replicated()
        yield made
    finally:
        for server in servers:
            server.kill()
        for each in sentinels:
            each.kill()
