"""``wicketgate serve``: the listening socket, the loop and the server. ``app.lifespan`` does the rest."""

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.lifespan import OwnServer, Program
from app.main import create_app
from app.port.server import serve_app
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate

_BACKLOG = 2048


def serve_until_stopped(settings: Settings, load: Callable[[], Settings], watched: Path | None) -> int:
    """Serves until a signal stops it, and returns the exit code. Raises ConfigError.

    After SIGHUP or a change of *watched* the settings that *load* reads take the place of *settings*.
    """
    listener = _bind(settings.server.host, settings.server.port)
    failures: list[ConfigError] = []

    def fail(error: ConfigError) -> None:
        failures.append(error)
        signal.raise_signal(signal.SIGTERM)

    with listener:
        app = create_app(settings, program=Program(load, watched, OwnServer(_address(listener), fail)))
        gate: Gate = app.state.gate

        async def run() -> bool:
            return await serve_app(
                app,
                listener,
                drain_s=settings.server.drain_s,
                stuck_reader_s=settings.engine.stuck_reader_s,
                stopping=gate.drain.begin,
                drained=gate.drain.wait,
            )

        served = _runner()(run())
    if failures:
        raise failures[0]
    return 0 if served else 1


def _runner() -> Callable[[Any], bool]:
    """Returns ``uvloop.run`` if it is installed, otherwise that of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _bind(host: str, port: int) -> socket.socket:
    """Listens before anything is started. A taken port is the most common failure, so its error says what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio's own loop sends without delay only if it sees this number.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # binding alone does not claim the port
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port or server.port."
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
