"""A tool server as a child process: its environment, its input and output, the signs of its end, its stopping.

It leads a process group of its own, so that the processes it starts end with it (ROUTE-15, UP-14).
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, Self, cast
from urllib.parse import unquote

from wicketgate.upstreams.mcp.exchange import to_its_end, within

_INHERITED = re.compile(
    r"HOME|LOGNAME|PATH|SHELL|TERM|USER|LANG|LC_ALL|TMPDIR|XDG_[A-Z_]+"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|(?i:(?:HTTP|HTTPS|ALL|NO)_PROXY|npm_config_(?:registry|cache|cafile|proxy|https_proxy|noproxy))"
    r"|UV_(?:DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|CACHE_DIR|NATIVE_TLS|SYSTEM_CERTS)"
)
"""Where the machine, its proxies, trusted authorities and package indexes are; nothing else of our environment, which
holds the secrets of other upstreams."""
_PASSWORD = re.compile(r"://[^/?#\s]*?:([^/?#\s]+)@")
GRACE_S = 2.0
"""Seconds that a child may take after the end of its input, and again after SIGTERM."""
_SETTLE_S = 0.3
"""The ends of its output, of its stderr and of the process show one after the other; the rest is waited for this long.

A process that it leaves behind may hold its stderr open for ever."""
_CLOSE_S = 1.0
_WRITE_BUFFER = 1024 * 1024
_MOST_UNREAD = 4 * _WRITE_BUFFER
_MOST_GATHERED = 64 * 1024
_LONELY = 8
_AT_ONCE = 64
"""After so many turns with one message each, so many messages are written at once: to wait for others costs a turn."""


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that every stdio server gets."""
    return {name: value for name, value in environ.items() if _INHERITED.fullmatch(name)}


def inherited_secrets(environ: Mapping[str, str]) -> list[str]:
    """Returns the passwords in those variables, such as that of a proxy, as they are written and decoded."""
    found = [password for value in inherited(environ).values() for password in _PASSWORD.findall(value)]
    return [*found, *map(unquote, found)]


def _keep_own_files() -> None:
    """Runs in the new process: only its three pipes outlive ``exec``. Unlike asyncio, uvloop leaves it a second copy
    of each, so that closing its output would show nothing (UP-265)."""
    for file in Path("/dev/fd").iterdir():
        with suppress(OSError):  # that of the listing
            os.set_inheritable(int(file.name), int(file.name) <= 2)


class ChildReader(Protocol):
    """Gets the output of a child. Called on the event loop; must not wait."""

    def output(self, data: bytes) -> None: ...

    def errors(self, data: bytes) -> None: ...

    def ended(self, how: str) -> None:
        """Once, when it ends by itself: *how* is a phrase such as ``it ended with code 3``."""
        ...


