"""Stands for a server of the tests that the process of ``warm_start`` forks, since the SDK takes a second to load.

``python -ISE warm_server.py SOCKET MODULE OPTIONS...`` passes its line, folder, environment and streams, and ends as
the server does. When it is killed the server is too. It imports little, and its command line is made by ``warm``.
"""

import json
import os
import socket
import sys


def warm(module: str, *options: str) -> list[str]:
    """The command of ``python -m MODULE OPTIONS``. The process id is not the server's own."""
    from tests.support.warm_start import stand_ins

    return [sys.executable, "-ISE", __file__, stand_ins(), module, *options]


def main(path: str, *line: str) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        message = json.dumps({"line": line, "folder": os.path.realpath("."), "env": dict(os.environ)}).encode()
        socket.send_fds(connection, [len(message).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(message)
        return int(connection.recv(16) or b"1")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
