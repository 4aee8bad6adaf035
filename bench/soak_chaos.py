"""Faults that the soak brings upon upstreams: processes are killed, stopped for a while, and started again."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.catalogs import ROOT
from bench.soak_server import openapi_document
from bench.soak_tools import SERVER
from tests.support.ports import free_port
from tests.support.process import children

_NAMES = ("alpha", "bravo", "charlie", "delta", "foxtrot", "golf", "hotel", "india", "juliet", "kilo", "lima", "mike")
_KINDS = ("stdio", "http", "sdk", "openapi", "python", "stdio", "http", "stdio", "http", "sdk")
_OF_OURS = {"http": "--http", "openapi": "--rest"}
"""Kinds whose process the soak starts itself, and how."""


@dataclass
class Upstream:
    """*folder* is for what its settings name. The gateway starts the servers over stdio."""

    name: str
    kind: str
    folder: Path
    port: int = 0
    process: asyncio.subprocess.Process | None = None
    busy: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        match self.kind:
            case "http":
                return {"name": self.name, "url": f"http://127.0.0.1:{self.port}/mcp"}
            case "openapi":
                base = f"http://127.0.0.1:{self.port}"
                return {"name": self.name, "openapi": str(self._document), "base_url": base}
            case "python":
                return {"name": self.name, "python": "bench.soak_tools:registry", "cwd": str(ROOT)}
        command = [sys.executable, "-m", "bench.soak_server", self.name, *(["--sdk"] if self.kind == "sdk" else [])]
        return {"name": self.name, "command": command, "cwd": str(ROOT)}

    @property
    def _document(self) -> Path:
        return self.folder / f"{self.name}.json"

    async def start(self) -> None:
        if self.kind == "openapi" and self.process is None:
            self._document.write_text(json.dumps(openapi_document(self.name)))
        if option := _OF_OURS.get(self.kind):
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.soak_server", self.name, option, str(self.port), cwd=ROOT
            )

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def pid(self, gateway: int) -> int | None:
        """Of the process that serves now."""
        if self.kind in _OF_OURS:
            return self.process.pid if self.process and self.process.returncode is None else None
        wanted = f"\0bench.soak_server\0{self.name}\0".encode()
        for pid in children(gateway):
            with suppress(OSError):
                if wanted in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return None


def make_upstreams(count: int, folder: Path) -> list[Upstream]:
    upstreams: list[Upstream] = []
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        if kind == "python" and number >= len(_KINDS):
            kind = "stdio"  # there is one registry
        name = SERVER if kind == "python" else _NAMES[number % len(_NAMES)]
        if number >= len(_NAMES):
            name += str(number)
        upstreams.append(Upstream(name, kind, folder, free_port() if kind in _OF_OURS else 0))
    return upstreams


@dataclass
class Chaos:
    upstreams: list[Upstream]
    gateway: int
    every_s: float
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    async def rage(self, stop: asyncio.Event) -> None:
        """One upstream every few seconds, several under way at once; all run again when this returns."""
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.chance.uniform(0.5, 1.5) * self.every_s):
                        await stop.wait()
                    return
                free = [upstream for upstream in self.upstreams if upstream.kind != "python" and not upstream.busy]
                if free:
                    tasks.create_task(self._strike(self.chance.choice(free)))

    async def _strike(self, upstream: Upstream) -> None:
        pid = upstream.pid(self.gateway)
        if pid is None:
            return  # it is being started again
        upstream.busy = True
        try:
            if self.chance.random() < 0.3:
                await self._hold(pid)
            else:
                how = self.chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
                self.done[f"{how.name} {upstream.kind}"] += 1
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
                if upstream.process is not None:
                    await upstream.process.wait()
                    await asyncio.sleep(self.chance.choice([0, 0.5, 2]))
                    await upstream.start()
        finally:
            upstream.busy = False

    async def _hold(self, pid: int) -> None:
        self.done["SIGSTOP"] += 1
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(self.chance.uniform(0.5, 5))
            os.kill(pid, signal.SIGCONT)
