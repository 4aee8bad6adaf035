"""MCP over the standard streams of a child process of ours: one message a line; lines that are no message are dropped
(ROUTE-8, UP-9 to UP-11)."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.mcp.call import CONNECTION_LOST, NOT_VALID, Call, Gone, Malformed, too_large
from wicketgate.upstreams.mcp.child_process import GRACE_S, ChildEnded, ChildProcess
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
from wicketgate.upstreams.mcp.session import OutgoingRequest
from wicketgate.upstreams.mcp.wire import MAX_MESSAGE_BYTES, LineReader

log = logging.getLogger("wicketgate.upstream")

_END_S = 0.5
_ERROR_LINE = 1_000
_KEPT_LINES = 20
_SHOWN = 512


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
) -> AsyncGenerator[Connection, None]:
    """Start *command* and talk to it. Leaving the context ends it, and all processes that it started."""
    connection = _Stdio(name, lost, max_answer_bytes)
    child = await ChildProcess.start(command, env, cwd, connection, grace_s)
    connection.child = child
    try:
        yield connection
    finally:
        connection.exchange.close(CONNECTION_LOST)
        await to_its_end(connection.close())


class _Stdio:
    """Implements Connection and ChildReader."""

    one_era = True
    handshake_only = False
    shows_its_end = True
    has_headers = False
    child: ChildProcess

    def __init__(self, name: str, lost: Lost, max_bytes: int) -> None:
        self.exchange = Exchange(name, self.post)
        self._name = name
        self._lost = lost
        self._lines = LineReader(self._too_long, max_bytes)
        self._max_bytes = max_bytes
        self._errors = _ErrorLog(name)
        self._unasked = Pace(UNASKED_A_SECOND, UNASKED_AT_ONCE, asyncio.get_running_loop().time)
        self._warned: set[str] = set()
        self._how = CONNECTION_LOST
        self._over = asyncio.Event()

    async def close(self) -> None:
        await self.exchange.background.close()
        await self.child.stop()

    async def request(self, outgoing: OutgoingRequest, call: Call) -> dict[str, Any]:
        return await self.exchange.request(outgoing, call, self.send)

    async def agreed(self, agreement: Agreement) -> None:
        if not agreement.modern:
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def send(self, message: Mapping[str, Any], call: Call) -> None:
        line = wire.encode(message) + b"\n"
        try:
            await self.child.writable()
        except ChildEnded:
            # The sign of its end that shows the reason may come a moment later.
            await within(_END_S, self._over)
            raise Gone(self._how, carried=False) from None
        call.carried = True
        self.child.write(line)

    def post(self, message: Mapping[str, Any]) -> None:
        self.child.write(wire.encode(message) + b"\n")

    def output(self, data: bytes) -> None:
        unasked = 0
        if b"\n" not in data:
            self.exchange.heard += 1  # a long message is on its way
        for line in self._lines.feed(data):
            message = wire.decode(line)
            if message is None:
                unasked += weight_of(1, len(line))
                if len(line) > wire.LARGE_BYTES:
                    self.exchange.unreadable(bytes(line[:_SHOWN]), bytes(line[-_SHOWN:]), Malformed(NOT_VALID))
                self._warn_once("writes something to its stdout that is not MCP; such lines are passed over")
            else:
                unasked += weight_of(self.exchange.take(message), len(line))
        if unasked and (pause_s := self._unasked.take(unasked)):
            self._warn_once("says more than can be heard; it is read more slowly")
            self.child.rest(pause_s)

    def errors(self, data: bytes) -> None:
        self._errors.feed(data)

    def ended(self, how: str) -> None:
        self._how = how
        self._over.set()
        self._errors.repeat()
        self.exchange.close(how)
        self._lost(how)

    def _too_long(self, head: bytes, tail: bytes) -> None:
        log.warning("%s: a line of more than %d bytes was passed over", self._name, self._max_bytes)
        self.exchange.unreadable(head, tail, too_large(self._max_bytes))

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s %s", self._name, what)


class _ErrorLog:
    """A child's stderr, which must be read because a full pipe would stop the child (UP-11).

    Every line goes to the log at debug level, cut to a bounded length; ``repeat`` logs the last ones as warnings.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._open = bytearray()

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._open += line[: _ERROR_LINE - len(self._open)]
            self._emit()
        self._open += rest[: _ERROR_LINE - len(self._open)]

    def repeat(self) -> None:
        self._emit()
        for line in self._last_lines:
            log.warning("%s wrote before it ended: %s", self._name, line)

    def _emit(self) -> None:
        line = self._open.decode("utf-8", "replace").strip()
        self._open.clear()
        if line:
            self._last_lines.append(line)
            log.debug("%s stderr: %s", self._name, line)
