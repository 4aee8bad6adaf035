"""The port's protocol under a small ASGI application, and pieces of bytes sent to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from app.port.protocol import GuardedHttpProtocol
from tests.support.prompt_server import serving_app

BOUND_S = 30.0


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path and the length of the body; below ``/stream`` without a length, in three parts.

    ``/status/<status>`` is answered with that status before the body is read.
    """
    if scope["type"] != "http":
        return
    if scope["path"].startswith("/status/"):
        status = int(scope["path"].rpartition("/")[2])
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"7")]})
        await send({"type": "http.response.body", "body": b"refused"})
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = json.dumps([scope["path"], size]).encode()
    if scope["path"].startswith("/stream"):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (body, b"", b"more"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def server(*, keep_alive_s: float = 5, app: ASGIApp = echo, writes_at_once: bool = False) -> AsyncIterator[int]:
    http = partial(GuardedHttpProtocol, writes_at_once=writes_at_once)
    async with serving_app(
        app, http=http, ws="none", lifespan="off", loop="asyncio", timeout_keep_alive=keep_alive_s
    ) as url:
        yield int(url.rpartition(":")[2])


async def send_apart(writer: asyncio.StreamWriter, pieces: Sequence[bytes]) -> None:
    """Sends each of *pieces* in a segment of its own."""
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)  # a segment of its own


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Send the pieces, each in a segment of its own; the status and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(BOUND_S):
            await send_apart(writer, pieces)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return head.split(b" ")[1] + b" " + await reader.readexactly(length)
    finally:
        writer.close()
