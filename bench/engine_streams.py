"""Both ends of the relays that ``bench.engine`` compares: the model that they ask, and the client that asks them.

One process holds both, so that "one event at a time" needs no clock: the model sends the next delta when the client has
seen the one before. Bare protocols, and every byte is made beforehand: neither end is ever what is waited for.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import cast
from urllib.parse import urlsplit

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_NUMBER = re.compile(rb"stream (\d+)")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_BEFORE = b'{"role":"user","content":"And?"},{"role":"assistant","content":"Then this."},'
_SEEN = b"event: text-delta"
_BOUND_S = 60.0


def _chunk(choices: bytes, more: bytes = b"") -> bytes:
    body = b'{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"m","choices":['
    event = b"data: " + body + choices + b"]" + more + b"}\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def _choice(delta: bytes, finish: bytes = b"null") -> bytes:
    return _chunk(b'{"index":0,"delta":' + delta + b',"finish_reason":' + finish + b"}")


DELTA = _choice(b'{"content":" token"}')
_USAGE = _chunk(b"", b',"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}')
_LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
END = _choice(b"{}", b'"stop"') + _USAGE + _LAST
_CALL = (
    b'{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_bench","type":"function",'
    b'"function":{"name":"tool_browse","arguments":"{\\"path\\":\\"/\\"}"}}]}'
)
CALL = _choice(_CALL) + _choice(b"{}", b'"tool_calls"') + _USAGE + _LAST


class Stream:
    """One conversation, from both ends. *on_seen* is called for every delta that reached the client."""

    def __init__(self, number: int, *, calls_tool: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.calls_tool = calls_tool
        self.opened: asyncio.Future[None] = loop.create_future()
        """The first delta was seen."""
        self.over: asyncio.Future[None] = loop.create_future()
        self.sent = 0
        self.seen = 0
        self.on_seen: Callable[[], None] | None = None
        self._model: asyncio.WriteTransport | None = None

    def asked(self, model: asyncio.WriteTransport) -> None:
        self._model = model
        model.write(_HEAD)
        if self.calls_tool:
            self.calls_tool = False
            model.write(CALL)
        else:
            self.send()

    def send(self, deltas: int = 1) -> None:
        assert self._model is not None
        self.sent += deltas
        self._model.write(DELTA * deltas)

    def finish(self) -> None:
        assert self._model is not None
        self._model.write(END)

    def saw(self, deltas: int) -> None:
        for _ in range(deltas):
            self.seen += 1
            if self.seen == 1:
                self.opened.set_result(None)
            elif self.on_seen is not None:
                self.on_seen()


class Streams:
    """The streams by number, the model's port, and connections to ask with. Each conversation has *pairs* of messages
    before its last one."""

    def __init__(self, pairs: int = 0) -> None:
        self._before = _BEFORE * pairs
        self.by_number: dict[int, Stream] = {}
        self._next = 0
        self._clients: dict[str, list[_Client]] = {}

    async def serve_model(self) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: _Model(self.by_number), "127.0.0.1", 0)

    async def open(self, url: str, headers: Mapping[str, str], *, calls_tool: bool = False) -> Stream:
        """A stream that was asked for at *url*; nothing of it has come yet."""
        self._next += 1
        stream = self.by_number[self._next] = Stream(self._next, calls_tool=calls_tool)
        idle = self._clients.setdefault(url, [])
        if idle:
            client = idle.pop()
        else:
            host, port = urlsplit(url).netloc.split(":")
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(lambda: _Client(idle), host, int(port))
        client.ask(stream, headers, self._before)
        return stream

    async def close(self, stream: Stream) -> None:
        async with asyncio.timeout(_BOUND_S):
            await stream.over
        del self.by_number[stream.number]


class _Model(asyncio.Protocol):
    def __init__(self, streams: Mapping[int, Stream]) -> None:
        self._streams = streams
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not blank or (length is not None and len(body) < int(length[1])):
            return
        self._received = b""
        number = _NUMBER.search(body)
        assert number is not None
        self._streams[int(number[1])].asked(self._transport)


class _Client(asyncio.Protocol):
    def __init__(self, idle: "list[_Client]") -> None:
        self._idle = idle
        self._stream: Stream | None = None
        self._tail = b""
        self._first = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def ask(self, stream: Stream, headers: Mapping[str, str], before: bytes) -> None:
        self._stream, self._tail, self._first = stream, b"", True
        content = b'{"messages":[%b{"role":"user","content":"stream %d"}],"metadata":{"correlation_id":"bench-%d"}}' % (
            before,
            stream.number,
            stream.number,
        )
        lines = [
            "POST /engine/chat HTTP/1.1",
            "host: 127.0.0.1",
            "content-type: application/json",
            f"content-length: {len(content)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + content)

    def data_received(self, data: bytes) -> None:
        stream = self._stream
        assert stream is not None
        if self._first:
            self._first = False
            if not data.startswith(b"HTTP/1.1 200"):
                return self._failed(data)
        # Long enough for a mark that was cut in two, too short for a whole one.
        window = self._tail + data
        self._tail = window[-(len(_SEEN) - 1) :]
        if deltas := window.count(_SEEN):
            stream.saw(deltas)
        if window.endswith(b"0\r\n\r\n"):
            self._stream = None
            self._idle.append(self)
            stream.over.set_result(None)
        return None

    def connection_lost(self, error: Exception | None) -> None:
        if self._stream is not None:
            self._failed(b"the connection was lost")
        elif self in self._idle:
            self._idle.remove(self)

    def _failed(self, words: bytes) -> None:
        assert self._stream is not None
        failure = RuntimeError(f"not a good answer: {words[:300]!r}")
        for waiting in (self._stream.opened, self._stream.over):
            if not waiting.done():
                waiting.set_exception(failure)


def now_ms() -> float:
    return perf_counter() * 1000
