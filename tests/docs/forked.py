"""``wicketgate`` as a command that is forked from a process which has loaded the program, since loading takes a second.

``python -m tests.docs.forked SOCKET`` waits for commands. The script of ``client`` stands in a folder of PATH. It
passes its arguments, folder, environment and streams, and ends as the command did.
"""

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

_LIMIT_BYTES = 262_144

_CLIENT = """#!{python} -ISE
import json, os, socket, sys
if sys.argv[1:2] in (["serve"], ["mcp"]):
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({path!r})
    message = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(connection, [message], [0, 1, 2])
    connection.shutdown(socket.SHUT_WR)
    answer = connection.recv(16)
    sys.exit(int(answer) if answer else "the command was killed")
"""


def client(path: Path) -> str:
    """The text of the script that runs a command through the socket at *path*."""
    program = str(Path(sys.executable).parent / "wicketgate")
    return _CLIENT.format(python=sys.executable, program=program, path=str(path))


def serve(path: str) -> None:
    _load()
    assert threading.active_count() == 1, "a fork would lose the other threads"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _answer(connection)


def _answer(connection: socket.socket) -> None:
    """Runs one command in this process and ends it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, _LIMIT_BYTES, 3)
    while part := connection.recv(_LIMIT_BYTES):
        message += part
    arguments, folder, environment = json.loads(message)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(Path(sys.executable).parent / "wicketgate"), *arguments]
    from app.cli import main

    code: object = 1
    try:
        main(arguments)
        code = 0
    except SystemExit as end:
        code = end.code if end.code is not None else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(str(code if isinstance(code, int) else 1).encode())
        os._exit(0)


def _load() -> None:
    """Imports what commands import when they run."""
    import app.cli
    import app.commands.check
    import app.commands.import_servers
    import app.commands.learned
    import app.commands.lock
    import app.main
    from wicketgate.tokens import shipped_token_counter

    assert app.cli is not None
    shipped_token_counter()


if __name__ == "__main__":
    serve(sys.argv[1])
