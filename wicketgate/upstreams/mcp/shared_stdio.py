"""An MCP server over stdio that another process of ours runs, for several gates together (OPS-182, OPS-184).

The Unix socket carries the lines of MCP, one message each. The first line of a gate says which program it means; the
first of the owner that it runs, or why it does not. Later lines of the owner's own begin with ``!``.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import msgspec

from wicketgate.upstreams.mcp.call import CONNECTION_LOST, Gone
from wicketgate.upstreams.mcp.child_process import ChildEnded
from wicketgate.upstreams.mcp.client import Connection, Lost
from wicketgate.upstreams.mcp.stdio import LastWords, StdioConnection

NO_OWNER = "the process that runs the stdio servers is not there"
_MARK = b"!"
_WRITE_BUFFER = 1024 * 1024
_MOST_UNREAD = 4 * _WRITE_BUFFER


class SharedProgram(msgspec.Struct, frozen=True):
    """A program that is run once for all who mean the same one: these values are its name."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    max_bytes: int


class Told(msgspec.Struct, omit_defaults=True):
    """A line of the owner's own. *how* the program has ended, or could not be started, with the *mend* for the
    operator. *too_large* is the id, as JSON, of a request whose answer was dropped."""

    how: str = ""
    mend: str = ""
    too_large: str = ""

    def line(self) -> bytes:
        """Returns it as it stands between messages."""
        return _MARK + msgspec.json.encode(self) + b"\n"


@asynccontextmanager
async def shared_stdio_transport(owner: Path, program: SharedProgram, lost: Lost) -> AsyncGenerator[Connection, None]:
    """Talks to *program*, which the process behind the socket *owner* runs. Raises Gone where it cannot be started."""
    connection = StdioConnection(program.name, lost, program.max_bytes, LastWords(program.name))
    loop = asyncio.get_running_loop()
    try:
        _, child = await loop.create_unix_connection(lambda: SharedChild(connection), str(owner))
    except OSError:
        raise Gone(NO_OWNER, carried=False) from None
    connection.child = child
    try:
        child.write(msgspec.json.encode(program) + b"\n")
        told = await child.begun()
        if told.how:
            raise Gone(told.how, carried=False, mend=told.mend)
        yield connection
    finally:
        connection.exchange.close(CONNECTION_LOST)
        await connection.close()


class SharedChild(asyncio.Protocol):
    """Stands for the child process of another process: implements Child over a Unix socket."""

    def __init__(self, reader: StdioConnection) -> None:
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        self._first = bytearray()
        self._begun: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._control = bytearray()
        self._in_control = False
        self._at_line_start = True
        self._how = ""
        self._ended = False
        self._resumed = asyncio.Event()
        self._resumed.set()

    async def begun(self) -> Told:
        """Returns the first line of the owner."""
        return await self._begun

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER)

    def data_received(self, data: bytes) -> None:
        if not self._begun.done():
            self._first += data
            line, found, rest = bytes(self._first).partition(b"\n")
            if not found:
                return
            self._begun.set_result(_told(line))
            data = rest
        while data:
            data = self._take_control(data) if self._in_control else self._take_messages(data)

    def _take_messages(self, data: bytes) -> bytes:
        """Passes on what stands before the next line of the owner's own; returns the rest."""
        # No message begins with the mark, and none holds a line end.
        at = 0 if self._at_line_start and data[:1] == _MARK else data.find(b"\n" + _MARK) + 1
        self._in_control = at > 0 or (self._at_line_start and data[:1] == _MARK)
        messages, rest = (data[:at], data[at + 1 :]) if self._in_control else (data, b"")
        if messages:
            self._at_line_start = messages.endswith(b"\n")
            self._reader.output(messages)
        return rest

    def _take_control(self, data: bytes) -> bytes:
        end, found, rest = data.partition(b"\n")
        self._control += end
        if not found:
            return b""
        told = _told(bytes(self._control))
        self._in_control, self._at_line_start = False, True
        self._control.clear()
        self._how = told.how or self._how
        if told.too_large:
            self._reader.passed_over(told.too_large.encode())
        return rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._resumed.set()
        how = self._how or NO_OWNER
        if not self._begun.done():
            self._begun.set_result(Told(how))
        if not self._ended:
            self._ended = True
            self._reader.ended(how)

    def pause_writing(self) -> None:
        self._resumed.clear()

    def resume_writing(self) -> None:
        self._resumed.set()

    async def writable(self) -> None:
        """Waits while the owner reads nothing. Raises ChildEnded."""
        await self._resumed.wait()
        if self._ended or self._transport is None or self._transport.is_closing():
            raise ChildEnded

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not self._ended and transport.get_write_buffer_size() < _MOST_UNREAD:
            transport.write(data)

    def rest(self, seconds: float) -> None:
        """Does nothing: the owner itself reads a server more slowly that says too much."""

    def pause(self) -> None:
        """Does nothing: the owner drops a gate that does not read."""

    def read_on(self) -> None:
        """Does nothing, as ``pause``."""

    async def stop(self) -> None:
        """Leaves the program. The owner ends it when nobody uses it any more."""
        self._ended = True
        self._resumed.set()
        if self._transport is not None:
            self._transport.close()


def _told(line: bytes) -> Told:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(line, type=Told)
    return Told(CONNECTION_LOST)
