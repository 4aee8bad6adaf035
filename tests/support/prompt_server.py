"""uvicorn's server without its pauses: the original looks every tenth of a second whether it shall end, and twice more
at its end, which is most of the time of a test that lasts a few hundredths."""

import asyncio
import socket
from contextlib import suppress

import uvicorn

_STEP_S = 0.002


class PromptServer(uvicorn.Server):
    """Made on the loop that it runs on. Signals are left alone, since they belong to the test runner."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    async def run_on(self, listener: socket.socket) -> None:
        """Serves until ``end``."""
        await self._serve([listener])

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # the header with the date is of this second
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for one in sockets or []:
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(_STEP_S)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()
