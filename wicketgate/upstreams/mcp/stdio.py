"""MCP over the standard streams of a child process: one message a line; lines that are no message are dropped
(ROUTE-8, UP-9 to UP-11)."""

import asyncio
import errno
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from wicketgate import answer_room
from wicketgate.heavy_work import VERY_LARGE_BYTES
from wicketgate.net.outgoing import NOT_REACHED, trouble_of
from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.mcp.call import CONNECTION_LOST, Call, Gone, OutgoingRequest, Unfinished, too_large
from wicketgate.upstreams.mcp.child_process import GRACE_S, ChildProcess
from wicketgate.upstreams.mcp.client import Connection, Lost
from wicketgate.upstreams.mcp.eras import Agreement
from wicketgate.upstreams.mcp.exchange import (
    UNASKED_A_SECOND,
    UNASKED_AT_ONCE,
    Exchange,
    Pace,
    to_its_end,
    weight_of,
    within,
)
from wicketgate.upstreams.mcp.sandbox import NoSandbox, Sandbox
from wicketgate.upstreams.mcp.wire import MAX_MESSAGE_BYTES, LineReader

log = logging.getLogger("wicketgate.upstream")

_END_S = 0.5
_UNDO_S = 0.3
_ERROR_LINE = 1_000
_KEPT_LINES = 20


@asynccontextmanager
async def stdio_transport(
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    lost: Lost,
    *,
    max_answer_bytes: int = MAX_MESSAGE_BYTES,
    grace_s: float = GRACE_S,
    last_words: "LastWords | None" = None,
    haste: asyncio.Event | None = None,
    sandbox: Sandbox | None = None,
) -> AsyncGenerator[Connection, None]:
    """Start *command*, in *sandbox* if there is one, and talk to it. Leaving the context ends it, and all processes
    that it started. *last_words* is that of all starts of one server; *haste*, once set, leaves it no grace at its end.
    Raises Gone where it cannot be started."""
    connection = StdioConnection(name, lost, max_answer_bytes, last_words or LastWords(name))
    try:
        started, folder = command, cwd
        if sandbox is not None:
            started, folder = await asyncio.to_thread(sandbox.around, command, env, cwd), None
        child = await _started(ChildProcess.start(started, env, folder, connection, grace_s, haste))
    except OSError as error:
        raise await asyncio.to_thread(cannot_start, error, command[0], env, cwd) from None
    connection.child = child
    try:
        yield connection
    finally:
        connection.exchange.close(CONNECTION_LOST)
        await to_its_end(connection.close)


