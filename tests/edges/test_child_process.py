"""A child process that ends bit by bit, on the loop that the service runs on."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.edges.child_process import ChildEnded, ChildProcess

BOUND_S = 10.0

# What it started keeps its output open, so that its end is not known at once.
SURVIVED = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdin=-3);"
    " print('ready', flush=True); time.sleep(60)"
)


class Hearing:
    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.how = ""

    def output(self, data: bytes) -> None:
        self.heard.set()

    def errors(self, data: bytes) -> None:
        pass

    def ended(self, how: str) -> None:
        self.how = how


def runners() -> list[Any]:
    found = [pytest.param(asyncio.run, id="asyncio")]
    if sys.platform != "win32":
        import uvloop

        found.append(pytest.param(uvloop.run, id="uvloop"))
    return found


@pytest.mark.parametrize("run", runners())
def test_what_takes_no_input_any_more_has_ended_for_who_writes_though_its_end_is_not_known(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """The soak found it: uvloop raises when the pipe is closed already and the end of the process is not known yet."""

    async def play() -> None:
        hearing = Hearing()
        child = await ChildProcess.start([sys.executable, "-c", SURVIVED], {}, None, hearing, grace_s=0.1)
        try:
            async with asyncio.timeout(BOUND_S):
                await hearing.heard.wait()
                assert child._transport is not None
                os.kill(child._transport.get_pid(), signal.SIGKILL)
                with pytest.raises(ChildEnded):
                    while True:
                        await child.writable()
                        child.write(b"x")
                        await asyncio.sleep(0)
                child.write(b"nothing happens")
        finally:
            await child.stop()

    run(play())
