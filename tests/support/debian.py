"""Programs of Debian packages for tests that need the real thing: taken from PATH, otherwise unpacked below ``.venv``.

Nothing is installed into the system. Where neither works, the test fails with one line that names the package.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / ".venv" / "debian"


@dataclass(frozen=True, slots=True)
class Program:
    """*path* is to be started with *env* beside the usual environment."""

    path: Path
    env: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.env}


_PLACES = ("usr/sbin", "usr/bin", "sbin", "bin")


def debian_program(name: str, package: str, places: Sequence[str] = _PLACES) -> Program:
    """The program *name*, which *package* brings; where it is unpacked, in one of *places*."""
    if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return Program(Path(found), {})
    folder = ROOT / package
    ROOT.mkdir(parents=True, exist_ok=True)
    with (ROOT / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers run side by side
        if not folder.exists():
            _unpack(package, folder)
    for place in places:
        if (path := folder / place / name).exists():
            return Program(path, {"LD_LIBRARY_PATH": ":".join(map(str, _libraries(folder)))})
    pytest.fail(f"the Debian package {package} has no program {name}", pytrace=False)


def _libraries(folder: Path) -> list[Path]:
    """The folders of libraries; some stand below the usual one, where a library of their package looks for them."""
    usual = folder / "usr/lib" / (sysconfig.get_config_var("MULTIARCH") or "")
    return [usual, *sorted({path.parent for path in usual.glob("*/lib*.so*")})]


def _unpack(package: str, folder: Path) -> None:
    """Fetch *package*, and what it needs that this system lacks."""
    work = folder.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        if _apt(work, "-s", "install", "--no-install-recommends", package).returncode:
            _apt(work, "update")
        simulated = _apt(work, "-s", "install", "--no-install-recommends", package)
        wanted = sorted(set(re.findall(r"^Inst (\S+)", simulated.stdout, re.MULTILINE)))
        fetched = wanted and _apt(work, "download", *wanted)
        if not fetched or fetched.returncode:
            pytest.fail(f"needs the Debian package {package}, which could not be fetched", pytrace=False)
        for archive in work.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, work / "root"], check=True, capture_output=True)
        (work / "root").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _apt(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["apt-get", "-q", *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess([], 1, "", str(error))