async def _started(start: Coroutine[None, None, ChildProcess]) -> ChildProcess:
    """The child of *start*, which is not broken off: half-way, it would leave a process and its pipes behind."""
    starting = asyncio.get_running_loop().create_task(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await to_its_end(partial(_undo, starting))
        raise


async def _undo(starting: asyncio.Task[ChildProcess]) -> None:
    while not starting.done():
        await asyncio.wait([starting], timeout=_UNDO_S)
        if starting.cancelling():
            # The program cancels every task. asyncio has killed the child, and waits for ever for pipes that it has not
            # connected yet.
            starting.cancel()
    if not starting.cancelled() and starting.exception() is None:
        await starting.result().stop()


class StdioConnection(Connection):
    """Implements ChildReader too."""

    is_process = True
    child: ChildProcess

    def __init__(self, name: str, lost: Lost, max_bytes: int, last_words: "LastWords") -> None:
        self.exchange = Exchange(name, self.post)
        self._name = name
        self._lost = lost
        self._lines = LineReader(self._too_long, max_bytes)
        self._max_bytes = max_bytes
        self._hold = answer_room.AnswerHold(name, self.exchange.note_life)
        self._waiting = False
        self._line_at = 0.0
        self._last_words = last_words
        self._unasked = Pace(UNASKED_A_SECOND, UNASKED_AT_ONCE, asyncio.get_running_loop().time)
        self._warned: set[str] = set()
        self._how = CONNECTION_LOST
        self._over = asyncio.Event()

    async def close(self) -> None:
        await self.exchange.background.close()
        self._hold.close()
        await self.child.stop()

    def request(self, outgoing: OutgoingRequest, call: Call) -> Coroutine[Any, Any, dict[str, Any]]:
        return self.exchange.request(outgoing, call, self.send)

    async def agreed(self, agreement: Agreement) -> None:
        if not agreement.modern:
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def send(self, message: Mapping[str, Any], call: Call) -> None:
        line = wire.encode(message) + b"\n"
        if not await self.child.writable():
            # The sign of its end that shows the reason may come a moment later.
            await within(_END_S, self._over)
            raise Gone(self._how, carried=False)
        call.carried = True
        self.child.write(line)

    def post(self, message: Mapping[str, Any]) -> None:
        self.child.write(wire.encode(message) + b"\n")

    def output(self, data: bytes) -> None:
        unasked = 0
        if b"\n" in data or not self._lines.open_bytes:
            self._line_at = monotonic()
        if b"\n" not in data and monotonic() - self._line_at < answer_room.HOLD_S:
            self.exchange.heard += 1  # a long message is on its way
        for line in self._lines.feed(data):
            message = wire.decode(line)
            if message is None:
                unasked += weight_of(1, len(line))
                self.exchange.broken(line)
                self._warn_once("writes something to its stdout that is not MCP; such lines are passed over")
            else:
                self._hold.shrink(len(line))
                unasked += weight_of(self.exchange.take(message, hold=self._hold), len(line))
        if self._lines.open_bytes <= VERY_LARGE_BYTES:
            self._hold.shrink(0)
        elif not self.exchange.calls:
            self._drop("nobody waits for it")
        elif not (self._hold.bytes or self._waiting):
            self._waiting = True
            self.child.pause()
            self.exchange.background.start(self._make_room())
        if unasked and (pause_s := self._unasked.take(unasked)):
            self._warn_once("sends too many messages; they are read more slowly")
            self.child.rest(pause_s)

    async def _make_room(self) -> None:
        """Reads on in a large line when there is room for it; past it if there is none in time."""
        # A server that is not read is not silent.
        try:
            await self._hold.take(self._max_bytes)
        except TimeoutError:
            if self._lines.open_bytes > VERY_LARGE_BYTES:
                self._drop("there was no room for it")
        self._line_at = monotonic()
        asyncio.get_running_loop().call_later(answer_room.HOLD_S, self._expire, self._hold.end_by)
        self._waiting = False
        if self._lines.open_bytes <= VERY_LARGE_BYTES:
            self._hold.shrink(0)
        self.child.read_on()

    def _expire(self, end_by: float) -> None:
        if self._hold.bytes and self._hold.end_by == end_by:
            self._drop("it did not come to its end")

    def _drop(self, why: str) -> None:
        """Drops the large line that is being read, and gives its room to others."""
        self._hold.shrink(0)
        self._warn_once(f"writes a line of more than a megabyte that is skipped: {why}")
        self.exchange.unreadable(wire.answered_id(self._lines.drop(), b""), Unfinished())

    def errors(self, data: bytes) -> None:
        self._last_words.feed(data)

    def ended(self, how: str) -> None:
        self._how = how
        self._over.set()
        self._last_words.ended()
        self.exchange.close(how)
        self._lost(how)

    def _too_long(self, head: bytes, tail: bytes) -> None:
        log.warning("%s: a line of more than %d bytes was skipped", self._name, self._max_bytes)
        self.exchange.unreadable(wire.answered_id(head, tail), too_large(self._max_bytes))

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s %s", self._name, what)


class LastWords:
    """The stderr of one server over all its starts; read because a full pipe would stop the child (UP-11).

    Every line goes to *heard* and to the log at debug level, cut to a bounded length. When the server has ended, its
    last lines are logged as warnings, unless they are those of the end before, but for numbers (UP-70).
    """

    def __init__(self, name: str, heard: Callable[[str], None] = lambda line: None) -> None:
        self._name = name
        self._heard = heard
        self._open = bytearray()
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._words_before: list[str] = []

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._open += line[: _ERROR_LINE - len(self._open)]
            self._emit()
        self._open += rest[: _ERROR_LINE - len(self._open)]

    def ended(self) -> None:
        self._emit()
        words = [_NUMBERS.sub("0", line) for line in self._lines]
        if words != self._words_before:
            for line in self._lines:
                log.warning("%s wrote before it ended: %s", self._name, line)
        self._words_before = words
        self._lines.clear()

    def _emit(self) -> None:
        line = self._open.decode("utf-8", "replace").strip()
        self._open.clear()
        if line:
            self._lines.append(line)
            self._heard(line)
            log.debug("%s stderr: %s", self._name, line)


_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


def cannot_start(error: OSError, program: str, env: Mapping[str, str], cwd: str | None) -> Gone:
    """The reason for which *program* could not be started, as a fixed phrase, with the mend for the operator."""

    def gone(how: str, mend: str) -> Gone:
        return Gone(how, carried=False, mend=mend)

    match error:
        case NoSandbox():
            return gone("its sandbox cannot be made", "install bubblewrap, or write sandbox: false for this server")
        case FileNotFoundError(filename=str() as path) if path != program and "/" in path:
            return gone("a path of its sandbox or its program was not found", f"correct {path}")
        case NotADirectoryError() if error.args == (cwd,):
            return gone("its working directory was not found", f"correct cwd, {cwd}")
        case FileNotFoundError() | NotADirectoryError():
            if "/" not in program:
                where = "the PATH in its env" if "PATH" in env else "the PATH of the gate"
                return gone("the command was not found", f"it is not on {where}; install it, or write its full path")
            if Path(cwd or ".", program).exists():
                mend = "the program that its first line names (#!) does not exist"
                return gone("the command cannot be run", mend)
            return gone("the command was not found", "there is no such file; correct command")
        case PermissionError():
            mend = "it is a folder" if Path(cwd or ".", program).is_dir() else "make it executable (chmod +x)"
            return gone("the command may not be run", f"{mend}, or name its interpreter first in command")
        case OSError(errno=errno.ENOEXEC):
            mend = (
                "it is no program of this machine, nor a script with a #! line; name its interpreter first in command"
            )
            return gone("the command cannot be run", mend)
        case OSError(errno=errno.E2BIG):
            return gone("the command cannot be run", "its arguments and env are too long")
    trouble = trouble_of(error)
    return gone("the command cannot be run" if trouble is NOT_REACHED else trouble.why, trouble.mend_for("command"))
