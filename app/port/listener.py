"""The listening socket: our own, or one that is passed to the process and outlives it (OPS-37).

A socket is passed as by systemd (``sd_listen_fds(3)``): ``LISTEN_PID`` is our process and ``LISTEN_FDS`` the number of
sockets, from descriptor 3 on. While no process accepts, the kernel keeps what connects, so that a restart refuses
nobody.
"""

import os
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass

from wicketgate.errors import ConfigError

_BACKLOG = 2048
_FIRST_PASSED = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class CannotListen(ConfigError):
    """*problem* is the message without the sentence on how to choose another port."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}. Choose another with --port or server.port.")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Listener:
    """*address* is its URL, for people. *outlives_process*: anyone who passed it listens on."""

    socket: socket.socket
    address: str
    outlives_process: bool = False


def open_listener(host: str, port: int, environ: MutableMapping[str, str], *, tls: bool = False) -> Listener:
    """Takes the socket that was passed, and the variables that announce it out of *environ*: they are not for our
    children. Without one it listens on *host* and *port*. Raises ConfigError."""
    passed = _passed(environ)
    if passed is not None:
        return Listener(passed, _address(passed, tls), outlives_process=True)
    own = _bind(host, port)
    return Listener(own, _address(own, tls))


def _passed(environ: MutableMapping[str, str]) -> socket.socket | None:
    given = (
        {name: environ.pop(name, "") for name in _VARIABLES} if environ.get("LISTEN_PID") == str(os.getpid()) else {}
    )
    count = given.get("LISTEN_FDS", "")
    if not count:
        return None
    if count != "1":
        raise ConfigError(
            f"LISTEN_FDS is {count[:20]!r}: pass exactly one listening socket (in systemd: one ListenStream)"
        )
    try:
        passed = socket.socket(fileno=_FIRST_PASSED)
        listens = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(f"LISTEN_FDS is 1, but descriptor 3 is no socket: {error.strerror}") from None
    if passed.type != socket.SOCK_STREAM or not listens:
        passed.detach()
        raise ConfigError("LISTEN_FDS is 1, but descriptor 3 is no socket that listens for connections")
    passed.set_inheritable(False)
    return passed


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
        raise CannotListen(f"Cannot listen on {host} port {port}: {error.strerror}") from None
    return listener


def _address(listener: socket.socket, tls: bool) -> str:
    name = listener.getsockname()
    if isinstance(name, str | bytes):
        return f"unix:{os.fsdecode(name)}"
    host, port = name[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
