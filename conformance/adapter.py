"""A proxy between the suite and a gate: it adds the credential that the suite cannot send, and undoes names.

All else passes as it came, header by header and event by event, hang-ups included.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import httptools
import uvicorn

from conformance.names import Names
from conformance.processes import listening_socket, url_of

Header = tuple[bytes, bytes]

_OF_ONE_CONNECTION = {b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"te", b"upgrade"}


class Adapter:
    """An ASGI application. *names* has those of each face by its path."""

    def __init__(self, gate: str, key: str, names: Mapping[str, Names]) -> None:
        self._port = urlsplit(gate).port
        self._added = [(b"authorization", f"Bearer {key}".encode()), (b"connection", b"close")]
        self._names = names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        names = self._names[scope["path"]]
        body = await _body(receive)
        headers = [(name, value) for name, value in scope["headers"] if name not in _OF_ONE_CONNECTION]
        if body is None:
            return
        body, headers = _renamed(body, headers, names)
        async with anyio.create_task_group() as tasks:

            async def exchange() -> None:
                await self._exchange(scope, headers, body, send, names.answer)
                tasks.cancel_scope.cancel()

            tasks.start_soon(exchange)
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

    async def _exchange(
        self, scope: Any, headers: Iterable[Header], body: bytes, send: Any, rename: Callable[[Any], Any]
    ) -> None:
        lines = [f"{scope['method']} {scope['path']} HTTP/1.1".encode()]
        length = [(b"content-length", str(len(body)).encode())] if body else []
        # Written by hand: a library would mend the odd headers by which the suite tries a server.
        lines += [name + b": " + value for name, value in (*headers, *self._added, *length)]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(b"\r\n".join([*lines, b"", body]))
            await _relay(reader, send, rename)
        finally:
            writer.close()


class _Response:
    """The parts that httptools has parsed so far."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.headers: list[Header] = []
        self.begun = self.ended = False
        self._body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.ended = True

    def taken(self, *, events: bool) -> bytes:
        """The body so far, each part once; of an event stream whole events only."""
        end = len(self._body)
        if events and not self.ended:
            blank = max(self._body.rfind(b"\n\n"), self._body.rfind(b"\n\r\n"))
            end = 0 if blank < 0 else self._body.index(b"\n", blank + 1) + 1
        taken, self._body = self._body[:end], self._body[end:]
        return taken


async def _relay(reader: asyncio.StreamReader, send: Any, rename: Callable[[Any], Any]) -> None:
    """The response that comes, with other names. One that is cut off ends where it was cut off."""
    response, begun, events = _Response(), False, False
    while not response.ended:
        data = await reader.read(65_536)
        if not data and not begun:
            raise ConnectionError("the gate closed the connection without an answer")
        if not data:
            break
        response.parser.feed_data(data)
        if response.begun and not begun:
            begun = True
            headers = [(name, value) for name, value in response.headers if name not in _OF_ONE_CONNECTION]
            events = any(name == b"content-type" and b"event-stream" in value for name, value in headers)
            await send({"type": "http.response.start", "status": response.parser.get_status_code(), "headers": headers})
        if events and (part := response.taken(events=True)):
            await send({"type": "http.response.body", "body": _lines(part, rename), "more_body": True})
    rest = response.taken(events=events)
    await send({"type": "http.response.body", "body": _lines(rest, rename) if events else _json(rest, rename)})


@asynccontextmanager
async def serving_adapter(gate: str, key: str, names: Mapping[str, Names]) -> AsyncIterator[str]:
    """Yields its base URL, on a free port of the loopback."""
    listener = listening_socket()
    adapter: Any = Adapter(gate, key, names)
    server = uvicorn.Server(
        uvicorn.Config(
            adapter, log_config=None, access_log=False, lifespan="off", proxy_headers=False, timeout_graceful_shutdown=1
        )
    )
    # Signals belong to the runner, so only the inner part of serve() is run.
    task = asyncio.create_task(server._serve([listener]))
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        await task
        listener.close()


async def _body(receive: Any) -> bytes | None:
    """None if the client left before it was whole."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _renamed(body: bytes, headers: list[tuple[bytes, bytes]], names: Names) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    try:
        before = json.loads(body)
    except ValueError:
        return body, headers  # a malformed message is the gate's to refuse
    after = names.request(before)
    if after == before:
        return body, headers
    headers = [
        (name, names.header(value.decode("latin-1"), before, after).encode("latin-1") if name == b"mcp-name" else value)
        for name, value in headers
    ]
    return json.dumps(after).encode(), headers


def _lines(events: bytes, rename: Callable[[Any], Any]) -> bytes:
    """Server-sent events with other names in their data."""
    lines = [
        b"data: " + _json(line[5:].strip(), rename) if line.startswith(b"data:") else line
        for line in events.replace(b"\r\n", b"\n").split(b"\n")
    ]
    return b"\n".join(lines)


def _json(text: bytes, rename: Callable[[Any], Any]) -> bytes:
    """*text* with other names; as it is if it is no JSON."""
    try:
        before = json.loads(text)
    except ValueError:
        return text
    after = rename(before)
    return text if after == before else json.dumps(after).encode()
