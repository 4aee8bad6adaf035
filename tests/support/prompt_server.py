"""uvicorn's server without its pauses: the original looks every tenth of a second whether it shall end, and twice more
at its end, which is most of the time of a test that lasts a few hundredths."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn

from tests.support.until import until

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
                    await asyncio.sleep(_STEP_S)  # uvicorn has no event for it
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()


@asynccontextmanager
async def serving_app(app: Any, listener: socket.socket | None = None, **options: Any) -> AsyncIterator[str]:
    """The URL of *app* on *listener*, by default on a free port of the loopback. *options* are uvicorn's."""
    with listener or socket.create_server(("127.0.0.1", 0)) as listening:
        # Otherwise every answer waits 40 ms for an ACK.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            app, **{"log_config": None, "access_log": False, "timeout_graceful_shutdown": 1, **options}
        )
        server = PromptServer(config)
        serving = asyncio.create_task(server.run_on(listening))
        try:
            await until(lambda: server.started or serving.done(), pause_s=0.001)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.end()
            await serving
