"""One client of the matrix: a process in its own environment that does what it is told, over JSON lines.

Commands, by ``do``: ``connect``, ``list``, ``call``, ``cancel`` (when the first progress comes), ``resources``,
``templates``, ``read``, ``updated`` (subscribe, call, wait for the notification), ``prompts``, ``prompt``,
``complete``, ``sessions`` (so many connections at once).
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).parent / "clients"
_BOUND_S = 40.0
_LINE_LIMIT = 16 * 1024 * 1024


class Failed(Exception):
    """The client reported an error; *code* and *data* are those of the protocol, if it shows them."""

    def __init__(self, message: str, code: object = None, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Driver:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, command: str, **order: object) -> Any:
        """Raises Failed for an error of the client, TimeoutError if it does not answer in time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": command, **order}).encode() + b"\n")
        async with asyncio.timeout(_BOUND_S):
            while line := await self._process.stdout.readline():
                with suppress(ValueError):
                    reply = json.loads(line)
                    break
            else:
                raise Failed("the client ended")
        if "error" in reply:
            raise Failed(reply["error"], reply.get("code"), reply.get("data"))
        return reply["ok"]


@asynccontextmanager
async def driver(line: Sequence[str | Path], env: Mapping[str, str], stderr: Path) -> AsyncIterator[Driver]:
    """Starts the command *line*; what it writes to stderr goes to a file."""
    with stderr.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *line,
            cwd=CLIENTS,
            env={**os.environ, **env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=_LINE_LIMIT,
        )
    try:
        yield Driver(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
