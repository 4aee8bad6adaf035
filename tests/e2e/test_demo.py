"""The demo that `make run` starts, as a new user meets it: true answers, and nothing left behind (issue: make run)."""

import asyncio
import re
import signal
import subprocess
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import httpx

from tests.support.process import ROOT, Program, alive, children, program
from tests.support.requirement import requirement
from tests.support.service import chat_body, frames
from tests.support.until import until

STOP_WITHIN_S = 5.0


async def ask(running: Program, question: str) -> str:
    """The answer's text; the stream must end in ``done``."""
    found = await running.wait_for(r'curl -N (http://\S+)/engine/chat -H "Authorization: (Bearer \S+)"')
    headers = {"Authorization": found.group(2)}
    async with httpx.AsyncClient(base_url=found.group(1), headers=headers, trust_env=False, timeout=30) as http:
        stream = frames((await http.post("/engine/chat", json=chat_body(question))).text)
    assert stream[-1][0] == "done", stream[-1]
    return "".join(data["content"] for event, data in stream if event == "text-delta")


@requirement("OPS-16", "OPS-99", "OPS-100", "CHAT-85")
async def test_the_demo_answers_truly_and_leaves_nothing_behind() -> None:
    async with program("examples.demo", "--port", "0") as running:
        tokyo = await ask(running, "What time is it in Tokyo?")
        now = datetime.now(ZoneInfo("Asia/Tokyo"))
        shown = re.match(r"It is (\d\d:\d\d) on (\w+) in Asia/Tokyo \((\S+)\)\.", tokyo)
        assert shown is not None, tokyo
        moment = datetime.fromisoformat(shown[3])
        assert abs(moment - now) < timedelta(minutes=1)
        assert (shown[1], shown[2]) == (f"{moment:%H:%M}", f"{moment:%A}")

        history = await ask(running, "show the last 3 commits of this repository")
        git = subprocess.run(["git", "log", "-4", "--format=%H"], cwd=ROOT, capture_output=True, text=True, check=True)
        hashes = git.stdout.split()
        # A shallow or young clone has fewer than three.
        assert all(commit in history for commit in hashes[:3])
        assert hashes[3:] == [] or hashes[3] not in history

        orders = await ask(running, "list the orders of customer cust_0007")
        assert re.search(r"^- id ord_\d+, customer id cust_0007, placed on ", orders, re.MULTILINE)
        assert "cust_0008" not in orders
        assert "status cancelled" in await ask(running, "cancel order ord_0012")
        assert "ord_0012 is cancelled" in await ask(running, "cancel order ord_0012")

        export = await ask(running, "export all orders")
        assert export.startswith("id,customer_id,customer,country,")
        assert re.search(r"beginning of \d{3},\d{3} characters", export)
        assert "scripted demo model" in export.lower()

        family = children(running.process.pid)
        assert len(family) >= 3
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await running.stop(signal.SIGINT) == 0
        assert loop.time() - started < STOP_WITHIN_S
    assert not [pid for pid in family if alive(pid)]
    # The greeting in a pipe: plain, and short.
    assert "Traceback" not in running.stderr
    assert "\x1b" not in running.stderr
    assert re.search(r"time +2 tools .*\n.*git +\d+ tools .*\n.*shop +71 tools ", running.stderr)
    assert len(running.stderr.splitlines()) <= 25
    lines = running.logs()
    assert not [line for line in lines if line["component"].startswith("uvicorn") or "unchanged" in line["message"]]


@requirement("OPS-16")
async def test_a_demo_that_is_killed_outright_leaves_nothing_behind_either() -> None:
    async with program("examples.demo", "--port", "0") as running:
        await running.wait_for("ready on")
        family = children(running.process.pid)
        running.process.kill()
        await until(lambda: not any(map(alive, family)))
