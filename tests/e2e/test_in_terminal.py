"""The service in a terminal, as the person sees it who started it."""

import asyncio
import os
import re
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.model_server import HOLD, ModelServer, Reply, chunk
from tests.support.process import START_BOUND_S
from tests.support.requirement import requirement
from tests.support.service import chat_body
from tests.support.terminal import CTRL_C, in_terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks for a controlling terminal as Linux has it")

ECHO = {"name": "echo", "command": [sys.executable, "-m", "tests.support.echo_server"]}
# The port of a service that nobody runs.
DEAD = {"name": "db", "url": "http://127.0.0.1:9/mcp"}


def write_config(folder: Path, **sections: object) -> str:
    path = folder / "wicketgate.yaml"
    path.write_text(yaml.safe_dump({"upstreams": [ECHO, DEAD], **sections}))
    path.chmod(0o600)  # it holds a key of a model
    return str(path)


@requirement("OPS-96", "OPS-97", "OPS-98", "OPS-99")
async def test_a_start_and_a_stop_in_a_terminal(tmp_path: Path) -> None:
    async with ModelServer(Reply([chunk({"content": "One moment"}), HOLD])) as model:
        config = write_config(
            tmp_path,
            model={
                "provider": "openai-chat",
                "base_url": model.base_url,
                "model": "some-model",
                "api_key": "sk-12345678",
            },
            server={"drain_s": 30},
        )
        async with in_terminal("app", "serve", "--config", config, "--port", "0") as terminal:
            # The start: a line for each server, and what is needed next as the last.
            url = (await terminal.wait_for(r"ready on (http://\S+)")).group(1)
            await terminal.wait_for(r'"correlation_id": "hello-1"\}\}\'\n')
            start = terminal.shown
            places = [
                re.search(pattern, start)
                for pattern in (
                    r"connecting 2 upstreams",
                    r"upstream echo: connected",
                    r"ready on",
                    r"Key, for this run only: (\S+)",
                    r"curl -N",
                )
            ]
            assert all(places), start
            assert [place.start() for place in places if place] == sorted(place.start() for place in places if place)
            assert re.search(r"^\S+ warning upstream db: \S", start, re.MULTILINE), start
            for noise in ("unchanged", "startup"):
                assert noise not in start, start
            assert "\x1b[" in terminal.raw
            # A request: one line of text.
            key = re.search(r"Key, for this run only: (\S+)", start)
            assert key is not None
            headers = {"Authorization": f"Bearer {key[1]}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
                trace = {"X-Correlation-ID": "from-the-client-1"}
                assert (await http.get("/readyz", headers=trace)).status_code == 200
                line = await terminal.wait_for(r"\n(\d\d:\d\d:\d\d info    http GET /readyz 200 status=200 [^\n]*)\n")
                assert line[1].endswith(" from-the-cli")
                # A stop that has to wait says for what, and the second Ctrl-C ends it.
                async with http.stream("POST", "/engine/chat", json=chat_body("wait")) as stream:
                    assert stream.status_code == 200
                    async with asyncio.timeout(20):
                        begun = stream.aiter_bytes()
                        await anext(begun)
                    terminal.press(CTRL_C)
                    await terminal.wait_for(r"Stopping \.\.\.")
                    await terminal.wait_for(r"waiting up to 30 s for 1 stream; Ctrl-C again ends at once\n")
                    terminal.press(CTRL_C)
                    assert await terminal.ended() == 0
    end = terminal.shown[len(start) :]
    assert end.rstrip().endswith("Stopped")
    assert "Traceback" not in end
    assert "shutdown" not in end.lower()


@requirement("OPS-98")
async def test_a_stop_with_nothing_to_wait_for_says_no_more(tmp_path: Path) -> None:
    key = {"id": "first", "sha256": "0" * 64, "actor": "me", "permissions": ["*"]}
    config = write_config(tmp_path, upstreams=[DEAD], auth={"keys": [key]})
    async with in_terminal("app", "serve", "--config", config, "--port", "0", env={"NO_COLOR": "1"}) as terminal:
        await terminal.wait_for(r'"correlation_id": "hello-1"\}\}\'\n')
        start = terminal.shown
        # A key of the file was shown when it was made; the line to try refers to it.
        assert "wicketgate key new" in start
        assert 'Authorization: Bearer $WG_KEY"' in start
        terminal.press(CTRL_C)
        assert await terminal.ended() == 0
    assert terminal.shown[len(start) :].strip().removeprefix("^C").split() == ["Stopping", "...", "Stopped"]
    assert "\x1b" not in terminal.raw


@requirement("OPS-97")
async def test_a_required_server_that_is_missing_is_told_once(tmp_path: Path) -> None:
    config = write_config(tmp_path, upstreams=[{**DEAD, "required": True}])
    async with in_terminal("app", "serve", "--config", config, "--port", "0") as terminal:
        assert await terminal.ended() == 1
    assert terminal.shown.count("A required upstream is not connected (db: ") == 1


@requirement("OPS-142")
async def test_a_stop_says_that_it_waits_for_servers_and_a_second_ctrl_c_ends_them(tmp_path: Path) -> None:
    # It opens the pipe when it is deaf to the signal.
    os.mkfifo(tmp_path / "deaf")
    line = "trap '' TERM; : > \"$0\"; while :; do sleep 1; done"
    stubborn = {"name": "stubborn", "command": ["sh", "-c", line, str(tmp_path / "deaf")]}
    config = write_config(tmp_path, upstreams=[stubborn])
    async with in_terminal("app", "serve", "--config", config, "--port", "0") as terminal:
        await terminal.wait_for("connecting 1 upstream")
        async with asyncio.timeout(START_BOUND_S):
            await asyncio.to_thread((tmp_path / "deaf").read_bytes)
        terminal.press(CTRL_C)
        await terminal.wait_for(r"ending 1 server, up to 5 s; Ctrl-C again ends at once")
        terminal.press(CTRL_C)
        await terminal.wait_for("Stopped")
        assert await terminal.ended() == 0


@requirement("OPS-129")
async def test_ctrl_c_at_the_question_ends_a_chat_at_once(tmp_path: Path) -> None:
    config = write_config(tmp_path, upstreams=[])
    async with in_terminal("app", "chat", "--config", config) as terminal:
        await terminal.wait_for("> ")
        terminal.press(b"hello\n")
        await terminal.wait_for(r"(?s)> .*\n> ")
        terminal.press(CTRL_C)
        assert await terminal.ended() == 130
    assert "Traceback" not in terminal.shown
    assert "Fatal" not in terminal.shown
