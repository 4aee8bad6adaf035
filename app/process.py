"""Changes a process that is this program's own: where modules are looked for, and what signals do."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from wicketgate.config.settings import Settings

log = logging.getLogger("wicketgate.configuration")


def search_python_folders(settings: Settings) -> None:
    """Looks for modules in the folders of Python upstreams too, after all that is installed.

    Once a folder is searched it stays so: tools may import their neighbours at any time.
    """
    for upstream in settings.upstreams:
        folder = str(Path(upstream.cwd or ".").resolve())
        if upstream.python and upstream.enabled and folder not in sys.path:
            sys.path.append(folder)


@contextmanager
def on_hangup(reload: Callable[[], None]) -> Iterator[None]:
    """Calls *reload* on the running loop for each SIGHUP, while the context is open.

    When the terminal has gone that the process was started in, SIGHUP stops it; under ``nohup`` it does not, as its
    user asked. A handler that is there already stays in force: then only a restart reads the configuration again.
    """
    before = signal.getsignal(signal.SIGHUP)
    if before not in (signal.SIG_DFL, signal.SIG_IGN) or threading.current_thread() is not threading.main_thread():
        log.warning("SIGHUP belongs to the server here: the configuration is read again after a restart only")
        yield
        return
    attached = before != signal.SIG_IGN and _has_terminal()

    def heard() -> None:
        if attached and not _has_terminal():
            signal.raise_signal(signal.SIGTERM)
        else:
            reload()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, heard)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)


@contextmanager
def on_stop(begin: Callable[[], None]) -> Iterator[None]:
    """Calls *begin* on the running loop when SIGTERM or SIGINT stops the server that serves us, while the context is
    open. The server's own handler is called as before.

    A server ends its lifespan last, after its connections: without this signal a stream that listens without end would
    keep its connection, and the server, for ever.
    """
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(begin)
        before[signal.Signals(number)](number, frame)

    # Elsewhere no handler can be set; a server there is stopped by other means.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
