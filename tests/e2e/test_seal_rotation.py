"""A change of ``auth.seal_keys`` without a stop: two processes on one store, at each step (ACCESS-332, ACCESS-334)."""

import os
import re
import signal
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_held_calls import answers, text
from tests.e2e.test_calls_at_any_process import asker
from tests.e2e.test_foreign_seal_keys import refusal, ring_config, serve
from tests.support.process import Program, children
from tests.support.requirement import requirement
from tests.support.served import address

STEPS = (["a"], ["a", "b"], ["b", "a"], ["b"])
ASKS: dict[str, Any] = {"access": [{"match": "echo:*", "approval": "always"}]}
YES = {"action": "accept", "content": {}}


async def check_shared(*urls: str) -> None:
    """Checks that each process opens what the others have sealed."""
    for first, second in product(urls, repeat=2):
        question = await asker(first).call("echo__echo", {"text": "hello"})
        done = await asker(second).call("echo__echo", {"text": "hello"}, more=answers(question, YES))
        assert "hello" in text(done)


async def reload(running: Program, says: str, *, processes: int = 1) -> None:
    """Reloads, and waits until each of *processes* has written the pattern *says*."""
    before = len(re.findall(says, running.stdout))
    running.process.send_signal(signal.SIGHUP)
    await running.wait_for(rf"(?s)({says}.*){{{before + processes}}}", "stdout")


def last_worker(supervisor: int) -> int:
    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    return max(pid for pid in children(supervisor) if parent(pid) == supervisor)


@requirement("ACCESS-332", "ACCESS-334")
async def test_keys_are_changed_by_a_rolling_restart(tmp_path: Path, redis_url: str) -> None:
    folders = tmp_path / "0", tmp_path / "1"
    async with AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(serve(ring_config(each, redis_url, "a", **ASKS))) for each in folders
        ]
        urls = [await address(each) for each in running]
        for keys in STEPS[1:]:
            for at, folder in enumerate(folders):
                assert await running[at].stop() == 0
                running[at] = await stack.enter_async_context(serve(ring_config(folder, redis_url, *keys, **ASKS)))
                urls[at] = await address(running[at])
                await check_shared(*urls)
        async with serve(ring_config(tmp_path / "old", redis_url, "a")) as old:
            assert "other auth.seal_keys" in await refusal(old)


@requirement("ACCESS-332", "ACCESS-334", "ACCESS-335")
async def test_keys_are_changed_by_reloads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    folders = tmp_path / "0", tmp_path / "1"
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(serve(ring_config(each, url, "a", **ASKS))) for each in folders]
        urls = [await address(each) for each in running]
        # A ring without a key of the store changes nothing, in no part of the configuration.
        ring_config(folders[0], url, "x")
        await reload(running[0], "not applied[^\n]*belongs to a gate with other auth.seal_keys")
        await check_shared(*urls)
        for keys in STEPS[1:]:
            for each, folder in zip(running, folders, strict=True):
                ring_config(folder, url, *keys, **ASKS)
                await reload(each, "configuration applied")
                await check_shared(*urls)
        async with serve(ring_config(tmp_path / "old", url, "a")) as old:
            assert "other auth.seal_keys" in await refusal(old)
        async with serve(ring_config(tmp_path / "new", url, "b")) as new:
            await address(new)


@requirement("ACCESS-334")
@pytest.mark.parametrize("first", [["a"], []])
async def test_a_worker_that_is_replaced_after_a_change_starts_with_the_present_keys(
    tmp_path: Path, first: list[str]
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with serve(ring_config(tmp_path / "a", url, *first, **ASKS), "--workers", "2") as running:
        at = await address(running)
        for keys in [["b", *first], ["b"]][not first :]:
            ring_config(tmp_path / "a", url, *keys, **ASKS)
            await reload(running, "configuration applied", processes=2)
        os.kill(last_worker(running.process.pid), signal.SIGKILL)
        await running.wait_for(r"(?s)has ended by signal 9.*configuration read again", "stdout")
        for _ in range(8):
            await check_shared(at)
        assert "with code" not in running.stdout
        assert await running.stop() == 0
