"""Names with several addresses: the first that answers is taken."""

import asyncio
import socket
import time

import pytest

from tests.support.requirement import requirement
from wicketgate.net.dial import first_connected


def row(port: int, host: str = "127.0.0.1") -> tuple[int, int, int, str, tuple[str, int]]:
    return (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))


class Silent:
    """A port whose queue is full: connecting to it takes for ever."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = self._listener.getsockname()[1]
        self._waiting: list[socket.socket] = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", self.port))
            self._waiting.append(client)

    def close(self) -> None:
        for each in (*self._waiting, self._listener):
            each.close()


@requirement("UP-44")
async def test_an_address_that_refuses_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as good:
        port = good.getsockname()[1]
        sock = await first_connected([row(1), row(1, "127.0.0.2"), row(port)], next_s=60.0)
        assert sock.getpeername()[1] == port
        sock.close()


@requirement("UP-44")
async def test_an_address_that_says_nothing_holds_up_the_next_for_a_moment_only() -> None:
    silent = Silent()
    with socket.create_server(("127.0.0.1", 0)) as good:
        port = good.getsockname()[1]
        async with asyncio.timeout(30):
            sock = await first_connected([row(silent.port), row(port)], next_s=0.02)
        assert sock.getpeername()[1] == port
        sock.close()
    silent.close()


@requirement("UP-44")
async def test_if_all_fail_the_first_failure_is_raised_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        await first_connected([row(1), row(1, "127.0.0.2")], next_s=60.0)
    assert time.monotonic() - began < 30
    with pytest.raises(OSError, match="no address"):
        await first_connected([])


async def test_cancelling_leaves_no_socket_open() -> None:
    silent = [Silent(), Silent()]
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await first_connected([row(each.port) for each in silent], next_s=0.01)
    for each in silent:
        each.close()
    assert asyncio.all_tasks() == before


@requirement("UP-44")
async def test_the_families_take_turns() -> None:
    six = (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::1", 1, 0, 0))
    with socket.create_server(("127.0.0.1", 0)) as good:
        # Were both of one family tried first, the third would wait for a minute.
        async with asyncio.timeout(30):
            sock = await first_connected([six, row(good.getsockname()[1])], next_s=60.0)
        sock.close()
