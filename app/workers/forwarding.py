"""Requests that another worker has to answer, over its Unix socket (OPS-186).

A connection carries one request: frames of MessagePack, each after its length. The first is the scope; then the
messages of the client go one way, and those of the answer the other way. The end of the connection is the end of the
client, or of the answer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.workers.place import Place
from wicketgate.log_text import correlation_id

log = logging.getLogger("wicketgate.workers")

_LENGTH_BYTES = 4
_CONNECT_S = 1.0
_KEPT = (
    *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
    *("headers", "client", "server"),
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class NotReached(Exception):
    """The worker cannot be reached, and has been sent nothing."""


class Forwarding:
    """The ways from the worker at *place* to the others, and from them to it."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @asynccontextmanager
    async def serving(self, app: ASGIApp) -> AsyncIterator[None]:
        """Lets *app* answer what the others forward while the context is open. It gets the client's own headers, and
        has to authenticate it."""
        path = self._place.door_of(self._place.number)
        with suppress(FileNotFoundError):
            path.unlink()  # of the worker that was here before
        tasks = set[asyncio.Task[None]]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await _serve(app, reader, writer)
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_unix_server(serve, path)
        path.chmod(0o600)
        try:
            yield
        finally:
            server.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def forward(self, number: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets worker *number* answer. Raises NotReached."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(self._place.door_of(number))
        except (OSError, TimeoutError):
            raise NotReached from None
        try:
            kept = {key: scope[key] for key in _KEPT if key in scope}
            await _write(writer, {"scope": kept, "correlation_id": correlation_id.get()})
            sending = asyncio.create_task(_send_on(receive, writer))
            try:
                await _answer(reader, send)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            writer.close()


async def _send_on(receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Sends what the client sends, until it leaves: then the connection ends."""
    with suppress(OSError):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                writer.close()
                return
            await _write(writer, message)


async def _answer(reader: asyncio.StreamReader, send: Send) -> None:
    begun = False
    while True:
        message = await _read(reader)
        if message is None:
            if begun:
                raise ConnectionError("the worker that answered has died")
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]})
            await send({"type": "http.response.body", "body": b""})
            return
        begun = True
        await send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            return


async def _serve(app: ASGIApp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    first = await _read(reader)
    if first is None:
        return
    token = correlation_id.set(first["correlation_id"])
    scope: Scope = {**first["scope"], "state": {"correlation_id": first["correlation_id"]}}
    scope["headers"] = [(bytes(key), bytes(value)) for key, value in scope["headers"]]

    async def receive() -> Message:
        return await _read(reader) or {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        with suppress(OSError):
            await _write(writer, message)

    try:
        await app(scope, receive, send)
    except OSError:
        log.debug("a forwarded request has lost its worker", exc_info=True)
    finally:
        correlation_id.reset(token)


async def _write(writer: asyncio.StreamWriter, message: Any) -> None:
    data = _encode(message)
    writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Any:
    """Returns the next frame; None at the end of the connection."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return _decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        return None
