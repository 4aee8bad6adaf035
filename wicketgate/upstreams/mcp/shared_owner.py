"""Runs stdio servers for several gates, each program once, and gives each gate a way to it (OPS-182 to OPS-184)."""

import asyncio
import hashlib
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterable
from itertools import count

import msgspec

from wicketgate.upstreams.mcp.call import Gone
from wicketgate.upstreams.mcp.child_process import ChildEnded, ChildProcess
from wicketgate.upstreams.mcp.exchange import UNASKED_A_SECOND, UNASKED_AT_ONCE, Pace, weight_of
from wicketgate.upstreams.mcp.shared_session import Out, SharedSession, ToServer
from wicketgate.upstreams.mcp.shared_stdio import SharedProgram, Told
from wicketgate.upstreams.mcp.stdio import ErrorLog, LastWords, cannot_start
from wicketgate.upstreams.mcp.wire import LineReader

log = logging.getLogger("wicketgate.upstream")

_ORDER_BYTES = 1024 * 1024
_MOST_UNREAD = 64 * 1024 * 1024
_NOT_MCP = "writes something to its stdout that is not MCP; such lines are passed over"
_TOO_MUCH = "says more than can be heard; it is read more slowly"


class StdioOwner:
    """Serves gates of this user. *learn* gets each program before it is started, to mask its secrets in the log.
    *haste*, once set, leaves programs no grace at their end."""

    def __init__(self, learn: Callable[[SharedProgram], None], haste: asyncio.Event) -> None:
        self._learn = learn
        self._haste = haste
        self._running: dict[bytes, _Shared] = {}
        self._starting: dict[bytes, asyncio.Lock] = {}
        self._gates: set[asyncio.Task[None]] = set()
        self._last_words: dict[str, LastWords] = {}
        self._changed = asyncio.Event()

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Returns when *stop* is set and no gate is left."""
        server = await asyncio.start_unix_server(self._take, sock=listener, limit=_ORDER_BYTES)
        await stop.wait()
        while self._gates:
            self._changed.clear()
            await self._changed.wait()
        server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._gates.add(task)
        try:
            if _is_ours(writer):
                await self._serve_gate(reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, msgspec.DecodeError, ChildEnded):
            log.debug("a gate has left in the middle", exc_info=True)
        finally:
            writer.close()
            self._gates.discard(task)
            self._changed.set()

    async def _serve_gate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        order = await reader.readuntil(b"\n")
        program = msgspec.json.decode(order, type=SharedProgram)
        key = hashlib.sha256(msgspec.json.encode(program, order="sorted")).digest()
        # One start at a time: who comes meanwhile joins.
        async with self._starting.setdefault(key, asyncio.Lock()):
            shared = self._running.get(key)
            if shared is None or shared.is_over:
                self._learn(program)
                try:
                    shared = self._running[key] = await self._started(program)
                except Gone as gone:
                    writer.write(msgspec.json.encode(Told(gone.how, gone.mend)) + b"\n")
                    await writer.drain()
                    return
            number = shared.join(writer)
        try:
            writer.write(msgspec.json.encode(Told()) + b"\n")
            lines = LineReader(_dropped)
            while data := await reader.read(65_536):
                for line in lines.feed(data):
                    await shared.heard(number, line)
        finally:
            if not shared.leave(number):
                async with self._starting[key]:
                    if not shared.used:
                        if self._running.get(key) is shared:
                            del self._running[key]
                        await shared.child.stop()

    async def _started(self, program: SharedProgram) -> "_Shared":
        words = self._last_words.setdefault(program.name, LastWords(program.name))
        shared = _Shared(program, words)
        try:
            shared.child = await ChildProcess.start(
                program.command, program.env, program.cwd, shared, haste=self._haste
            )
        except OSError as error:
            why = await asyncio.to_thread(cannot_start, error, program.command[0], program.env, program.cwd)
            raise why from None
        return shared


class _Shared:
    """One program that runs. Implements ChildReader."""

    child: ChildProcess

    def __init__(self, program: SharedProgram, last_words: LastWords) -> None:
        self.is_over = False
        self._name = program.name
        self._session = SharedSession()
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._numbers = count()
        self._lines = LineReader(self._too_long, program.max_bytes)
        self._errors = ErrorLog(program.name, last_words)
        self._pace = Pace(UNASKED_A_SECOND, UNASKED_AT_ONCE, asyncio.get_running_loop().time)
        self._warned: set[str] = set()

    @property
    def used(self) -> bool:
        return bool(self._writers)

    def join(self, writer: asyncio.StreamWriter) -> int:
        number = next(self._numbers)
        self._writers[number] = writer
        self._session.joined(number)
        return number

    def leave(self, number: int) -> bool:
        """Ends what this gate has under way; returns true if others are left."""
        self._writers.pop(number, None)
        self._send(self._session.left(number))
        return self.used

    async def heard(self, number: int, line: bytes | bytearray) -> None:
        """Carries out a message of a gate. Raises ChildEnded."""
        await self.child.writable()
        self._send(self._session.from_client(number, line))

    def output(self, data: bytes) -> None:
        unasked = 0
        for line in self._lines.feed(data):
            if line.lstrip()[:1] != b"{":
                unasked += weight_of(1, len(line))
                self._warn_once(_NOT_MCP)
            elif not self._session.is_answer(line):
                unasked += weight_of(1, len(line))
            self._send(self._session.from_server(line))
        if unasked and (pause_s := self._pace.take(unasked)):
            self._warn_once(_TOO_MUCH)
            self.child.rest(pause_s)

    def errors(self, data: bytes) -> None:
        self._errors.feed(data)

    def ended(self, how: str) -> None:
        self.is_over = True
        self._errors.repeat()
        for writer in self._writers.values():
            writer.write(Told(how).line())
            writer.close()

    def _send(self, messages: Iterable[Out]) -> None:
        for message in messages:
            if isinstance(message, ToServer):
                self.child.write(message.line + b"\n")
            elif (writer := self._writers.get(message.client)) is not None:
                if writer.transport.get_write_buffer_size() > _MOST_UNREAD:
                    log.warning("%s: a worker reads nothing and was left", self._name)
                    writer.transport.abort()
                else:
                    writer.write(message.line + b"\n")

    def _too_long(self, head: bytes, tail: bytes) -> None:
        log.warning("%s: a line that is too long was passed over", self._name)
        found = self._session.unreadable(head, tail)
        if found is not None and (writer := self._writers.get(found[0])) is not None:
            writer.write(Told(too_large=found[1].decode()).line())

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s %s", self._name, what)


def _dropped(head: bytes, tail: bytes) -> None:
    """Drops a line of a gate that no gate writes."""


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Returns true if the process at the other end is this user's, where the system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder of the socket lets nobody else in
    peer = writer.get_extra_info("socket")
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())
