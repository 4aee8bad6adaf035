"""Servers over stdio in a sandbox of bubblewrap (UP-290 to UP-293)."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.commands.check import connected
from app.commands.check_findings import find
from tests.support.debian import debian_program
from tests.support.process import ROOT
from tests.support.requirement import requirement
from wicketgate.access.identity import LOCAL
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import settings_from
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.sandbox import Sandbox

HOSTILE = [sys.executable, str(ROOT / "tests" / "support" / "hostile_server.py")]


@pytest.fixture(autouse=True)
def _bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    found = debian_program("bwrap", "bubblewrap")
    monkeypatch.setenv("PATH", f"{found.path.parent}{os.pathsep}{os.environ['PATH']}")
    for name, value in found.env.items():
        monkeypatch.setenv(name, value)


class Server:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, tool: str, **arguments: Any) -> str:
        """The text of the tool, behind ``error:`` if it failed."""
        result = await self._gate.runtime.call(f"hostile:{tool}", arguments, CallContext(LOCAL, "r", "s"))
        text = "".join(block["text"] for block in result["content"])
        return f"error: {text}" if result.get("isError") else text


@asynccontextmanager
async def hostile(sandbox: Any = None, **more: Any) -> AsyncIterator[Server]:
    upstream = {"name": "hostile", "command": HOSTILE, "sandbox": {} if sandbox is None else sandbox, **more}
    async with Gate({"upstreams": [upstream]}) as gate:
        yield Server(gate)


@requirement("UP-290")
async def test_a_hostile_server_reads_no_file_and_no_process_of_others(tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("private")
    async with hostile() as server:
        for path in (tmp_path / "id_rsa", "/etc/shadow", ROOT / "pyproject.toml", Path.home() / ".ssh", "/root"):
            assert (await server("read", path=str(path))).startswith("error: ")
        assert await server("read", path=HOSTILE[1])
        seen = (await server("processes")).split()
        assert str(os.getpid()) not in seen and len(seen) < 6
        assert await server("kill", process=os.getpid()) in ("error: ProcessLookupError", "error: PermissionError")
    assert (tmp_path / "id_rsa").read_text() == "private"


@requirement("UP-290")
async def test_it_writes_only_where_it_may(tmp_path: Path) -> None:
    shown, own = tmp_path / "shown", tmp_path / "own"
    shown.mkdir()
    own.mkdir()
    (shown / "a").write_text("text")
    async with hostile({"read": [str(shown)], "write": [str(own)]}) as server:
        assert await server("read", path=str(shown / "a")) == "text"
        assert (await server("write", path=str(shown / "b"))).startswith("error: ")
        assert (await server("write", path=HOSTILE[1])).startswith("error: ")
        assert (await server("write", path=f"{sys.prefix}/odd")).startswith("error: ")
        assert await server("write", path=str(own / "b")) == "written"
        assert await server("write", path="/tmp/own") == "written"
    assert (own / "b").read_bytes() == b"x"
    assert not Path("/tmp/own").exists()


@requirement("UP-290")
async def test_it_has_no_network_unless_it_is_given_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with hostile() as server:
            assert (await server("connect", port=port)).startswith("error: ")
        async with hostile({"network": "all"}) as server:
            assert await server("connect", port=port) == "connected"


@requirement("UP-291")
async def test_memory_files_and_the_disk_have_limits(tmp_path: Path) -> None:
    limits = {"memory": "256MiB", "file_size": "1MiB", "files": 32, "write": [str(tmp_path)]}
    async with hostile(limits) as server:
        assert await server("allocate", megabytes=40) == "40 MiB"
        assert await server("allocate", megabytes=600) == "error: MemoryError"
        assert (await server("write", path=str(tmp_path / "large"), megabytes=3)).startswith("error: ")
    assert (tmp_path / "large").stat().st_size <= 2**20
    async with hostile() as server:
        # Temporary files are in memory, and bounded too.
        assert await server("write", path="/tmp/full", megabytes=400) == "error: OSError"


@requirement("UP-290")
def test_no_place_is_writable_without_a_bound_and_the_deeper_path_holds(tmp_path: Path) -> None:
    (tmp_path / "w" / "r").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "w")
    places = ("", "/dev", "/etc", str(tmp_path / "w" / "r"), str(tmp_path / "w"), "/dev/shm")
    tries = [f"{place}/x" for place in places]
    script = "; ".join(f"(: > {path}) 2>/dev/null && echo {path}" for path in tries)
    box = Sandbox(read=[str(tmp_path / "w" / "r")], write=[str(tmp_path / "link")])
    shown = subprocess.run(box.around(["/bin/sh", "-c", script], {}, None), capture_output=True, text=True, check=False)
    assert shown.stdout.split() == [f"{tmp_path}/w/x", "/dev/shm/x"]
    full = ["/bin/sh", "-c", "dd if=/dev/zero of=/dev/shm/x bs=1M count=400 2>&1 | tail -1; df -k /dev/shm | tail -1"]
    ended = subprocess.run(Sandbox().around(full, {}, None), capture_output=True, text=True, check=False)
    assert "262144" in ended.stdout


@requirement("UP-290")
def test_a_link_to_a_program_of_an_environment_is_found(tmp_path: Path) -> None:
    link = tmp_path / "server"
    link.symlink_to(f"{sys.prefix}/bin/pytest")
    command = Sandbox().around([str(link), "--version"], {}, None)
    assert "pytest" in subprocess.run(command, capture_output=True, text=True, check=False).stdout
    bash = Sandbox().around(["/bin/bash", "-c", "echo $HOME"], {"HOME": "/tmp"}, None)
    bash[bash.index("/bin/sh")] = "/bin/bash"
    ran = subprocess.run(bash, env={"HOME": "/tmp"}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "/tmp\n")


@requirement("UP-292")
@pytest.mark.parametrize(
    ("command", "cwd", "fault"),
    [
        (["/no/such"], None, FileNotFoundError),
        (["true"], "/no/such", NotADirectoryError),
        (["true", "/" + "x" * 300], None, None),
    ],
)
def test_what_is_not_there_is_an_error_of_its_own(
    command: list[str], cwd: str | None, fault: type[Exception] | None
) -> None:
    if fault is None:
        assert Sandbox().around(command, {}, cwd)
    else:
        with pytest.raises(fault):
            Sandbox().around(command, {}, cwd)


@requirement("UP-291")
def test_a_fork_bomb_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = "for at in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do sleep 9 & done; echo done"
    # The kernel limits no processes of root, and others cannot look into the folders of root.
    nobody = 65534 if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copy(shutil.which("bwrap") or "", folder)
        for library in (each for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") for each in _files(path)):
            shutil.copy(library, folder)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setenv("LD_LIBRARY_PATH", folder)
        command = Sandbox(processes=12).around(["/bin/sh", "-c", bomb], {}, None)
        ended = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=30, user=nobody)
    assert "ork" in ended.stderr and "done" not in ended.stdout, ended


def _files(folder: str) -> Iterator[Path]:
    yield from (each for each in Path(folder).glob("lib*.so*") if folder)


@requirement("UP-290")
async def test_its_children_end_with_it() -> None:
    async with hostile() as server:
        assert await server("fork", times=10) == "10 children"
    assert "sleep 60" not in await _processes()


async def _processes() -> str:
    listing = await asyncio.create_subprocess_exec("ps", "axo", "args", stdout=asyncio.subprocess.PIPE)
    return (await listing.communicate())[0].decode()


@requirement("UP-292")
async def test_without_bubblewrap_it_does_not_start_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    async with hostile() as server:
        status = server._gate.fleet.members["hostile"].upstream.status
        assert (status.phase, "sandbox cannot be made" in status.error) == ("down", True)
        assert "bubblewrap" in status.report or "bubblewrap" in status.error


@requirement("UP-292")
async def test_a_path_that_is_not_there_is_named() -> None:
    async with hostile({"read": ["/no/such/path"]}) as server:
        status = server._gate.fleet.members["hostile"].upstream.status
        assert status.phase == "down"
        assert "not found" in status.error


@requirement("UP-293")
def test_the_default_holds_for_all_that_have_none_of_their_own() -> None:
    servers = [
        {"name": "a", "command": ["a"]},
        {"name": "b", "command": ["b"], "sandbox": False},
        {"name": "c", "command": ["c"], "sandbox": {"network": "all", "read": ["/srv"]}},
        {"name": "d", "url": "http://localhost:1/mcp"},
    ]
    settings: Settings = settings_from({"sandbox": {"memory": "512MiB"}, "upstreams": servers})
    told = [None if (made := settings.sandbox_of(each)) is None else made.told() for each in settings.upstreams]
    assert told == ["network none; p=256; d=524288", None, "network all; reads /srv; p=256", None]
    with pytest.raises(ConfigError, match="sandbox"):
        settings_from({"upstreams": [{"name": "d", "url": "http://localhost:1/mcp", "sandbox": {}}]})


@requirement("UP-293")
async def test_check_shows_what_each_server_may_reach() -> None:
    servers = [
        {"name": "hostile", "command": HOSTILE, "sandbox": {"files": 64}},
        {"name": "other", "command": HOSTILE},
    ]
    settings = settings_from({"upstreams": servers})
    async with connected(settings) as gate:
        notes = (await find(settings, gate, {}, {})).notes
    assert "hostile: sandbox: network none; n=64; p=256" in notes
    assert "other: sandbox: none" in notes
