"""Many client connections at once over bare sockets, from an address of the loopback net that the test chooses."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def connections(
    port: int, count: int, *, source: str = "127.0.0.1", first: bytes = b""
) -> Iterator[list[socket.socket]]:
    """Open *count* connections from *source* and send *first* on each. The answers wait to be read."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0)))
            sock.setblocking(False)
            with suppress(OSError):  # refused already
                sock.send(first)
            opened.append(sock)
        yield opened


async def closed(sock: socket.socket, *, drip: bytes = b"") -> bytes:
    """Everything that is received until the server closes; meanwhile *drip* is sent again and again."""
    loop = asyncio.get_running_loop()
    received = b""

    async def send() -> None:
        with suppress(OSError):
            while drip:
                await loop.sock_sendall(sock, drip)
                await asyncio.sleep(0.05)  # the drip

    dripping = asyncio.create_task(send())
    try:
        with suppress(ConnectionError):
            while data := await loop.sock_recv(sock, 65_536):
                received += data
    finally:
        dripping.cancel()
    return received
