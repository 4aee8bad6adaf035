"""``make conformance``: the official suite against every face in both eras, and with our connector as the client.

Prints a table, then what the baseline does not expect. Exits 1 if there is such a failure, or an entry of the baseline
that named none.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from conformance.adapter import serving_adapter
from conformance.environments import everything_server, exit_code
from conformance.judge import Check, Found, Verdict, judge, read_expected, stale
from conformance.logins import OF_LOGINS
from conformance.names import Names
from conformance.processes import KEY, configuration, gate, serving
from conformance.suite import Scenario, Suite

BASELINE = Path(__file__).with_name("baseline.yml")
FACES = ("namespaced", "gateway", "transparent", "registry")
VERSIONS = ("2025-11-25", "2026-07-28")
OLDEST = "2025-03-26"
"""In which a server may be its own issuer, without metadata."""
_FORWARD = {"forward": ["sampling", "roots"]}


@dataclass(frozen=True, slots=True)
class Behind:
    """A server behind the gate. *spoken*: the versions in which it is judged directly."""

    environment: str
    spoken: tuple[str, ...]


SERVERS = {
    "sdk-2": Behind("server-2", VERSIONS),
    "sdk-1": Behind("server-1", VERSIONS[:1]),
}
"""By the name that targets have for it."""
CLIENT = f"{sys.executable} -m conformance.connector"
_AT_ONCE = 2
_TASK_AFTER_S = 0.3
_SKILLS = "sep-2640-"


class Run:
    """*wanted* are patterns of targets: ``server/<server>/<face>/<version>``, ``direct/<server>/<version>``,
    ``client/<version>``, ``login/<version>``, ``login/extensions``, ``tasks/<face>``, ``skills/client/<version>``,
    ``skills/namespaced/<version>``."""

    def __init__(self, suite: Suite, wanted: Iterable[str], folder: Path) -> None:
        baseline: Mapping[str, Any] = yaml.safe_load(BASELINE.read_text())
        self.expected = read_expected(baseline["expected"])
        self.verdicts: dict[str, Verdict] = {}
        self._not_run = tuple(baseline["not_run"])
        self._suite = suite
        self._wanted = tuple(wanted)
        self._folder = folder

    async def servers(self) -> None:
        for server, behind in SERVERS.items():
            if not self._wants_any(f"{kind}/{server}/" for kind in ("server", "direct")):
                continue
            async with AsyncExitStack() as stack:
                url = await stack.enter_async_context(serving(everything_server(behind.environment), self._folder))
                for version in behind.spoken:
                    await self._direct(f"direct/{server}/{version}", url, version)
                config = configuration(self._folder, [{"name": "conf", "url": url, **_FORWARD}])
                adapted = await self._adapted(stack, config)
                for face in FACES:
                    for version in VERSIONS:
                        await self._direct(f"server/{server}/{face}/{version}", f"{adapted}/mcp/{face}", version)

    async def tasks(self) -> None:
        """The scenarios of tasks: plain tools behind a gate that makes a task of what takes longer than a moment."""
        line = [sys.executable, "-m", "conformance.slow_tools"]
        targets = {f"tasks/{face}": (face, VERSIONS[-1]) for face in FACES}
        await self._extension(targets, "tasks-", line, tasks={"after_s": _TASK_AFTER_S})

    async def skills(self) -> None:
        """The scenarios of skills, of the one face that has them."""
        line = [sys.executable, "-m", "tests.support.skill_server"]
        targets = {f"skills/namespaced/{version}": ("namespaced", version) for version in VERSIONS}
        await self._extension(targets, _SKILLS, line)

    async def _extension(
        self, targets: Mapping[str, tuple[str, str]], beginning: str, line: list[str], **sections: Any
    ) -> None:
        """Scenarios by the *beginning* of their names, at the face and in the version of each target."""
        wanted = {target: where for target, where in targets.items() if self._wants(target)}
        if not wanted:
            return
        scenarios = [scenario.name for scenario in await self._suite.scenarios("server") if self._is_run(scenario)]
        names = [name for name in scenarios if name.startswith(beginning)]
        config = configuration(self._folder, [{"name": "conf", "command": line}], **sections)
        async with AsyncExitStack() as stack:
            adapted = await self._adapted(stack, config)
            for target, (face, version) in wanted.items():
                self._judge(target, await self._suite.extensions(f"{adapted}/mcp/{face}", names, version))

    async def client(self) -> None:
        scenarios = [scenario for scenario in await self._suite.scenarios("client") if self._is_run(scenario)]
        skills = [scenario.name for scenario in scenarios if scenario.name.startswith(_SKILLS)]
        logins = [scenario for scenario in scenarios if scenario.name.startswith(OF_LOGINS)]
        others = [scenario for scenario in scenarios if scenario not in logins]
        for version in VERSIONS:
            for target, among in (("client", others), ("login", logins)):
                names = [one.name for one in among if version in one.versions]
                await self._clients(f"{target}/{version}", names, version)
            await self._clients(f"skills/client/{version}", skills, version)
        # Those of an extension belong to no version; those of the oldest one are asked for in it.
        await self._clients("login/extensions", [one.name for one in logins if not one.versions], VERSIONS[-1])
        oldest = [one.name for one in logins if one.versions == {OLDEST}]
        await self._clients(f"login/{OLDEST}", oldest, OLDEST)

    async def _clients(self, target: str, names: Sequence[str], version: str) -> None:
        if not self._wants(target):
            return
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> list[Check]:
            async with places:
                return await self._suite.against_client(CLIENT, name, version)

        checks = await asyncio.gather(*map(one, names))
        self._judge(target, dict(zip(names, checks, strict=True)))

    async def _adapted(self, stack: AsyncExitStack, config: Path) -> str:
        """The base URL of a proxy before a gate of *config*, for as long as *stack*."""
        base = await stack.enter_async_context(gate(config))
        names = {f"/mcp/{face}": Names(face, lambda _: "conf", frozenset({"conf"})) for face in FACES}
        return await stack.enter_async_context(serving_adapter(base, KEY, names))

    async def _direct(self, target: str, url: str, version: str) -> None:
        if self._wants(target):
            self._judge(target, await self._suite.against_server(url, version))

    def _judge(self, target: str, found: Found) -> None:
        self.verdicts[target] = verdict = judge(target, found, self.expected)
        print(_row(target, verdict), flush=True)

    def _wants(self, target: str) -> bool:
        return any(fnmatchcase(target, pattern) for pattern in self._wanted)

    def _wants_any(self, beginnings: Iterable[str]) -> bool:
        targets = [f"{begin}{rest}" for begin in beginnings for rest in _RESTS]
        return any(map(self._wants, targets))

    def _is_run(self, scenario: Scenario) -> bool:
        return not any(fnmatchcase(scenario.name, pattern) for entry in self._not_run for pattern in entry["what"])


_RESTS = [*VERSIONS, *(f"{face}/{version}" for face in FACES for version in VERSIONS)]
_WIDTHS = (42, 10, 7, 7, 7, 8, 11)


def _row(target: str, verdict: Verdict) -> str:
    unexpected = f"{len(verdict.unexpected)} new" if verdict.unexpected else "-"
    cells = (f"{verdict.clean}/{verdict.scenarios}", verdict.passed, verdict.failed, verdict.warned, verdict.skipped)
    return _line(target, *cells, unexpected)


def _line(*cells: object) -> str:
    first, *rest = (f"{cell!s:{'<' if not number else '>'}{width}}" for number, (cell, width) in _numbered(cells))
    return " ".join([first, *rest])


def _numbered(cells: Iterable[object]) -> Iterable[tuple[int, tuple[object, int]]]:
    return enumerate(zip(cells, _WIDTHS, strict=True))


async def run(wanted: Iterable[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="conformance-") as temporary:
        whole = Run(Suite(Path(temporary)), wanted, Path(temporary))
        print(_line("target", "clean", "passed", "failed", "warned", "skipped", "unexpected"))
        await whole.client()
        await whole.servers()
        await whole.tasks()
        await whole.skills()
    unexpected = [f"{target}: {what}" for target, verdict in whole.verdicts.items() for what in verdict.unexpected]
    unneeded = stale(whole.expected, whole.verdicts)
    for title, lines in (("Not in the baseline", unexpected), ("Stale in the baseline", unneeded)):
        if lines:
            print(f"\n{title}:", *lines, sep="\n  ")
    return int(bool(unexpected or unneeded))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.run_suite", description=__doc__)
    parser.add_argument(
        "wanted", nargs="*", default=["*"], help="patterns of targets, such as server/sdk-2/namespaced/*"
    )
    return exit_code(run(parser.parse_args().wanted))


if __name__ == "__main__":
    sys.exit(main())
