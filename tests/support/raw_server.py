"""A server that sends exactly the bytes it is given, cut as they are given."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = OK + b"content-length: 5\r\n\r\nhello"


class RawServer:
    """For each request the next answer: pieces of bytes, each in a write of its own, and whether to close after them.

    *requests* holds the requests that came, *left* is set when a client has gone, *hung_up* when the server has closed
    a connection. An empty piece waits for *go_on*.
    """

    def __init__(self, *answers: tuple[Sequence[bytes], bool]) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.pieces_sent = 0
        self.hung_up = asyncio.Event()
        self.left = asyncio.Event()
        self.url = ""
        self.go_on = asyncio.Event()

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator["RawServer"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{host}:{port}/v1/x?a=%2C"
        async with asyncio.timeout(30):
            try:
                yield self
            finally:
                server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0")
                self.requests.append(head + await reader.readexactly(length))
                pieces, close = self.answers.pop(0)
                for piece in pieces:
                    if piece:
                        writer.write(piece)
                        await writer.drain()
                        self.pieces_sent += 1
                        await asyncio.sleep(0)
                    elif not await self._goes_on(reader):
                        self.left.set()
                        return
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.hung_up.set()

    async def _goes_on(self, reader: asyncio.StreamReader) -> bool:
        waiting = [asyncio.ensure_future(self.go_on.wait()), asyncio.ensure_future(reader.read(1))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return self.go_on.is_set()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
