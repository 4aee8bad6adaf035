"""Measures the pauses of an HTTP server's event loop, seen from outside: ``GET /healthz`` every two milliseconds, or
as said, on one kept-alive connection, from a process that does nothing else.

``python -m bench.loop_probe HOST PORT [EVERY_S]`` writes one JSON line when its stdin ends:
``[[at_s, took_ms, overslept_ms]]``, *at_s* on the monotonic clock that all processes share. *overslept_ms* is by how
much the probe itself woke too late, which tells what the machine alone does.
"""

import json
import os
import socket
import sys
import threading
import time

EVERY_S = 0.002
_BOUND_S = 30.0


def probe(
    host: str, port: int, stop: threading.Event, path: str = "/healthz", every_s: float = EVERY_S
) -> list[tuple[float, float, float]]:
    """One sample a request, one at least. Raises OSError when the server is gone or does not answer 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    found: list[tuple[float, float, float]] = []
    with socket.create_connection((host, port), timeout=_BOUND_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        overslept = 0.0
        while not found or not stop.is_set():
            start = time.monotonic()
            connection.sendall(request)
            _read_answer(connection)
            end = time.monotonic()
            found.append((start, (end - start) * 1e3, overslept * 1e3))
            time.sleep(every_s)
            overslept = time.monotonic() - end - every_s
    return found


def _read_answer(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    status, *headers = head.lower().split(b"\r\n")
    if b" 200 " not in status + b" ":
        raise ConnectionError(status)
    (length,) = (int(line.split(b":")[1]) for line in headers if line.startswith(b"content-length:"))
    while len(body) < length:
        body += _some(connection)


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionError("closed")
    return data


def main() -> None:
    stop = threading.Event()

    def until_stdin_ends() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stop.set()

    threading.Thread(target=until_stdin_ends, daemon=True).start()
    host, port, *every = sys.argv[1:]
    print(json.dumps(probe(host, int(port), stop, every_s=float(every[0]) if every else EVERY_S)))


if __name__ == "__main__":
    main()
