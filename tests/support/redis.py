"""A real redis-server on a free port, with a folder of its own."""

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.debian import debian_program

_BOUND_S = 30.0
PASSWORD = "not-a-secret"


class RedisServer:
    """Started at *port*, or at a free one. ``kill`` and ``start`` again keep the port and the data."""

    def __init__(self, folder: Path, *options: str, port: int = 0, tls: bool = False, sentinel: bool = False) -> None:
        self._folder = folder
        self._options = options
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
                file.write_text("\n".join([f"port {self.port}", "bind 127.0.0.1", *self._options]))
            first = (str(file), "--sentinel")
        ports = ("--port", "0", "--tls-port") if self._tls else ("--port",)
        usual = (*ports, str(self.port), "--bind", "127.0.0.1", "--save", "", *self._options)
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program.path, *(first or usual)], cwd=self._folder, env=program.environment, stdout=log, stderr=log
            )
        give_up_at = time.monotonic() + _BOUND_S
        while not listens(self.port):
            assert self.process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < give_up_at, "redis-server did not start"
            time.sleep(0.01)

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


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
