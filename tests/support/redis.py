"""A real redis-server on a free port, with a folder of its own, and a Cluster of several."""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from tests.support.debian import debian_program
from tests.support.ports import free_port
from tests.support.until import until_now

_BOUND_S = 30.0
PASSWORD = "not-a-secret"


class RedisServer:
    """Started at *port*, or at a free one. ``kill`` and ``start`` again keep the port and the data."""

    def __init__(self, folder: Path, *options: str, port: int = 0, tls: bool = False, sentinel: bool = False) -> None:
        self._folder = folder
        self.options = options
        self._tls = tls
        self._sentinel = sentinel
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = debian_program("redis-server", "redis-server")
        self._folder.mkdir(parents=True, exist_ok=True)
        first: Sequence[str] = ()
        if self._sentinel:
            # A Sentinel writes into its file.
            file = self._folder / "sentinel.conf"
            if not file.exists():
                file.write_text("\n".join([f"port {self.port}", "bind 127.0.0.1", *self.options]))
            first = (str(file), "--sentinel")
        ports = ("--port", "0", "--tls-port") if self._tls else ("--port",)
        usual = (*ports, str(self.port), "--bind", "127.0.0.1", "--save", "", *self.options)
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program.path, *(first or usual)], cwd=self._folder, env=program.environment, stdout=log, stderr=log
            )
        until_now(self._started)

    def _started(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self._folder / "log").read_text()
        return listens(self.port)

    def flush(self) -> None:
        with closing(Redis(port=self.port)) as client:
            client.flushall()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def redis_server(folder: Path, *options: str, tls: bool = False) -> Iterator[RedisServer]:
    server = RedisServer(folder, *options, tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.kill()


SLOTS = 16_384


class RedisCluster:
    """Masters that share the slots in equal parts, in the order of *nodes*; each may be killed and started again."""

    def __init__(self, folder: Path, *options: str, masters: int = 3, password: str = "") -> None:
        self._folder = folder
        self._password = password
        login = ("--requirepass", password, "--masterauth", password) if password else ()
        timing = ("--cluster-node-timeout", "500", "--repl-diskless-sync-delay", "0")
        self._options = ("--cluster-enabled", "yes", *timing, "--appendonly", "yes", *login, *options)
        self.nodes = [self._node(number) for number in range(masters)]

    @property
    def url(self) -> str:
        """Names one node only: the others are found through it."""
        login = f":{self._password}@" if self._password else ""
        return f"redis+cluster://{login}127.0.0.1:{self.nodes[0].port}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        for number, node in enumerate(self.nodes):
            first, end = (SLOTS * at // len(self.nodes) for at in (number, number + 1))
            self.ask(node, "CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            self.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            self._meet(node)
        self.until_ok()

    def _node(self, number: int) -> RedisServer:
        return RedisServer(self._folder / str(number), *self._options, "--cluster-port", str(free_port()))

    def _meet(self, node: RedisServer) -> None:
        bus = int(node.options[node.options.index("--cluster-port") + 1])
        self.ask(self.nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port, bus)

    def until_ok(self) -> None:
        """Waits until every node knows of all slots."""
        until_now(lambda: all("cluster_state:ok" in str(self.ask(node, "CLUSTER", "INFO")) for node in self.nodes))

    def ask(self, node: RedisServer, *command: str | int) -> Any:
        with closing(Redis(port=node.port, password=self._password or None, decode_responses=True)) as client:
            # The plain connection, because the client of redis-py reads answers about a Cluster in its own way.
            connection = client.connection_pool.get_connection()
            connection.send_command(*command)  # type: ignore[no-untyped-call]
            answer = connection.read_response()
            client.connection_pool.release(connection)
            return answer

    def owner(self, slot: int, asked: RedisServer | None = None) -> RedisServer:
        """Returns the node that has *slot*, as *asked* knows it; by default the first node."""
        ranges = self.ask(asked or self.nodes[0], "CLUSTER", "SLOTS")
        port = next(each[2][1] for each in ranges if each[0] <= slot <= each[1])
        return next(node for node in self.nodes if node.port == port)

    def begin_move(self, slot: int) -> tuple[RedisServer, RedisServer]:
        """From now on *slot* is on its way (ASK for keys that went). Returns the nodes that it leaves and enters."""
        source = self.owner(slot)
        target = next(node for node in self.nodes if node is not source)
        ids = [self.ask(node, "CLUSTER", "MYID") for node in (source, target)]
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        return source, target

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer, most: int = 1_000) -> None:
        keys = self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, most)
        login = ("AUTH", self._password) if self._password else ()
        if keys:
            self.ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, *login, "KEYS", *keys)

    def end_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Nobody but the two is told; the others learn of it from them (MOVED meanwhile)."""
        id = self.ask(target, "CLUSTER", "MYID")
        for node in (target, source):
            self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", id)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


@contextmanager
def redis_cluster(folder: Path, *options: str, masters: int = 3, password: str = "") -> Iterator[RedisCluster]:
    cluster = RedisCluster(folder, *options, masters=masters, password=password)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
