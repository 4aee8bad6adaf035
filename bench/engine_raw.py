"""The least that a relay in Python can be: a model's stream in, our events out, on bare asyncio protocols (uvloop).

It decodes each chunk with a type and encodes our event, one write a read; it knows no errors, no limits, no tools. What
any engine costs beyond it is what the engine does. ``python -m bench.engine_raw MODEL_PORT``
"""

import asyncio
import sys
from json.encoder import encode_basestring_ascii
from typing import cast

import httptools
import msgspec
import uvloop


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Chunk).decode

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_DONE = b'event: done\ndata: {"finish_reason":"stop","usage":{"prompt_tokens":0,"completion_tokens":0}}\n\n'
_ASK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: model\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b"
)


class _Model(asyncio.Protocol):
    """One connection to the model, used again after each answer."""

    def __init__(self, idle: "list[_Model]") -> None:
        self._idle = idle
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._body: list[bytes] = []
        self._ended = False
        self.client: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)

    def ask(self, body: bytes, client: asyncio.WriteTransport) -> None:
        self.client = client
        self.transport.write(_ASK % (len(body), body))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._ended = True

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        *events, self._rest = (self._rest + b"".join(self._body)).split(b"\n\n")
        self._body.clear()
        out = []
        for event in events:
            data = event[6:]
            if data == b"[DONE]":
                out.append(_DONE)
                continue
            for choice in _decode(data).choices:
                if choice.delta.content:
                    text = encode_basestring_ascii(choice.delta.content).encode()
                    out.append(b'event: text-delta\ndata: {"content":%b}\n\n' % text)
        assert self.client is not None
        if out:
            piece = b"".join(out)
            self.client.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if self._ended:
            self.client.write(b"0\r\n\r\n")
            self._ended = False
            self._parser = httptools.HttpResponseParser(self)
            self._idle.append(self)


class _Door(asyncio.Protocol):
    def __init__(self, model_port: int, idle: list[_Model]) -> None:
        self._model_port = model_port
        self._idle = idle
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(self._body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._body = b""

    async def _answer(self, body: bytes) -> None:
        self._transport.write(_HEAD)
        if self._idle:
            model = self._idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, model = await loop.create_connection(lambda: _Model(self._idle), "127.0.0.1", self._model_port)
        model.ask(body, self._transport)


async def _serve(model_port: int) -> None:
    idle: list[_Model] = []
    server = await asyncio.get_running_loop().create_server(lambda: _Door(model_port, idle), "127.0.0.1", 0)
    print(f"ready on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
