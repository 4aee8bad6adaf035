"""MCP over the standard streams of a child process of ours: one message a line, read and written without the SDK.

The SDK's session gets what is its own from here; everything that is no message is passed over (gatekit G65 to G78).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from wicketgate.upstreams.mcp_client import json_rpc
from wicketgate.upstreams.mcp_client.call import Call
from wicketgate.upstreams.mcp_client.child_process import GRACE_S, ChildEnded, ChildProcess
from wicketgate.upstreams.mcp_client.connection import Connection, Lost, for_session
from wicketgate.upstreams.mcp_client.exchange import HEAVY, UNASKED_A_SECOND, UNASKED_AT_ONCE, Exchange
from wicketgate.upstreams.mcp_client.failure import Gone, Malformed
from wicketgate.upstreams.mcp_client.json_lines import MAX_LINE_BYTES, LineReader
from wicketgate.upstreams.mcp_client.pace import Pace
from wicketgate.upstreams.mcp_client.stderr_log import StderrLog

log = logging.getLogger("wicketgate.upstream")

_SESSION_QUEUE = 1_000
_NOT_CONNECTED = "the connection was lost"

Incoming = SessionMessage | Exception


@asynccontextmanager
async def stdio_transport(
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    lost: Lost,
    *,
    max_answer_bytes: int = MAX_LINE_BYTES,
    grace_s: float = GRACE_S,
) -> AsyncGenerator[Connection, None]:
    """Start *command* and talk to it; the end of the context ends it, and all that it started."""
    to_session, session_reads = anyio.create_memory_object_stream[Incoming](_SESSION_QUEUE)
    writer = _Writer()
    exchange = Exchange(name, writer)
    reader = _Reader(name, exchange, to_session, lost, max_answer_bytes)
    with to_session, session_reads:
        child = await ChildProcess.start(command, env, cwd, reader, grace_s)
        writer.child = reader.child = child
        try:
            yield Connection((session_reads, writer), exchange, one_era=True, tells_end=True)
        finally:
            exchange.close(_NOT_CONNECTED)
            await child.stop()


class _Reader:
    """Implements child_process.Reader: whose message is it?"""

    def __init__(
        self,
        name: str,
        exchange: Exchange,
        to_session: MemoryObjectSendStream[Incoming],
        lost: Lost,
        max_bytes: int,
    ) -> None:
        self._name = name
        self._exchange = exchange
        self._to_session = to_session
        self._lost = lost
        self._lines = LineReader(self._too_long, max_bytes)
        self._max_bytes = max_bytes
        self._stderr = StderrLog(name)
        self._told: set[str] = set()
        self._unasked = Pace(UNASKED_A_SECOND, UNASKED_AT_ONCE, asyncio.get_running_loop().time)
        self.child: ChildProcess | None = None

    def output(self, data: bytes) -> None:
        unasked = 0
        for line in self._lines.feed(data):
            message = json_rpc.decode(line)
            if message is None:
                unasked += 1
                self._tell_once("writes something to its stdout that is not MCP; such lines are passed over")
            elif not self._exchange.take(message):
                unasked += HEAVY
                self._pass_on(message)
            elif message.method is not None:
                unasked += HEAVY if message.id is not None else 1
        if unasked and (pause_s := self._unasked.take(unasked)) and self.child is not None:
            self._tell_once("says more than can be heard; it is read more slowly")
            self.child.rest(pause_s)

    def errors(self, data: bytes) -> None:
        self._stderr.feed(data)

    def ended(self, how: str) -> None:
        self._stderr.tell()
        self._exchange.close(how)
        self._to_session.close()
        self._lost(how)

    def _pass_on(self, message: json_rpc.Message) -> None:
        incoming = for_session(message)
        if incoming is None:
            self._tell_once("writes something to its stdout that is not MCP; such lines are passed over")
            return
        try:
            self._to_session.send_nowait(incoming)
        except anyio.WouldBlock:
            self._tell_once("says more than can be heard; some of it is passed over")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session is ending

    def _too_long(self, head: bytes, tail: bytes) -> None:
        log.warning("%s: a line of more than %d bytes was passed over", self._name, self._max_bytes)
        error = Malformed(f"gave an answer of more than {self._max_bytes} bytes, which is not taken")
        self._exchange.unreadable(head, tail, error)

    def _tell_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log.warning("%s %s", self._name, what)


class _Writer:
    """The way to the child: an Exchange's Sender, and the stream that the SDK's session writes to."""

    child: ChildProcess

    async def send(self, message: Mapping[str, Any] | SessionMessage, call: Call | None = None) -> None:
        if isinstance(message, SessionMessage):
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        else:
            line = json_rpc.encode(message)
        try:
            await self.child.writable()
        except ChildEnded:
            if call is None:
                raise anyio.BrokenResourceError from None
            raise Gone(_NOT_CONNECTED, carried=False) from None
        if call is not None:
            call.carried = True
        self.child.write(line + b"\n")

    def post(self, message: Mapping[str, Any]) -> None:
        self.child.write(json_rpc.encode(message) + b"\n")

    async def aclose(self) -> None:
        """The child's input is closed when the child is ended."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
