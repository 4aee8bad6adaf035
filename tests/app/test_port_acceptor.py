"""New connections are taken a few at a time."""

import asyncio
import socket
from itertools import pairwise

from app.port.acceptor import ACCEPTED_IN_A_TURN, Acceptor
from app.port.connections import ConnectionCounts, ConnectionLimits, Connections
from tests.support.open_sockets import connections
from tests.support.requirement import requirement
from tests.support.service import BOUND_S

WAITING = 200


@requirement("OPS-33")
async def test_other_work_goes_on_between_a_few_new_connections() -> None:
    made: list[asyncio.Protocol] = []

    def make_protocol() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    limits = ConnectionLimits(WAITING, WAITING, 0)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=WAITING) as listener,
        connections(listener.getsockname()[1], WAITING),
    ):
        acceptor = Acceptor(listener, make_protocol, Connections(limits, ConnectionCounts()))
        turns = [0]
        async with asyncio.timeout(BOUND_S):
            while turns[-1] < WAITING:
                await asyncio.sleep(0)
                turns.append(len(made))
        acceptor.close()
        await acceptor.wait_closed()
    assert max(after - before for before, after in pairwise(turns)) <= ACCEPTED_IN_A_TURN
