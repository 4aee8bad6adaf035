"""The Redis of ``make chaos``: one server, or a master with a replica behind three Sentinels."""

import asyncio
import contextlib
import resource
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import redis.asyncio

from tests.support.debian import debian_program
from tests.support.redis import RedisServer, free_port

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
        async with redis.asyncio.Redis(port=self.port, socket_timeout=1, socket_connect_timeout=1) as client:
            try:
                return bool(await client.ping())
            except (redis.RedisError, OSError):
                return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def fill_disk(self) -> None:
        """No file may grow any more. A write fails from now on, and a Redis with ``appendfsync always`` ends then."""
        assert self.process is not None
        sizes = [path.stat().st_size for path in self._folder.rglob("*.aof")]
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (max(sizes, default=0), hard))


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
