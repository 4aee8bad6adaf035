"""Starts ``python -m MODULE`` by forking a process that has imported the program and done nothing else.

Importing takes a second or two of a core, and a hundred tests start a process. What is forked is a new process in all
that it does after its imports: it has its own session, signals, open files, limits, environment and folder, and a
terminal if it is given one. Tests of the start itself start Python anew (``cold`` and ``command`` in
``tests.support.process``).
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    "uvicorn.main",
    "app.cli",
    "app.main",
    "app.mcp.sdk",
    "app.commands.serve",
    "app.commands.check",
    "app.commands.mcp",
    "wicketgate.gate",
    "mcp.server.stdio",
    "mcp.server.subscriptions",
    "anyio._backends._asyncio",
    "examples.shop.server",
    "examples.shop.stock",
)


class WarmProcess:
    """The part of ``asyncio.subprocess.Process`` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self._end = asyncio.StreamReader()
        self._waiting: asyncio.Task[int] | None = None

    async def connect(self, stdin: int | None, stdout: int, stderr: int, end: int) -> None:
        loop = asyncio.get_running_loop()
        for reader, fd in ((self.stdout, stdout), (self.stderr, stderr)):
            await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), os.fdopen(fd, "rb"))
        if stdin is not None:
            transport, protocol = await loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(stdin, "wb")
            )
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        await self.connect_end(end)

    async def connect_end(self, end: int) -> None:
        """Begins to wait for the exit code, which comes through *end*."""
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, self._end), os.fdopen(end, "rb"))
        self._waiting = asyncio.create_task(self._ended())

    async def _ended(self) -> int:
        self.returncode = int(await self._end.read())
        return self.returncode

    async def wait(self) -> int:
        assert self._waiting is not None
        return await asyncio.shield(self._waiting)

    def send_signal(self, how: int) -> None:
        # Like subprocess: nothing is sent to what has ended, as its id may be that of another by now.
        if self.returncode is None:
            os.kill(self.pid, how)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Starter:
    """The process that is forked from, and the socket that it is asked over."""

    def __init__(self) -> None:
        self._asks, its = socket.socketpair()
        environ = {**os.environ, "PYTHONWARNINGS": "default"}
        self._folder = tempfile.TemporaryDirectory()
        self.path = f"{self._folder.name}/socket"
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(its.fileno()), self.path],
                pass_fds=[its.fileno()],
                cwd=ROOT,
                env=environ,
            )
        self._asks.settimeout(60)
        assert self._asks.recv(1) == b".", "it did not start"
        atexit.register(self._end)

    def _end(self) -> None:
        self._asks.close()
        self._process.wait(30)
        self._folder.cleanup()

    def start(self, order: Mapping[str, Any], fds: Sequence[int]) -> int:
        message = json.dumps(order).encode()
        socket.send_fds(self._asks, [len(message).to_bytes(4, "big")], list(fds))
        self._asks.sendall(message)
        return int.from_bytes(_exactly(self._asks, 4), "big")


_starter: _Starter | None = None


async def _started(order: Mapping[str, Any], fds: Sequence[int]) -> int:
    """Returns the id of the new process. *fds* are its stdin, stdout and stderr, the pipe that is told its exit code,
    and what it finds as descriptor 3."""
    return (await asyncio.to_thread(_the_starter)).start(order, fds)


def stand_ins() -> str:
    """Returns the path of the socket for ``tests.support.warm_server``."""
    return _the_starter().path


def _the_starter() -> _Starter:
    global _starter
    if _starter is None:
        _starter = _Starter()
    return _starter


async def warm_process(
    line: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    stdin: int,
    files: int | None = None,
    passed: int | None = None,
) -> WarmProcess:
    """Starts ``python -m LINE`` in *folder*, with at most *files* open files, and *passed* as systemd passes a
    socket."""
    piped = stdin == asyncio.subprocess.PIPE
    in_read, in_write = os.pipe() if piped else (os.open(os.devnull, os.O_RDONLY), None)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    end_read, end_write = os.pipe()
    given = [in_read, out_write, err_write, end_write]
    order = {"line": list(line), "folder": folder, "env": dict(env), "files": files}
    try:
        pid = await _started(order, given if passed is None else [*given, passed])
    finally:
        for fd in given:
            os.close(fd)
    process = WarmProcess(pid)
    await process.connect(in_write, out_read, err_read, end_read)
    return process


async def warm_process_in_terminal(
    line: Sequence[str], folder: str, env: Mapping[str, str], terminal: int
) -> WarmProcess:
    """Starts ``python -m LINE`` in *folder*, with *terminal* as its terminal."""
    end_read, end_write = os.pipe()
    try:
        order = {"line": list(line), "folder": folder, "env": dict(env), "terminal": True}
        pid = await _started(order, [terminal, terminal, terminal, end_write])
    finally:
        os.close(end_write)
    process = WarmProcess(pid)
    await process.connect_end(end_read)
    return process


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _serve(asks: socket.socket, listener: socket.socket) -> list[str]:
    """Forks for each order. Returns in the child, with its command line; ends with the one that gives orders.

    Orders come over *asks*, and from stand-ins over connections to *listener*, of which each is for one process.
    """
    ends: dict[int, int] = {}
    stand_ins: dict[int, int] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([asks.fileno(), woken, listener.fileno(), *stand_ins], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(ends):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    end = ends.pop(pid)
                    stand_ins.pop(end, None)
                    with suppress(BrokenPipeError):
                        os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(end)
        for gone in [fd for fd in ready if fd in stand_ins]:
            os.kill(stand_ins.pop(gone), signal.SIGKILL)
        if asks.fileno() in ready:
            source = asks
        elif listener.fileno() in ready:
            source = listener.accept()[0]
        else:
            continue
        head, fds, _, _ = socket.recv_fds(source, 4, 5)
        if not head:
            raise SystemExit
        order = json.loads(_exactly(source, int.from_bytes(head + _exactly(source, 4 - len(head)), "big")))
        if source is not asks:
            fds.append(source.detach())
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asks.detach()
            listener.detach()
            return _become(order, fds)
        for fd in [*fds[:3], *fds[4:]]:
            os.close(fd)
        ends[pid] = fds[3]
        if source is asks:
            asks.sendall(pid.to_bytes(4, "big"))
        else:
            stand_ins[fds[3]] = pid


def _become(order: Mapping[str, Any], fds: Sequence[int]) -> list[str]:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
    for target, fd in enumerate([*fds[:3], *fds[4:]]):
        os.dup2(fd, target)
    os.closerange(3 + len(fds[4:]), 4096)
    if order.get("terminal"):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if order.get("files"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (order["files"], order["files"]))
    os.chdir(order["folder"])
    sys.path[0] = order["folder"]
    os.environ.clear()
    os.environ.update(order["env"])
    if fds[4:]:
        os.environ.update({"LISTEN_FDS": "1", **order["env"], "LISTEN_PID": str(os.getpid())})
    line: list[str] = order["line"]
    return line


if __name__ == "__main__":
    import gc
    import importlib
    import runpy
    import types

    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    asking = socket.socket(fileno=int(sys.argv[1]))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(sys.argv[2])
    listening.listen()
    asking.sendall(b".")
    wanted = _serve(asking, listening)
    sys.argv[:] = wanted
    if wanted[0] == "-c":
        sys.argv[:] = ["-c", *wanted[2:]]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(wanted[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        runpy.run_module(wanted[0], run_name="__main__", alter_sys=True)