class ChildProcess(asyncio.SubprocessProtocol):
    """Made by ``start``; ``stop`` it once."""

    def __init__(self, reader: ChildReader, grace_s: float, haste: asyncio.Event | None = None) -> None:
        self._reader = reader
        self._haste = haste or asyncio.Event()
        self._grace_s = self._stop_grace_s = grace_s
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._lonely = 0
        self._at_once = 0
        self._open = {1, 2}
        self._ended = False
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._exited = asyncio.Event()
        self._closed = asyncio.Event()
        self._settling: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._pauses = 0

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        reader: ChildReader,
        grace_s: float = GRACE_S,
        haste: asyncio.Event | None = None,
    ) -> Self:
        """The child gets *env* and what it inherits. Servers installed beside this program are found too, after those
        on PATH. *haste* ends its grace. Raises OSError."""
        if cwd is not None and not await asyncio.to_thread(Path(cwd).is_dir):
            raise NotADirectoryError(cwd)
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
        loop = asyncio.get_running_loop()
        transport, child = await loop.subprocess_exec(
            lambda: cls(reader, grace_s, haste),
            *command,
            env={**inherited(os.environ), "PATH": path, **env},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=None if isinstance(loop, asyncio.BaseEventLoop) else _keep_own_files,
        )
        # Its input, with a bound on what waits to be read.
        child._transport = transport
        stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
        if not stdin.is_closing():  # the end of a child that has ended already shows like any other
            stdin.set_write_buffer_limits(high=_WRITE_BUFFER)
        child._stdin = stdin
        return child

    async def writable(self) -> bool:
        """Waits while the child reads nothing and a buffer's worth is unread. False if nothing can be written any
        more."""
        while not self._resumed.is_set():
            await self._resumed.wait()
        return self._takes_input()

    def write(self, data: bytes) -> None:
        """Nothing happens when the child has ended, or has left several megabytes unread. What is written in one turn
        of the loop goes to it together: a write costs more than many short messages (FACE-141)."""
        if self._stdin is None or not self._takes_input() or self._stdin.get_write_buffer_size() >= _MOST_UNREAD:
            return
        if self._at_once:
            self._at_once -= 1
            self._stdin.write(data)
            return
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._flush)
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes > _MOST_GATHERED:
            self._flush()

    def _flush(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self._lonely = self._lonely + 1 if len(gathered) == 1 else 0
        if self._lonely == _LONELY:
            self._lonely, self._at_once = 0, _AT_ONCE
        if gathered and self._stdin is not None and self._takes_input():
            self._stdin.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def rest(self, seconds: float) -> None:
        """Read no more of its output for this time."""
        if self._resting is None:
            self.pause()
            self._resting = asyncio.get_running_loop().call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._resting = None
        self.read_on()

    def pause(self) -> None:
        """Read no more of its output until ``read_on``."""
        self._pauses += 1
        if (stdout := self._stdout()) is not None:
            stdout.pause_reading()

    def read_on(self) -> None:
        self._pauses -= 1
        if not self._pauses and (stdout := self._stdout()) is not None:
            stdout.resume_reading()

    def _stdout(self) -> asyncio.ReadTransport | None:
        if self._transport is None or self._ended:
            return None
        stdout = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(1))
        return None if stdout.is_closing() else stdout

    async def stop(self) -> None:
        """End it: its input is closed, 2 s, SIGTERM, 2 s, SIGKILL; the rest of its group is killed at any rate.

        Takes its time even when the caller is cancelled, and no more than some five seconds; hardly any when every task
        of the loop is cancelled.
        """
        if self._transport is not None:
            self._flush()
            self._end()
            await to_its_end(partial(self._begin_stop, self._transport))

    def _begin_stop(self, transport: asyncio.SubprocessTransport) -> Coroutine[None, None, None]:
        grace_s, self._stop_grace_s = self._stop_grace_s, 0.0  # begun again, it was broken off: someone is in a hurry
        return self._stop(transport, grace_s)

    async def _stop(self, transport: asyncio.SubprocessTransport, grace_s: float) -> None:
        try:
            if self._stdin is not None:
                # Input that the child has not read yet would keep the pipe open.
                self._stdin.abort() if self._stdin.get_write_buffer_size() else self._stdin.close()
            if not await self._exits(grace_s):
                self._signal(signal.SIGTERM)
                await self._exits(grace_s)
        finally:
            self._signal(signal.SIGKILL)
            await within(self._grace_s, self._exited)
            transport.close()
            await within(_CLOSE_S, self._closed)

    async def _exits(self, grace_s: float) -> bool:
        """True if it ended in time, which is cut short by haste."""
        waiting = [asyncio.create_task(event.wait()) for event in (self._exited, self._haste)]
        try:
            await asyncio.wait(waiting, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        return self._exited.is_set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._reader.errors(data)
        elif not self._ended:
            self._reader.output(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        # The end of stderr alone is no sign: a server may close it and go on.
        if fd != 2 or self._settling is not None:
            self._settle()

    def process_exited(self) -> None:
        self._exited.set()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._exited.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._resumed.clear()

    def resume_writing(self) -> None:
        self._resumed.set()

    def _takes_input(self) -> bool:
        # Its input can be closed some time before its end is known, and uvloop raises then.
        return not self._ended and self._stdin is not None and not self._stdin.is_closing()

    def _settle(self) -> None:
        """One sign of the end came. An answer that was given before it may still come; so may the exit code, and its
        last words."""
        if self._ended:
            return
        if self._exited.is_set() and not self._open:
            self._lost()
        elif self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(_SETTLE_S, self._lost)

    def _lost(self) -> None:
        if not self._ended:
            self._end()
            self._reader.ended(self._how())

    def _end(self) -> None:
        self._ended = True
        self._resumed.set()
        if self._settling is not None:
            self._settling.cancel()

    def _how(self) -> str:
        code = self._transport.get_returncode() if self._transport is not None else None
        if code is None:
            return "it closed its input or output"
        return f"it ended with code {code}" if code >= 0 else f"it was ended by signal {-code}"

    def _signal(self, number: signal.Signals) -> None:
        if self._transport is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), number)
