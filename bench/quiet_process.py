"""Processes whose output goes to a file: who measures them spends nothing on reading their logs."""

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from bench.catalogs import ROOT

_POLL_S = 0.05
_STOP_S = 20.0


class QuietProcess:
    def __init__(self, process: asyncio.subprocess.Process, written: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._written = written

    async def wait_for(self, pattern: str, bound_s: float = 60.0) -> re.Match[str]:
        """The first match in what it wrote. Raises RuntimeError when it ends without one, and TimeoutError."""
        async with asyncio.timeout(bound_s):
            while True:
                ended = self._process.returncode is not None
                text = self._written.read_text(errors="replace")
                if match := re.search(pattern, text):
                    return match
                if ended:
                    raise RuntimeError(f"ended without {pattern!r}: {text[-2000:]}")
                await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def quiet_process(
    *line: str, folder: Path = ROOT, env: Mapping[str, str] | None = None
) -> AsyncIterator[QuietProcess]:
    """Runs the command *line* in *folder* while the context is open."""
    with tempfile.TemporaryDirectory(prefix="wicketgate-bench-") as scratch:
        written = Path(scratch) / "written"
        with written.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *line,
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        try:
            yield QuietProcess(process, written)
        finally:
            await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()
