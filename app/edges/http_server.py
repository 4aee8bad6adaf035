"""The HTTP server of the process, and how it ends (DESIGN §2; S3 "503")."""

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from app.edges.http_protocol import GuardedHttpProtocol

_CUT_AFTER_S = 1


async def serve_app(
    app: ASGIApp, listener: socket.socket, *, drain_s: float, stopping: Callable[[float], None]
) -> bool:
    """Serve until SIGINT or SIGTERM; False if the application could not start.

    At the signal, *stopping* is told, on the loop, how long what runs may still go on; a second later whatever is left
    is cut.
    """
    loop = asyncio.get_running_loop()

    def told() -> None:
        loop.call_soon_threadsafe(stopping, drain_s)

    server = _Server(
        uvicorn.Config(
            cast(Any, app),  # the two name the same protocol in different types
            log_config=None,
            access_log=False,
            server_header=False,
            http=GuardedHttpProtocol,
            ws="none",
            # Whole seconds, rounded up; an open /mcp stream would otherwise hold the process for ever.
            timeout_graceful_shutdown=int(-(-drain_s // 1)) + _CUT_AFTER_S,
        ),
        told,
    )
    # When all is closed, the server raises the signal that stopped it once more: a normal end, so exit code 0.
    for stop_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop_signal, lambda number, frame: None)
    await server.serve(sockets=[listener])
    return server.started


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, told: Callable[[], None]) -> None:
        super().__init__(config)
        self._told = told

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._told()
        super().handle_exit(sig, frame)
