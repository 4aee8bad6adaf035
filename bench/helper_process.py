"""A module of the benchmarks as a process of its own, which says what is asked of it in lines."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.catalogs import ROOT


@asynccontextmanager
async def helper_process(
    module: str, *args: str, line: Sequence[str] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs the module while the context is open, with pipes for stdin and stdout. *line* starts it in another way."""
    process = await asyncio.create_subprocess_exec(
        *(line or (sys.executable, "-m", module, *args)),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**26,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def next_line(process: asyncio.subprocess.Process, within_s: float) -> str:
    """Returns the next line of stdout, without blanks around it. Raises TimeoutError."""
    if process.stdout is None:
        raise RuntimeError("no pipe")
    async with asyncio.timeout(within_s):
        return (await process.stdout.readline()).decode().strip()
