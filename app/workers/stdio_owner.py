"""The process that runs stdio servers for all workers (OPS-182)."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr, ValidationError

from app.logs import service_logs
from app.workers.place import CUT
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.log_text import Redactor
from wicketgate.upstreams.mcp.shared_owner import StdioOwner
from wicketgate.upstreams.mcp.shared_stdio import SharedProgram

log = logging.getLogger("wicketgate.workers")

_BACKLOG = 1_024


@contextmanager
def listening_owner(folder: Path) -> Iterator[tuple[socket.socket, Path]]:
    """Gives the socket of the owner, and its path. The supervisor holds it, so that an owner that is started again is
    found where the one before it was."""
    path = folder / "stdio.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        yield listener, path


def run_owner(listener: socket.socket, settings: Settings, starts: int, report: int, lifeline: int) -> int:
    """Runs stdio servers until the supervisor ends it, and no worker uses one any more."""
    redactor = Redactor(settings.secrets())
    with service_logs(settings.server.log_level, redactor, log_format=settings.server.log_format):
        if starts > 1:
            log.warning("stdio servers are started anew, because the process that ran them had ended")
        asyncio.run(_own(listener, redactor, lifeline))
    return 0


async def _own(listener: socket.socket, redactor: Redactor, lifeline: int) -> None:
    stop, haste = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        loop.remove_reader(lifeline)
        stop.set()

    loop.add_reader(lifeline, orphaned)
    # Workers use it until their end, whoever has sent the signal.
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(CUT, haste.set)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.set_blocking(listener.fileno(), False)
    await StdioOwner(lambda program: redactor.learn(_secrets(program)), haste).serve(listener, stop)


def _secrets(program: SharedProgram) -> list[str]:
    """Returns what the log must not show of a program."""
    env = {name: SecretStr(value) for name, value in program.env.items()}
    try:
        settings = UpstreamSettings(name=program.name, command=program.command, env=env, cwd=program.cwd)
    except ValidationError:
        return list(program.env.values())
    return [*settings.secrets(), *program.env.values()]
