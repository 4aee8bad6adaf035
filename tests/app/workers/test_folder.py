"""The folder of sockets, made by real processes, some of which are killed."""

import asyncio
import os
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.support.process import Program, program
from tests.support.requirement import requirement

KEEPING = """
import os, sys
from app.workers.folder import private_folder
with private_folder() as folder:
    if "fork" in sys.argv:
        if child := os.fork():
            print(f"worker {child}.", flush=True)
        else:
            os.read(0, 1)
            os._exit(0)
    print(f"in {folder}.", flush=True)
    os.read(0, 1)
"""


async def left_by_a_kill(parent: Path) -> Path:
    async with keeping(parent) as running:
        folder = Path((await running.wait_for(r"in (\S+)\.\n", "stdout"))[1])
        await running.stop(signal.SIGKILL)
    assert folder.is_dir()
    return folder


def keeping(parent: Path, *words: str) -> AbstractAsyncContextManager[Program]:
    env = {"XDG_RUNTIME_DIR": str(parent)}
    return program("-c", KEEPING, *words, env=env, stdin=asyncio.subprocess.PIPE)


@requirement("OPS-199", "OPS-337")
async def test_a_folder_left_by_a_kill_goes_with_the_next_start_and_others_stay(tmp_path: Path) -> None:
    left = await left_by_a_kill(tmp_path)
    (left / "worker-0.sock").touch()
    elsewhere = tmp_path / "wicketgate-notes"
    elsewhere.mkdir()
    (elsewhere / "notes").write_text("of a person")
    linked = tmp_path / "wicketgate-link"
    linked.symlink_to(elsewhere)
    async with keeping(tmp_path) as first:
        mine = Path((await first.wait_for(r"in (\S+)\.\n", "stdout"))[1])
        assert not left.exists()
        async with keeping(tmp_path) as second:
            other = Path((await second.wait_for(r"in (\S+)\.\n", "stdout"))[1])
            assert mine.is_dir()
            assert other != mine
            assert mine.stat().st_mode & 0o777 == 0o700
            assert await second.stop(signal.SIGINT) != 0
        assert not other.exists()
        assert mine.is_dir()
    assert (elsewhere / "notes").read_text() == "of a person"
    assert linked.is_symlink()


@requirement("OPS-337")
async def test_a_folder_that_a_worker_still_has_stays_though_its_supervisor_was_killed(tmp_path: Path) -> None:
    async with keeping(tmp_path, "fork") as running:
        folder = Path((await running.wait_for(r"in (\S+)\.\n", "stdout"))[1])
        worker = int((await running.wait_for(r"worker (\d+)\.\n", "stdout"))[1])
        os.kill(running.process.pid, signal.SIGKILL)
        try:
            async with keeping(tmp_path) as second:
                await second.wait_for(r"in (\S+)\.\n", "stdout")
                assert folder.is_dir()
        finally:
            os.kill(worker, signal.SIGKILL)
    async with keeping(tmp_path) as third:
        await third.wait_for(r"in (\S+)\.\n", "stdout")
        assert not folder.exists()
