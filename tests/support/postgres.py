"""A real PostgreSQL for tests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port


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
    port = free_port()
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={home} -c fsync=off"
    subprocess.run([tools / "pg_ctl", "-D", home / "data", "-w", "-l", home / "log", "-o", options, "start"], **run)
    try:
        yield f"postgresql://audit@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([tools / "pg_ctl", "-D", home / "data", "-m", "immediate", "stop"], **run)
        shutil.rmtree(home, ignore_errors=True)
