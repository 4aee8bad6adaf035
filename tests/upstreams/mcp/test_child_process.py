"""A child process that ends bit by bit, on the loop that the service runs on."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.upstreams.mcp.child_process import ChildProcess

BOUND_S = 30.0

# What it started keeps its output open, so that its end is not known at once.
SURVIVED = (
    "import subprocess, sys, signal;"
    " subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], stdin=-3);"
    " print('ready', flush=True); signal.pause()"
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


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@asynccontextmanager
async def started(
    code: str, hearing: Hearing, env: Mapping[str, str] | None = None, grace_s: float = 0.1
) -> AsyncIterator[ChildProcess]:
    child = await ChildProcess.start([sys.executable, "-c", code], env or {}, None, hearing, grace_s=grace_s)
    try:
        async with asyncio.timeout(BOUND_S):
            yield child
    finally:
        await child.stop()


async def test_what_takes_no_input_any_more_has_ended_for_who_writes_though_its_end_is_not_known() -> None:
    """The soak found it: uvloop raises when the pipe is closed already and the end of the process is not known yet."""
    hearing = Hearing()
    async with started(SURVIVED, hearing) as child:
        await hearing.heard.wait()
        assert child._transport is not None
        os.kill(child._transport.get_pid(), signal.SIGKILL)
        while await child.writable():
            child.write(b"x")
            await asyncio.sleep(0)
        child.write(b"nothing happens")


async def test_one_that_ends_while_it_is_started_is_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soak found it: the input can be closed before anybody has used it."""
    loop = asyncio.get_running_loop()
    start = loop.subprocess_exec

    async def start_and_lose(*args: Any, **kwargs: Any) -> Any:
        transport, protocol = await start(*args, **kwargs)
        os.kill(transport.get_pid(), signal.SIGKILL)
        transport.get_pipe_transport(0).close()  # type: ignore[union-attr]  # its input is a pipe
        async with asyncio.timeout(BOUND_S):
            await protocol._exited.wait()
        return transport, protocol

    loop_with_loss: Any = type("Loop", (), {"subprocess_exec": staticmethod(start_and_lose)})()
    monkeypatch.setattr("wicketgate.upstreams.mcp.child_process.asyncio.get_running_loop", lambda: loop_with_loss)
    starting = ChildProcess.start([sys.executable, "-c", SURVIVED], {}, None, Hearing(), grace_s=0.1)
    task = asyncio.ensure_future(starting, loop=loop)
    await asyncio.sleep(0)
    monkeypatch.undo()
    child = await task
    assert not await child.writable()
    await child.stop()


LISTS_ITS_FILES_AND_CLOSES_ITS_OUTPUT = (
    "import os, signal\nprint(*sorted(int(fd) for fd in os.listdir('/proc/self/fd')), flush=True)\nos.close(1)\n"
    "signal.pause()"
)


@requirement("UP-265")
async def test_a_child_has_its_three_pipes_once_and_one_that_closes_its_output_and_lives_has_ended() -> None:
    class Listening(Hearing):
        files = b""

        def output(self, data: bytes) -> None:
            self.files += data

        def ended(self, how: str) -> None:
            self.how = how
            self.heard.set()

    hearing = Listening()
    inherited = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    command = [sys.executable, "-c", LISTS_ITS_FILES_AND_CLOSES_ITS_OUTPUT]
    child = await ChildProcess.start(command, {}, None, hearing, grace_s=0.1)
    try:
        async with asyncio.timeout(BOUND_S):
            await hearing.heard.wait()
    finally:
        await child.stop()
        os.close(inherited)
    # The fourth is that of the listing.
    assert (hearing.files, hearing.how) == (b"0 1 2 3\n", "it closed its input or output")


TALKS_AND_LISTENS = (
    "import sys; print('ready', flush=True); line = sys.stdin.readline();"
    " print('x' * 500_000, flush=True); sys.stdin.read()"
)


async def test_what_a_child_leaves_unread_is_bounded_and_its_output_can_be_left_for_a_while() -> None:
    hearing = Hearing()
    async with started(TALKS_AND_LISTENS, hearing) as child:
        await hearing.heard.wait()
        hearing.heard.clear()
        child.rest(0.05)
        child.rest(60)  # it rests already
        child.write(b"go\n")
        await hearing.heard.wait()
        for _ in range(20):
            child.write(b"y" * 1_000_000)
        assert child._stdin is not None
        assert child._stdin.get_write_buffer_size() < 6_000_000
        child.rest(60)


