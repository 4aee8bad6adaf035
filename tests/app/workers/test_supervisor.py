"""The supervisor with workers that do nothing but what the test needs: real processes, without a gate."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.process import Program, alive, program
from tests.support.requirement import requirement
from tests.support.until import until

SERVING = """
import os, select, signal, sys
from pathlib import Path
from app.workers.place import CUT
from app.workers.supervisor import Role, Supervisor
from app.logs import plain_logs
from wicketgate.errors import ConfigError

folder = Path(sys.argv[1])
mode = sys.argv[2]

def say(text):
    os.write(1, (text + "\\n").encode())

def body(name):
    def run(starts, report, lifeline):
        heard = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, CUT):
            signal.signal(number, lambda number, _: heard.append(number))
        woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        say(f"{name} {starts} is {os.getpid()}")
        if mode == "wrong":
            raise ConfigError("storage.url is wrong")
        if mode == "vain":
            return 7
        os.write(report, b"ready\\n")
        while True:
            found = select.select([woken, lifeline], [], [])[0]
            if lifeline in found:
                say(f"{name} is alone")
                return 0
            os.read(woken, 64)
            while heard:
                number = signal.Signals(heard.pop(0))
                say(f"{name} heard {number.name}")
                if number == CUT or (mode == "quick" and number != signal.SIGHUP):
                    return 0
    return run

roles = [Role("one", body("one")), Role("two", body("two"))]
with plain_logs("info", str, "json"):
    try:
        code = Supervisor(roles, drain_s=600, ready=lambda: say("all ready"), early=None).run()
    except ConfigError as error:
        say(f"wrong: {error}")
        code = 1
say("over")
sys.exit(code)
"""


@asynccontextmanager
async def supervised(folder: Path, mode: str) -> AsyncIterator[Program]:
    async with program("-c", SERVING, str(folder), mode) as running:
        yield running


async def pid_of(running: Program, name: str, starts: int) -> int:
    return int((await running.wait_for(rf"{name} {starts} is (\d+)", "stdout"))[1])


@requirement("OPS-177", "OPS-178")
async def test_a_reload_reaches_all_who_serve_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    async with supervised(tmp_path, "quick") as running:
        await running.wait_for("all ready", "stdout")
        running.process.send_signal(signal.SIGHUP)
        for name in ("one", "two"):
            await running.wait_for(f"{name} heard SIGHUP", "stdout")

        os.kill(await pid_of(running, "two", 1), signal.SIGKILL)
        second = await pid_of(running, "two", 2)
        assert alive(second)
        assert await running.stop() == 0
        assert running.stdout.count("all ready") == 1
        told = running.stdout
        assert re.search(r"two \(process \d+\) has ended by signal 9; started again in 0\.1 s", told)


@requirement("OPS-177")
async def test_the_first_stop_asks_all_and_the_second_cuts_them(tmp_path: Path) -> None:
    async with supervised(tmp_path, "slow") as running:
        await running.wait_for("all ready", "stdout")
        running.process.send_signal(signal.SIGTERM)
        for name in ("one", "two"):
            await running.wait_for(f"{name} heard SIGTERM", "stdout")
        assert "SIGUSR2" not in running.stdout
        assert await running.stop() == 0
        assert running.stdout.count("heard SIGUSR2") == 2


@requirement("OPS-175", "OPS-178")
async def test_a_mistake_ends_the_start_with_one_message_and_starts_in_vain_end(tmp_path: Path) -> None:
    async with supervised(tmp_path, "wrong") as wrong, supervised(tmp_path, "vain") as vain:
        assert await wrong.ended() == 1
        assert wrong.stdout.count("wrong: storage.url is wrong") == 1
        assert "has ended" not in wrong.stdout
        await vain.wait_for(r"one 4 is", "stdout")
        assert await vain.stop() == 0


@requirement("OPS-179")
async def test_workers_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    async with supervised(tmp_path, "slow") as running:
        await running.wait_for("all ready", "stdout")
        pids = [await pid_of(running, name, 1) for name in ("one", "two")]
        running.process.send_signal(signal.SIGKILL)
        await asyncio.gather(*(running.wait_for(f"{name} is alone", "stdout") for name in ("one", "two")))
        await running.ended()
        await until(lambda: not any(map(alive, pids)), bound_s=40)
