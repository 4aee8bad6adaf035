"""A chat-completions server with a script: real HTTP on a free loopback port, and a record of what it was asked.

    async with ModelServer(tool_turn(("c1", "tool_browse", {"path": "/"})), text_turn("Done.")) as server:
        provider = OpenAIChatProvider(ModelAddress(server.base_url, ...), ...)

Each request takes the next reply of the script; one that comes after the end gets a 500. A reply is made of steps:
bytes go out in one write, HOLD waits until the client leaves (or the server stops), CUT ends the connection without
the end of the body, RESET with a TCP reset. An ``asyncio.Event`` as a step is waited for.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any

SSE = "text/event-stream"
DONE = b"data: [DONE]\n\n"


class Step(Enum):
    HOLD = auto()
    CUT = auto()
    RESET = auto()


HOLD, CUT, RESET = Step.HOLD, Step.CUT, Step.RESET


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. The head is sent before the first step is taken, unless *silent*: then nothing is sent at all."""

    steps: Sequence[bytes | Step | asyncio.Event]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": SSE})
    silent: bool = False


@dataclass(slots=True)
class RecordedRequest:
    """One request. Header names are in lower case. *hung_up* is set when the client left before the reply's end."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)


def chunk(delta: Mapping[str, Any] | None = None, finish_reason: str | None = None, **extra: Any) -> bytes:
    """One event of a stream, as OpenAI writes it."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "scripted", "choices": choices, **extra}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage_chunk(prompt_tokens: int, completion_tokens: int) -> bytes:
    return chunk(usage={"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens})


def text_turn(*deltas: str, usage: tuple[int, int] | None = (10, 5), finish_reason: str = "stop") -> Reply:
    """An answer in text, each delta in a write of its own."""
    steps = [chunk({"role": "assistant", "content": ""})]
    steps += [chunk({"content": delta}) for delta in deltas]
    steps.append(chunk({}, finish_reason))
    if usage is not None:
        steps.append(usage_chunk(*usage))
    return Reply([*steps, DONE])


def tool_turn(
    *calls: tuple[str, str, Mapping[str, Any] | str],
    text: str = "",
    usage: tuple[int, int] | None = (10, 5),
    finish_reason: str = "tool_calls",
) -> Reply:
    """An answer that asks for tools, each call as (id, name, arguments), the arguments split over two deltas.

    Arguments given as a string are sent as they are, valid or not.
    """
    steps = [chunk({"role": "assistant", "content": text or None})]
    for index, (call_id, name, arguments) in enumerate(calls):
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
        middle = len(raw) // 2
        first = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": raw[:middle]},
        }
        steps.append(chunk({"tool_calls": [first]}))
        steps.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": raw[middle:]}}]}))
    steps.append(chunk({}, finish_reason))
    if usage is not None:
        steps.append(usage_chunk(*usage))
    return Reply([*steps, DONE])


def json_reply(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole body in one piece, most often an error."""
    return Reply([json.dumps(body).encode()], status, {"content-type": "application/json", **(headers or {})})


class ModelServer:
    """*requests* holds what came in, in order; *connections* counts the TCP connections that were opened."""

    def __init__(self, *script: Reply, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.script: list[Reply] = list(script)
        self.requests: list[RecordedRequest] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals = asyncio.Condition()

    @property
    def base_url(self) -> str:
        """The root to configure a provider with: ``http://127.0.0.1:<port>/v1``."""
        assert self._server is not None
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def request(self, number: int = 0) -> RecordedRequest:
        """The request of that number, waited for."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.requests) > number)
        return self.requests[number]

    async def __aenter__(self) -> "ModelServer":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            received: bytes | None = b""
            while received is not None:
                received = await self._exchange(received, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            # The server is stopping; ending quietly keeps the stream protocol from reporting it as a fault.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(
        self, received: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """One request, of which *received* is already read, and its reply.

        Gives what is already read of the next request, or None when the connection is not to be used again.
        """
        head = (received + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        request = RecordedRequest(method, path, headers, json.loads(content) if content else None)
        async with self._arrivals:
            self.requests.append(request)
            self._arrivals.notify_all()
        reply = self.script.pop(0) if self.script else json_reply(500, {"error": {"message": "the script has ended"}})

        sending = asyncio.ensure_future(self._send(reply, writer))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() and not leaving.result():
                request.hung_up.set()
                return None
            keep = await sending
            return (leaving.result() if leaving.done() else b"") if keep else None
        except ConnectionError:
            request.hung_up.set()
            return None
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if not reply.silent:
            lines = [f"HTTP/1.1 {reply.status} Scripted", "transfer-encoding: chunked"]
            lines += [f"{name}: {value}" for name, value in reply.headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            await writer.drain()
        for step in reply.steps:
            match step:
                case bytes():
                    if step:
                        writer.write(b"%x\r\n%b\r\n" % (len(step), step))
                        await writer.drain()
                case asyncio.Event():
                    await step.wait()
                case Step.HOLD:
                    await asyncio.Event().wait()
                case Step.CUT:
                    return False
                case Step.RESET:
                    raw = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
