"""What SIGHUP means: read the configuration again; but the end, when the terminal has gone that we were started in."""

import asyncio
import os
import signal
from collections.abc import Callable


def on_hangup(reload: Callable[[], None]) -> None:
    """Take over SIGHUP, where there is such a thing; call it on the running loop. Under ``nohup`` a terminal that goes
    means nothing, as its user asked."""
    if not hasattr(signal, "SIGHUP"):
        return
    attached = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _has_terminal()

    def heard() -> None:
        if attached and not _has_terminal():
            signal.raise_signal(signal.SIGTERM)
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, heard)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
