"""Ports for servers that must know theirs before they start."""

import fcntl
import os
import socket
import tempfile
from contextlib import closing
from pathlib import Path

# Below the range from which Linux takes the ports of outgoing connections (ip_local_port_range).
_FIRST, _END = 11_000, 32_000


def free_port() -> int:
    """Returns a port that nothing listens at, and that no other caller on this machine was given lately.

    A port that the kernel chooses and that is closed again may be chosen for somebody else before the server binds it.
    """
    with (Path(tempfile.gettempdir()) / f"test-ports-{os.getuid()}").open("a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        port = int(last.read() or _FIRST)
        for _ in range(_FIRST, _END):
            port = port + 1 if port + 1 < _END else _FIRST
            if _is_free(port):
                last.truncate(0)
                last.write(str(port))
                return port
    raise OSError("no port is free")


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