@pytest.mark.parametrize("order", list(permutations(("output", "process", "stderr"))))
@requirement("UP-11")
async def test_its_end_is_told_after_its_last_words_in_whatever_order_the_signs_come(order: tuple[str, ...]) -> None:
    """``sh -c "echo boom >&2; exit 3"``: its exit and the end of its output showed before its stderr was read."""
    said: list[str] = []

    class Said(Hearing):
        def errors(self, data: bytes) -> None:
            said.append(data.decode())

        def ended(self, how: str) -> None:
            said.append("ended")

    def last_words() -> None:
        child.pipe_data_received(2, b"boom")
        child.pipe_connection_lost(2, None)

    child = ChildProcess(Said(), 0.1)
    signs: dict[str, Callable[[], None]] = {
        "output": lambda: child.pipe_connection_lost(1, None),
        "process": child.process_exited,
        "stderr": last_words,
    }
    for sign in order:
        signs[sign]()
    assert said == ["boom", "ended"]


async def test_a_process_that_is_left_behind_with_its_stderr_does_not_hide_its_end() -> None:
    ended = asyncio.Event()

    class Waiting(Hearing):
        def ended(self, how: str) -> None:
            ended.set()

    child = ChildProcess(Waiting(), 0.1)
    child.process_exited()
    child.pipe_connection_lost(1, None)
    async with asyncio.timeout(BOUND_S):
        await ended.wait()


@requirement("OPS-142")
async def test_haste_ends_the_grace_of_a_child_that_is_being_ended() -> None:
    haste = asyncio.Event()
    ignoring = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    child = await ChildProcess.start(ignoring, {}, None, Hearing(), grace_s=10 * BOUND_S, haste=haste)
    stopping = asyncio.create_task(child.stop())
    await asyncio.sleep(0)
    haste.set()
    async with asyncio.timeout(BOUND_S):
        await stopping


ECHOES_READS = (
    "import os\nprint('ready', flush=True)\nwritten = open(os.environ['READ'], 'ab', 0)\n"
    "while data := os.read(0, 1_000_000): written.write(data); os.write(1, b'%d\\n' % len(data))"
)


class Reading(Hearing):
    def __init__(self) -> None:
        super().__init__()
        self.said = b""

    def output(self, data: bytes) -> None:
        self.said += data
        super().output(data)


@requirement("FACE-141")
async def test_what_is_written_in_one_turn_of_the_loop_comes_in_one_piece_and_in_order(tmp_path: Path) -> None:
    read = tmp_path / "read"

    reading = Reading()
    env = {"READ": str(read)}
    child = await ChildProcess.start([sys.executable, "-c", ECHOES_READS], env, None, reading, grace_s=BOUND_S)

    async def said(text: bytes) -> None:
        while not reading.said.endswith(text):
            reading.heard.clear()
            await reading.heard.wait()

    try:
        async with asyncio.timeout(BOUND_S):
            await said(b"ready\n")
            for number in range(32):
                child.write(b"%02d" % number)
            await said(b"\n64\n")
            # What waits goes out before its input is closed.
            child.write(b"last")
    finally:
        await child.stop()
    assert read.read_bytes() == b"".join(b"%02d" % number for number in range(32)) + b"last"


@requirement("FACE-141")
async def test_messages_one_at_a_time_and_then_many_come_in_order(tmp_path: Path) -> None:
    read = tmp_path / "read"

    env = {"READ": str(read)}
    child = await ChildProcess.start([sys.executable, "-c", ECHOES_READS], env, None, Hearing(), grace_s=BOUND_S)
    try:
        for number in range(40):
            child.write(b"%03d" % number)
            for _ in range(3):
                await asyncio.sleep(0)
        for number in range(40, 400):
            child.write(b"%03d" % number)
    finally:
        await child.stop()
    assert read.read_bytes() == b"".join(b"%03d" % number for number in range(400))


@requirement("FACE-141")
async def test_much_in_one_turn_is_held_back_no_longer_than_its_bound() -> None:
    hearing = Hearing()
    child = await ChildProcess.start([sys.executable, "-c", SURVIVED], {}, None, hearing, grace_s=0.1)
    try:
        async with asyncio.timeout(BOUND_S):
            await hearing.heard.wait()
            assert child._stdin is not None
            for _ in range(10_000):
                child.write(b"x" * 1_000)
            # All in this turn, and nobody reads: some four megabytes are kept at most.
            assert 3_000_000 < child._stdin.get_write_buffer_size() < 5_000_000
    finally:
        await child.stop()
