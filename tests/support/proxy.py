"""An HTTP proxy on a free loopback port: absolute-form requests and CONNECT, with a record of both.

It connects to 127.0.0.1 whatever host it is asked for, so that tests can use any name.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class HttpProxy:
    """*requests* holds the heads that came. *refusal*, if set, is the answer to all. *surplus* follows the answer to
    CONNECT at once."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.refusal = b""
        self.surplus = b""
        self.port = 0

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["HttpProxy"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(30):
            try:
                yield self
            finally:
                server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        if self.refusal:
            writer.write(self.refusal)
            await writer.drain()
            return
        method, target, _ = head.split(b"\r\n")[0].split(b" ")
        if method == b"CONNECT":
            port = int(target.rpartition(b":")[2])
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\nvia: 1.1 test\r\n\r\n" + self.surplus)
        else:
            # The request goes on in origin form; further ones of this connection do as they are.
            authority, slash, path = target.removeprefix(b"http://").partition(b"/")
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(authority.rpartition(b":")[2]))
            far_writer.write(head.replace(target, slash + path, 1))
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
