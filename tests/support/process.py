"""The program as a process of its own, started as a user would, and what it wrote."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.until import until
from tests.support.warm_start import WarmProcess, warm_process

ROOT = Path(__file__).resolve().parents[2]

WARM = ("-c", "app", "uvicorn", "examples", "bench", "tests")
"""Programs that are started warm, and packages of such."""
PASSED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update({"LISTEN_FDS": "1", **os.environ, "LISTEN_PID": str(os.getpid())})
os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])
"""
START_BOUND_S = 40.0
STOP_BOUND_S = 40.0


class Program:
    """*stdout* and *stderr* grow while it runs."""

    def __init__(self, process: asyncio.subprocess.Process | WarmProcess) -> None:
        self.process = process
        self.stdout = ""
        self.stderr = ""
        self._grew = asyncio.Condition()
        self._readers = [asyncio.create_task(self._read("stdout")), asyncio.create_task(self._read("stderr"))]

    async def wait_for(self, pattern: str, stream: str = "stderr", bound_s: float = START_BOUND_S) -> re.Match[str]:
        """The first match in what was written so far, or will be. An end of the program without one is a failure."""
        async with asyncio.timeout(bound_s), self._grew:
            while True:
                if match := re.search(pattern, getattr(self, stream)):
                    return match
                if all(reader.done() for reader in self._readers):
                    raise AssertionError(f"ended without {pattern!r}:\n{self.stderr[-3000:]}\n{self.stdout[-3000:]}")
                await self._grew.wait()

    def logs(self) -> list[dict[str, Any]]:
        """Every line of stdout, each of which must be one JSON object."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(how)
        return await self.ended()

    async def ended(self, bound_s: float = STOP_BOUND_S) -> int:
        async with asyncio.timeout(bound_s):
            await asyncio.gather(*self._readers)
            return await self.process.wait()

    async def _read(self, name: str) -> None:
        stream: asyncio.StreamReader = getattr(self.process, name)
        while data := await stream.read(65_536):
            async with self._grew:
                setattr(self, name, getattr(self, name) + data.decode("utf-8", "replace"))
                self._grew.notify_all()
        async with self._grew:
            self._grew.notify_all()


@asynccontextmanager
async def program(
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
    cwd: Path = ROOT,
    files: int | None = None,
    passed: int | None = None,
    cold: bool = False,
) -> AsyncIterator[Program]:
    """Run ``python -m ARGS`` in the checkout, or in *cwd*; killed, with its group, if it still runs at the end.
    ``-c`` and the text of a program may stand in ARGS, as for Python.

    With ``stdin=PIPE`` its input stays open as long as the context. It may open *files* files, and has the descriptor
    *passed* as systemd passes a socket; ``LISTEN_FDS`` of *env* says otherwise than one. Our own programs are started
    warm, but not with *cold*, nor with variables that Python reads at its start.
    """
    if args[0].partition(".")[0] in WARM and not cold and not any(name.startswith("PYTHON") for name in env or {}):
        whole = {**os.environ, "PYTHONWARNINGS": "default", **(env or {})}
        async with _running(await warm_process(args, str(cwd), whole, stdin, files, passed)) as running:
            yield running
        return
    line: tuple[str, ...] = (sys.executable, *(() if args[0] == "-c" else ("-m",)), *args)
    if passed is not None:
        line = (sys.executable, "-c", PASSED, str(passed), *args)
    if files is not None:
        line = ("bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", *line)
    given = () if passed is None else (passed,)
    async with command(*line, folder=cwd, env=env, stdin=stdin, pass_fds=given) as running:
        yield running


async def outcome(*args: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> tuple[int, str, str]:
    """Runs ``program`` to its end; returns its exit code and what it wrote to stdout and stderr."""
    async with program(*args, env=env, cwd=cwd) as running:
        code = await running.ended()
    return code, running.stdout, running.stderr


@asynccontextmanager
async def command(
    *line: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
    pass_fds: Collection[int] = (),
) -> AsyncIterator[Program]:
    """Run the command *line* in *folder*, under the same care as ``program``."""
    process = await asyncio.create_subprocess_exec(
        *line,
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "default", **(env or {})},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    async with _running(process) as running:
        yield running


@asynccontextmanager
async def _running(process: asyncio.subprocess.Process | WarmProcess) -> AsyncIterator[Program]:
    running = Program(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and the loop does not know yet
                os.killpg(process.pid, signal.SIGKILL)
        await running.ended()


def children(pid: int) -> list[int]:
    """Process ids of all that descend from *pid* now (Linux)."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, wave = [], [pid]
    while wave:
        wave = [child for child, parent in parents.items() if parent in wave]
        found += wave
    return found


async def stand_still(pid: int) -> None:
    """Stops the process, and returns when it has stopped: until then it may accept a connection."""
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def alive(pid: int) -> bool:
    """Returns whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
