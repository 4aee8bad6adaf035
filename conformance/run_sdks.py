"""``make sdk``: the SDKs that generators make of ``openapi/``, and our clients, compiled strictly and against a gate.

The model is the scripted one. Exits 1 if a step fails, and 2 if a package cannot be had.
"""

import asyncio
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from conformance.environments import HOME, ROOT, exit_code, install_project, modules_of, node, npm, python_of
from conformance.processes import KEY, TIME, configuration, gate
from tests.support.process import command
from wicketgate.access.identity import hash_key

PROGRAMS = ROOT / "conformance" / "sdks"
CLIENTS = ROOT / "clients"
PAGE = ROOT / "docs" / "guide" / "sdks.md"
FOUND = "Asia/Tokyo"
"""In the answer of a chat that has run the tool."""
DONE = "\nstop\n"
"""What the programs of generated SDKs print at the event ``done``; our clients raise without one."""

_Line = list[str | Path]
_BOUND_S = 300.0
_SLOW = {"name": "slow", "python": "conformance.resting:TOOLS", "cwd": str(ROOT), "timeout_s": 120}
_ROLES = {"owner": ["careful"], "asker": ["junior"], "lead": ["lead"]}
_ACCESS = [
    {"match": "time:*", "when": "'careful' in roles", "approval": "always"},
    {"match": "time:*", "when": "'junior' in roles", "approval": {"by": "role:lead"}},
]


class Failed(Exception):
    """A step failed; its output has been printed."""


async def _step(name: str, *line: str | Path, folder: Path, env: dict[str, str] | None = None) -> str:
    """Returns what the program wrote. Raises Failed."""
    path = {"PATH": os.pathsep.join([str(node().parent), str(python_of("sdk").parent), os.environ["PATH"]])}
    async with command(*map(str, line), folder=folder, env={**path, **(env or {})}) as running:
        code = await running.ended(_BOUND_S)
    print(f"{name}: {'failed' if code else 'ok'}")
    if code:
        print(running.stdout[-5000:], running.stderr[-3000:], sep="\n")
        raise Failed(name)
    return running.stdout


async def _generate(work: Path) -> None:
    for name in ("openapi.json", "openapi-no-stream.json"):
        shutil.copy(ROOT / "openapi" / name, work)
    modules = modules_of("sdk-js")
    hey = modules / "@hey-api" / "openapi-ts" / "bin" / "run.js"
    await _step("generate with @hey-api/openapi-ts", node(), hey, "--no-log-file", folder=work)
    types: _Line = [modules / "openapi-typescript" / "bin" / "cli.js", "openapi.json", "-o", "generated/schema.d.ts"]
    await _step("generate with openapi-typescript", node(), *types, folder=work)
    python: _Line = [python_of("sdk"), "-m", "openapi_python_client", "generate", "--path", "openapi-no-stream.json"]
    python += ["--meta", "none", "--output-path", "gate_api", "--fail-on-warning"]
    await _step("generate with openapi-python-client", *python, folder=work)


async def _build(work: Path) -> None:
    """Installs our clients as their users get them."""
    folder = shutil.copytree(CLIENTS / "typescript", work / "client")
    await _step("build clients/typescript", *npm(), "pack", "--silent", folder=folder)
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        packed.extractall(work / "node_modules", filter="data")
    (work / "node_modules" / "package").rename(work / "node_modules" / "wicketgate-client")
    install_project("sdk", CLIENTS / "python")


async def _compile(work: Path) -> None:
    tsc = modules_of("sdk-js") / "typescript" / "bin" / "tsc"
    await _step("tsc --strict", node(), tsc, "-p", ".", folder=work)
    python: _Line = [python_of("sdk"), "-m", "mypy", "--strict", "openapi_python.py", "gate_api", "test_client.py"]
    await _step("mypy --strict", *python, folder=work)


async def _run(work: Path, env: dict[str, str]) -> None:
    chats: list[tuple[Path, str]] = [
        (node(), "dist/hey_api.js"),
        (node(), "dist/openapi_fetch.js"),
        (python_of("sdk"), "openapi_python.py"),
        (python_of("sdk"), "page.py"),
        (node(), "page.mjs"),
    ]
    for program, file in chats:
        written = await _step(f"chat with {file}", program, file, folder=work, env=env)
        if not all(part in written for part in (FOUND, *(() if file.startswith("page.") else (DONE,)))):
            print(written)
            raise Failed(file)
    python: _Line = [python_of("sdk"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_client.py"]
    print(await _step("test clients/python", *python, folder=work, env=env))
    print(await _step("test clients/typescript", node(), "--test", "dist/client.test.js", folder=work, env=env))


@asynccontextmanager
async def _cutting(url: str) -> AsyncIterator[str]:
    """Yields the URL of a proxy that cuts each stream after its first event."""
    host, _, port = url.removeprefix("http://").partition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))

        async def send() -> None:
            while data := await reader.read(65_536):
                far_writer.write(data)

        sending = asyncio.create_task(send())
        seen = b""
        while data := await far_reader.read(65_536):
            before, seen = len(seen), seen + data
            head = seen.find(b"\r\n\r\n")
            end = seen.find(b"\n\n", seen.find(b"event: ", head))
            if head > 0 and end > 0:
                writer.write(seen[before : end + 2])
                break
            writer.write(data)
        sending.cancel()
        far_writer.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def main() -> int:
    work = HOME / "sdk-js" / "work"
    modules_of("sdk-js")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(PROGRAMS, work)
    for test in CLIENTS.glob("*/tests/*"):
        shutil.copy(test, work)
    for language, text in re.findall(r"```(python|js)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        (work / f"page.{'py' if language == 'python' else 'mjs'}").write_text(text)
    keys = {name: f"wg_{name}_0123456789012345678901234567890123456789" for name in _ROLES}
    entries = [
        {"id": name, "sha256": hash_key(key), "actor": name, "roles": _ROLES[name]} for name, key in keys.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(
            Path(folder), [TIME, _SLOW], keys=entries, access=_ACCESS, engine={"resume": {"grace_s": 0.5}}
        )
        try:
            await _generate(work)
            await _build(work)
            await _compile(work)
            async with gate(config) as url, _cutting(url) as cut:
                env = {"WG_URL": url, "CUT_URL": cut, "WG_KEY": KEY}
                await _run(work, env | {f"{name.upper()}_KEY": key for name, key in keys.items()})
        except Failed:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main()))
