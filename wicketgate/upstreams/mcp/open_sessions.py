"""The end of a session, and the second session at a server that speaks both eras (UP-280 to UP-283).

The first session of such a server uses 2026-07-28. A call whose client can be asked while it runs needs the handshake
era, in which a server may send a question during a call.
"""

import asyncio
import logging
from collections.abc import Collection

from wicketgate.fleet.member import loop_time
from wicketgate.upstreams.mcp.call import Gone, Malformed, Refused
from wicketgate.upstreams.mcp.client import Connect, McpClient
from wicketgate.upstreams.mcp.exchange import Background

log = logging.getLogger("wicketgate.upstream")

_OPEN_S = 10.0
AGAIN_S = 300.0
"""Seconds before the next attempt after the server gave no handshake session."""


class Ending:
    """The first reason for which a session ends."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.how = ""

    def lost(self, how: str) -> None:
        self.how = self.how or how
        self.event.set()


class HandshakeSession:
    """The second session at a server that speaks both eras. Opened by the first request that needs it, and opened again
    by the next one after it was lost."""

    def __init__(self, name: str, connect: Connect, ping_s: float, forward: Collection[str]) -> None:
        """*forward*: capabilities of clients besides questions that the server may use."""
        self._name = name
        self._connect = connect
        self._ping_s = ping_s
        self._forward = forward
        self._found: asyncio.Future[McpClient | None] | None = None
        self._not_before = 0.0
        self._background = Background()

    async def client(self) -> McpClient | None:
        """Returns the client of the session; None if there is no session."""
        if self._found is None and loop_time() < self._not_before:
            return None
        found = self._found or self._open()
        # Shielded: other callers wait for the same session.
        return found.result() if found.done() else await asyncio.shield(found)

    async def close(self) -> None:
        """Ends the session. Calls in flight still get their answers."""
        await self._background.close()

    def _open(self) -> "asyncio.Future[McpClient | None]":
        found = self._found = asyncio.get_running_loop().create_future()
        # In a callback: a task that is cancelled before its first step never runs.
        self._background.start(self._serve(found)).add_done_callback(lambda _: self._over(found))
        return found

    async def _serve(self, found: "asyncio.Future[McpClient | None]") -> None:
        ending = Ending()

        def lost(how: str) -> None:
            ending.lost(how)
            self._over(found)  # at once, so that no new request uses it

        try:
            async with asyncio.timeout(_OPEN_S) as opening, self._connect(lost) as connection:
                client = await McpClient.open(self._name, connection, "handshake", lost, self._forward, self._ping_s)
                opening.reschedule(None)
                log.info("%s: a second session, protocol %s", self._name, client.agreement.version)
                watch = self._background.start(client.give_up())
                found.set_result(client)
                try:
                    await ending.event.wait()
                finally:
                    watch.cancel()
                    self._over(found)
            log.warning("%s: the second session has ended: %s", self._name, ending.how)
        except Exception as error:
            self._not_before = loop_time() + AGAIN_S
            # The text of other exceptions may contain an address.
            why = error if isinstance(error, Refused | Malformed | Gone) else type(error).__name__
            log.info("%s: no session of the handshake era (%s)", self._name, why)

    def _over(self, found: "asyncio.Future[McpClient | None]") -> None:
        if self._found is found:
            self._found = None
        if not found.done():
            found.set_result(None)
