"""The real process reads its configuration again, on SIGHUP and with --watch (OPS-7 to OPS-9)."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.process import ROOT, alive, children, program
from tests.support.requirement import requirement
from tests.support.served import address, serving
from tests.support.service import KEY, OPERATOR_KEY, READER_KEY, chat_body
from tests.support.until import until
from wicketgate.access.identity import hash_key

SERVER = [sys.executable, "-m", "tests.support.odd_server"]
BOUND_S = 40.0


def write(path: Path, *names: str, key: str = KEY, **sections: Any) -> None:
    keys = [{"id": "test", "sha256": hash_key(key), "actor": "owner_1", "permissions": ["tools:*"]}]
    keys.append({"id": "ops", "sha256": hash_key(OPERATOR_KEY), "actor": "operator", "permissions": ["ops:read"]})
    upstreams = [{"name": name, "command": SERVER} for name in names]
    path.write_text(yaml.safe_dump({"auth": {"keys": keys}, "upstreams": upstreams, **sections}))


async def states(http: httpx.AsyncClient, *names: str) -> dict[str, Any]:
    """The upstreams in /readyz, once they are just these and all are ready."""
    operator = {"Authorization": f"Bearer {OPERATOR_KEY}"}

    async def upstreams() -> dict[str, Any]:
        found: dict[str, Any] = (await http.get("/readyz", headers=operator)).json()["upstreams"]
        whole = sorted(found) == sorted(names) and all(one["tools"] for one in found.values())
        return found if whole else {}

    found: dict[str, Any] = await until(upstreams, bound_s=BOUND_S)
    return found


async def status(http: httpx.AsyncClient, key: str) -> int:
    return (await http.post("/engine/chat", json=chat_body(), headers={"Authorization": f"Bearer {key}"})).status_code


@requirement("OPS-140")
async def test_sighup_during_the_start_is_heard_after_it(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    write(config, "one")
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        await running.wait_for(r"Configuration: ", "stdout")
        write(config, "one", "two")
        running.process.send_signal(signal.SIGHUP)
        async with httpx.AsyncClient(base_url=await address(running), trust_env=False) as http:
            await states(http, "one", "two")


@requirement("OPS-7", "OPS-8", "OPS-9")
async def test_sighup_applies_the_file_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    write(config, "one", "two")
    async with serving(config) as (running, http):
        await states(http, "one", "two")
        (first, second) = children(running.process.pid)
        write(config, "one", "three", key=READER_KEY, mcp={"cache_stable": True})
        running.process.send_signal(signal.SIGHUP)
        upstreams = await states(http, "one", "three")
        assert (upstreams["one"]["connections"], upstreams["three"]["connections"]) == (1, 1)
        kept = children(running.process.pid)
        assert first in kept or second in kept, "the unchanged one keeps its process"
        assert (await status(http, KEY), await status(http, READER_KEY)) == (401, 200)
        await running.wait_for(r"after a restart: mcp\.cache_stable", "stdout")

        config.write_text("upstreams: [{name: one, comand: [x]}]\n")
        running.process.send_signal(signal.SIGHUP)
        line = await running.wait_for(r".*upstreams\[0\]\.comand: unknown key.*", "stdout")
        assert "the previous one stays in force" in line.group()
        await states(http, "one", "three")
        assert sorted(children(running.process.pid)) == sorted(kept)
        assert await running.stop() == 0
        assert children(running.process.pid) == []
    assert "Traceback" not in running.stderr


@requirement("OPS-7")
async def test_with_watch_the_file_counts_as_soon_as_it_has_come_to_rest(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    write(config, "one")
    async with serving(config, "--watch") as (running, http):
        await states(http, "one")
        fresh = tmp_path / "new.yaml"  # as editors and orchestrators do it: another file takes its place
        write(fresh, "two")
        fresh.replace(config)
        await states(http, "two")
        write(config, "one", "two")
        await states(http, "one", "two")
        assert await running.stop() == 0
    assert running.stdout.count("configuration applied") == 2


async def test_watching_needs_a_file() -> None:
    async with program("app", "serve", "--watch") as running:
        assert await running.ended() == 2
    assert "--watch needs --config" in running.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="asks for a controlling terminal as Linux has it")
async def test_the_end_of_its_terminal_ends_it_and_does_not_count_as_a_reload(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    write(config, "one")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "app", "serve", "--config", str(config), "--port", "0"]

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=own_terminal
    ) as one:
        try:
            os.close(theirs)
            shown = b""
            async with asyncio.timeout(BOUND_S):
                while b"ready on" not in shown:
                    shown += await asyncio.to_thread(os.read, ours, 65_536)
            one.send_signal(signal.SIGHUP)  # the terminal is there, so this is a reload
            async with asyncio.timeout(BOUND_S):
                while b"nothing has changed" not in shown:
                    shown += await asyncio.to_thread(os.read, ours, 65_536)
            (child,) = children(one.pid)
            os.close(ours)
            assert await asyncio.to_thread(one.wait, BOUND_S) == 0
        finally:
            one.kill()
    assert not alive(child)
