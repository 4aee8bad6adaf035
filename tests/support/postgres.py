"""A real PostgreSQL for tests."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PORTS = 5


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server of its own, from Debian's package, on a free port; its URL. Skips the test where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    tools, home = found[-1].parent, Path(tempfile.mkdtemp(prefix="wicketgate-pg-"))
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # the server refuses to run as root
        user = {"user": "postgres"}
        shutil.chown(home, "postgres")
    run: dict[str, Any] = {"cwd": home, "check": True, "timeout": 60, "stdout": subprocess.DEVNULL, **user}
    subprocess.run([tools / "initdb", "-D", home / "data", "-A", "trust", "-U", "audit", "--no-sync"], **run)
    # A port that was free may be taken by another test before the server has it.
    for attempt in range(_PORTS):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={home} -c fsync=off"
        start: list[Path | str] = [
            tools / "pg_ctl",
            "-D",
            home / "data",
            "-w",
            "-l",
            home / "log",
            "-o",
            options,
            "start",
        ]
        try:
            subprocess.run(start, **run)
            break
        except subprocess.CalledProcessError:
            if attempt == _PORTS - 1:
                raise
    try:
        yield f"postgresql://audit@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([tools / "pg_ctl", "-D", home / "data", "-m", "immediate", "stop"], **run)
        shutil.rmtree(home, ignore_errors=True)
