"""A client over a bare socket that reads only when told to, with a small window: a slow reader, or a stuck one."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

WINDOW_BYTES = 16 * 1024


class SlowClient:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.received = bytearray()

    async def read(self, until: bytes = b"\r\n0\r\n\r\n") -> bytes:
        """Read until *until* was seen, by default the end of the body. Raises ConnectionError if there is none."""
        loop = asyncio.get_running_loop()
        seen = 0
        while until not in self.received[seen:]:
            seen = max(len(self.received) - len(until), 0)
            data = await loop.sock_recv(self._socket, 1 << 20)
            if not data:
                raise ConnectionResetError
            self.received += data
        return bytes(self.received)

    def text(self) -> str:
        """The body of what was received, chunk sizes taken out."""
        at = self.received.index(b"\r\n\r\n") + 4
        body = bytearray()
        while at < len(self.received):
            line_end = self.received.index(b"\r\n", at)
            length = int(self.received[at:line_end], 16)
            body += self.received[line_end + 2 : line_end + 2 + length]
            at = line_end + 2 + length + 2
        return body.decode()


@asynccontextmanager
async def posting(url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> AsyncIterator[SlowClient]:
    """Send the request of a chat and read nothing."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
        await loop.sock_connect(sock, (parts.hostname, parts.port))
        content = json.dumps(body).encode()
        lines = ["POST /engine/chat HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode() + content)
        yield SlowClient(sock)


async def standstill(progress: Callable[[], int]) -> int:
    """The value at which *progress* stands when it does not move any more."""
    before = -1
    while (now := progress()) != before:
        before = now
        await asyncio.sleep(0.15)  # only time shows that nothing comes
    return before
