"""Runs of the official suite, and what they found: a check of a scenario passed, failed, warned or was skipped."""

import asyncio
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.environments import ROOT, modules_of, node
from conformance.judge import Check, Found

_LISTED = re.compile(r"^  - (\S+) \[(.*)\]$", re.MULTILINE)
_RUNNING = re.compile(r"^=== Running scenario: (\S+) ===$", re.MULTILINE)
_TIMEOUT_MS = 90_000


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    versions: frozenset[str]
    """Of the specification; empty for one of an extension."""


class Suite:
    """The pinned suite. *folder* is for the files that it writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = (node(), modules_of("suite") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")
        self._runs = 0

    async def scenarios(self, mode: str) -> list[Scenario]:
        """All of *mode*, ``server`` or ``client``, in the suite's order."""
        _, listed = await self._run("list", f"--{mode}")
        found = [(name, frozenset(versions.split(","))) for name, versions in _LISTED.findall(listed)]
        return [Scenario(name, versions - {"extension"}) for name, versions in found]

    async def against_server(self, url: str, version: str) -> Found:
        """Every scenario of *version* against the server at *url*, one after the other."""
        folder = self._next_folder()
        _, said = await self._run("server", "--url", url, "--suite", "all", "--spec-version", version, "-o", folder)
        names = _RUNNING.findall(said)
        if not names:
            raise RuntimeError(f"the suite ran nothing:\n{said[-2000:]}")
        checks = _checks(folder, "server-")
        return {name: checks.get(name) or [_no_checks(name)] for name in names}

    async def extensions(self, url: str, names: Iterable[str], version: str) -> Found:
        """Scenarios of extensions, which belong to no version, against a server that is asked in *version*."""
        found: dict[str, list[Check]] = {}
        for name in names:
            folder = self._next_folder()
            options = ["--scenario", name, "--spec-version", version, "--force"]
            await self._run("server", "--url", url, *options, "-o", folder)
            found[name] = _checks(folder, "server-").get(name) or [_no_checks(name)]
        return found

    async def against_client(self, command: str, name: str, version: str) -> list[Check]:
        """One scenario, also of an extension, for the client that *command* starts."""
        folder = self._next_folder()
        options = ["--scenario", name, "--spec-version", version, "--force", "--timeout", str(_TIMEOUT_MS)]
        code, said = await self._run("client", "--command", command, *options, "-o", folder)
        checks = _checks(folder, "").get(name) or [_no_checks(name)]
        if code and all(check.good for check in checks):
            checks.append(Check("client", "FAILURE", f"the client failed: {said[-300:]}"))
        return checks

    def _next_folder(self) -> Path:
        self._runs += 1
        return self._folder / f"run-{self._runs}"

    async def _run(self, *arguments: str | Path) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, said.decode("utf-8", "replace")


def _checks(folder: Path, prefix: str) -> dict[str, list[Check]]:
    """By scenario: each has a folder, ``prefix``, its name and a time."""
    found: dict[str, list[Check]] = {}
    for file in folder.rglob("checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", file.parent.relative_to(folder).as_posix()).removeprefix(prefix)
        read: Sequence[dict[str, str]] = json.loads(file.read_text())
        found[name] = [Check(check["id"], check["status"], check.get("errorMessage") or "") for check in read]
    return found


def _no_checks(name: str) -> Check:
    return Check(name, "FAILURE", "the suite could not run it")
