"""How bytes reach an MCP server: a child process over stdio, or streamable HTTP, each telling when it is lost.

The SDK's transports have two gaps for a gateway that must outlive its servers (guide "Upstreams"): a dead child shows
only as the end of a stream that nobody watches, and a refused POST cancels the task that owns the client.
"""

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import anyio
import httpx2
import mcp.client.stdio
from anyio.streams.text import TextReceiveStream
from mcp.client._transport import TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

log = logging.getLogger("wicketgate.upstream")

UNREACHABLE = "upstream unreachable"
"""The message of the JSON-RPC error that stands for a POST which never got an answer."""

MALFORMED = "not a valid answer"
"""The message of the JSON-RPC error that stands for an answer that the SDK could not read."""

_MAX_SSE_EVENT = 64 * 1024 * 1024
_MAX_LINE_CHARS = 64 * 1024 * 1024
_STDERR_LINE = 1_000
_STDERR_KEPT = 20

Incoming = SessionMessage | Exception


@asynccontextmanager
async def stdio_transport(
    name: str, command: Sequence[str], env: Mapping[str, str], cwd: str | None, lost: Callable[[], None]
) -> AsyncGenerator[TransportStreams, None]:
    """Start *command* and talk to it. It inherits HOME, LOGNAME, PATH, SHELL, TERM and USER, and *env*.

    Servers installed beside this program are found too, after all that is on PATH.

    *lost* is called once when the child closes its output, which is how its death shows. What it writes to stderr
    is logged at debug level, and its last lines once more as a warning when it dies by itself.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    parameters = StdioServerParameters(
        command=command[0],
        args=list(command[1:]),
        env={"PATH": path, **env},
        cwd=cwd,
        # One byte that is not UTF-8 must not end the session: it may come from a start-up banner.
        encoding_error_handler="replace",
    )
    async with _stderr_log(name) as (errlog, last_lines):

        def died() -> None:
            for line in last_lines:
                log.warning("%s wrote before it ended: %s", name, line)
            lost()

        def noise() -> None:
            log.warning("%s writes something to its stdout that is not MCP; such lines are passed over", name)

        async with stdio_client(parameters, errlog=errlog) as (read, write):
            yield _Watched(read, died, noise), write


@asynccontextmanager
async def http_transport(
    url: str, headers: Mapping[str, str], lost: Callable[[], None]
) -> AsyncGenerator[TransportStreams, None]:
    """Talk to the streamable-HTTP endpoint at *url*, with *headers* on every request.

    *lost* is never called: there is no standing connection whose end would show; a call that finds nobody tells.
    """
    # Reading has no deadline here: each call has its own, and a listening stream may be silent for ever.
    timeout = httpx2.Timeout(10, read=None)
    async with (
        httpx2.AsyncClient(transport=_SafeTransport(), headers=dict(headers), timeout=timeout, trust_env=False) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=_MAX_SSE_EVENT) as streams,
    ):
        yield streams


class _WholeLines(TextReceiveStream):
    """The text of a child's stdout in whole lines; one that is too long is passed over, and never held.

    The SDK joins what it has with each chunk and splits it all again: 50 MB on one line cost it ten seconds of CPU. And
    a line without an end would grow for as long as the child writes.
    """

    async def receive(self) -> str:
        open_line: list[str] = self.__dict__.setdefault("_open_line", [])
        while True:
            chunk = await super().receive()
            head, newline, rest = chunk.rpartition("\n")
            if not newline:
                open_line.append(chunk)
                self._bound(open_line)
                continue
            if self.__dict__.pop("_too_long", False):
                head = head.partition("\n")[2]  # what belonged to it is gone
            text = "".join([*open_line, head, newline])
            open_line[:] = [rest] if rest else []
            return text

    def _bound(self, open_line: list[str]) -> None:
        if sum(map(len, open_line)) > _MAX_LINE_CHARS:
            if not self.__dict__.get("_too_long"):
                log.warning("a server's stdout has a line of more than %d characters: passed over", _MAX_LINE_CHARS)
            self.__dict__["_too_long"] = True
            open_line.clear()


# There is no parameter for it in 2.3.0.
mcp.client.stdio.TextReceiveStream = _WholeLines  # type: ignore[attr-defined]


class _SafeTransport(httpx2.AsyncBaseTransport):
    """A POST that finds nobody becomes an answer that says so, instead of ending the task that owns the client."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            # Only a connection that was never made is sure not to have carried the call.
            carried = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            failure = {"code": CONNECTION_CLOSED, "message": UNREACHABLE, "data": {"carried": carried}}
            return httpx2.Response(502, request=request, json={"jsonrpc": "2.0", "id": None, "error": failure})

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Watched:
    """A read stream that calls *ended* when it runs dry, and *noise* at the first line that is no message."""

    def __init__(self, inner: ReadStream[Incoming], ended: Callable[[], None], noise: Callable[[], None]) -> None:
        self._inner = inner
        self._ended: Callable[[], None] | None = ended
        self._noise: Callable[[], None] | None = noise

    async def receive(self) -> Incoming:
        try:
            return self._seen(await self._inner.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._end()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return self._seen(await self._inner.__anext__())
        except StopAsyncIteration:
            self._end()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def close(self) -> None:
        self._ended = None  # closed by us: not a loss
        self._inner.close()  # type: ignore[attr-defined]  # every stream of the SDK has it; its Protocol does not

    def _seen(self, incoming: Incoming) -> Incoming:
        incoming = _answered(incoming)
        if self._noise is not None and isinstance(incoming, Exception):
            noise, self._noise = self._noise, None
            noise()
        return incoming

    def _end(self) -> None:
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()


def _answered(incoming: Incoming) -> Incoming:
    """An answer that is no valid JSON-RPC, made into an error for its call, which would else wait for its deadline."""
    if isinstance(incoming, ValidationError):
        for problem in incoming.errors(include_url=False, include_context=False):
            match problem["input"]:
                case {"id": int() | str() as request_id, **rest} if "method" not in rest:
                    failure = ErrorData(code=INTERNAL_ERROR, message=MALFORMED)
                    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=failure))
    return incoming


@asynccontextmanager
async def _stderr_log(name: str) -> AsyncIterator[tuple[TextIO, deque[str]]]:
    """A file for the child's stderr, drained into the log at any rate: a full pipe would stop the child."""
    read_fd, write_fd = os.pipe()
    last_lines: deque[str] = deque(maxlen=_STDERR_KEPT)
    loop = asyncio.get_running_loop()
    with os.fdopen(write_fd, "w") as errlog:
        transport, _ = await loop.connect_read_pipe(
            lambda: _LineLog(name, last_lines), os.fdopen(read_fd, "rb", buffering=0)
        )
        try:
            yield errlog, last_lines
        finally:
            transport.close()


class _LineLog(asyncio.Protocol):
    """Logs lines, each cut to a bounded length; keeps the last few."""

    def __init__(self, name: str, last_lines: deque[str]) -> None:
        self._name = name
        self._last_lines = last_lines
        self._open = bytearray()

    def data_received(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._open += line[: _STDERR_LINE - len(self._open)]
            self._emit()
        self._open += rest[: _STDERR_LINE - len(self._open)]

    def connection_lost(self, exc: Exception | None) -> None:
        self._emit()

    def _emit(self) -> None:
        line = self._open.decode("utf-8", "replace").strip()
        self._open.clear()
        if line:
            self._last_lines.append(line)
            log.debug("%s stderr: %s", self._name, line)
