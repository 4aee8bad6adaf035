"""A program in a terminal of its own, as a person starts it: what it shows, and keys pressed."""

import asyncio
import fcntl
import os
import re
import struct
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.support.process import ROOT, START_BOUND_S, STOP_BOUND_S
from tests.support.warm_start import WarmProcess, warm_process_in_terminal

CTRL_C = b"\x03"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """*raw* is what the terminal was sent; *shown* is the same without styles, and with plain ends of lines."""

    def __init__(self, process: WarmProcess, descriptor: int) -> None:
        self.process = process
        self.raw = ""
        self._descriptor = descriptor
        self._reader = asyncio.create_task(self._read())
        self._grew = asyncio.Condition()

    @property
    def shown(self) -> str:
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    async def wait_for(self, pattern: str, bound_s: float = START_BOUND_S) -> re.Match[str]:
        """The first match in what is shown. An end of the program without one is a failure."""
        async with asyncio.timeout(bound_s), self._grew:
            while True:
                if match := re.search(pattern, self.shown):
                    return match
                if self._reader.done():
                    raise AssertionError(f"ended without {pattern!r}:\n{self.shown[-3000:]}")
                await self._grew.wait()

    def press(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    async def ended(self, bound_s: float = STOP_BOUND_S) -> int:
        async with asyncio.timeout(bound_s):
            await self._reader
            return await self.process.wait()

    async def _read(self) -> None:
        while True:
            try:
                data = await asyncio.to_thread(os.read, self._descriptor, 65_536)
            except OSError:  # the last that had it open is gone
                data = b""
            async with self._grew:
                self.raw += data.decode("utf-8", "replace")
                self._grew.notify_all()
            if not data:
                return


@asynccontextmanager
async def in_terminal(*args: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Terminal]:
    """Run ``python -m ARGS`` in a new terminal, started warm; killed if it still runs at the end."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    whole = {**plain, "TERM": "xterm-256color", **(env or {})}
    try:
        process = await warm_process_in_terminal(args, str(ROOT), whole, theirs)
    finally:
        os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        process.kill()
        await terminal.ended()
        os.close(ours)
