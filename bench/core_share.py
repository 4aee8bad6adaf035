"""Processes that get a share of a core each, whatever else the machine has free (Linux control groups, as root)."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PERIOD_US = 20_000
_FIRST = Path("/sys/fs/cgroup/cpu")
_SECOND = Path("/sys/fs/cgroup")


class NoControlGroups(Exception):
    """Shares of a core cannot be given here."""


@contextmanager
def core_share(pids: Sequence[int], share: float) -> Iterator[None]:
    """Give each of *pids* *share* of a core, its later threads too. Raises NoControlGroups."""
    with ExitStack() as stack:
        for pid in pids:
            stack.enter_context(_group(pid, int(share * _PERIOD_US)))
        yield


@contextmanager
def _group(pid: int, quota_us: int) -> Iterator[None]:
    second = (_SECOND / "cgroup.controllers").exists()
    folder = (_SECOND if second else _FIRST) / f"wicketgate-bench-{os.getpid()}-{pid}"
    try:
        folder.mkdir()
        if second:
            (folder / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise NoControlGroups(f"no share of a core can be given here: {error}") from None
    try:
        yield
    finally:
        _leave(folder)


def _leave(folder: Path) -> None:
    """Put those that still run back, and remove the group."""
    for pid in (folder / "cgroup.procs").read_text().split():
        (folder.parent / "cgroup.procs").write_text(pid)
    folder.rmdir()
