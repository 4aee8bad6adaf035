"""The place of a worker among those of one service."""

import signal
from dataclasses import dataclass
from pathlib import Path

from app.local_key import LocalKey
from app.workers.load import Loads

READY = b"ready\n"
"""The report of a worker that serves."""
CUT = signal.SIGUSR2
"""Ends a worker at once. A second SIGTERM does not, since a service manager may send one to every process."""


@dataclass(frozen=True, slots=True)
class Place:
    """*number* of *count* workers, from 0 on, started for the *starts*-th time. *folder* holds the sockets on which the
    workers reach each other, and is open to this user alone.

    *report* is the descriptor on which the supervisor is told that the worker is ready, or why it cannot be.
    *lifeline* is one that ends with the supervisor. *loads* are the connections of all workers. *local* is the key of a
    service without keys. *owner* is the socket of the process that runs stdio servers; None where each worker runs its
    own.
    """

    number: int
    count: int
    starts: int
    folder: Path
    report: int
    lifeline: int
    loads: Loads
    local: LocalKey | None = None
    owner: Path | None = None

    def socket_of(self, number: int) -> Path:
        """Returns where worker *number* answers its peers."""
        return self.folder / f"worker-{number}.sock"

    def door_of(self, number: int) -> Path:
        """Returns where worker *number* takes requests that others forward."""
        return self.folder / f"door-{number}.sock"
