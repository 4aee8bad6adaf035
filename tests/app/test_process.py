"""Changes that the service makes to its own process, and does not make to the process of its host."""

import asyncio
import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.lifespan import Program
from app.main import create_app
from app.process import on_hangup, remembered_hangup, search_python_folders
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.config.settings import Settings


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """Objects that tests/conftest.py froze are counted, and become fewer when one of them is freed."""
    gc.unfreeze()
    yield
    gc.freeze()


def process() -> dict[str, Any]:
    root = logging.getLogger()
    return {
        "collector": (gc.get_threshold(), gc.get_freeze_count()),
        "logging": (root.level, list(root.handlers), logging.logThreads, logging.getLogger("httpx").level),
        "hangup": signal.getsignal(signal.SIGHUP),
        "path": list(sys.path),
    }


class Terminal(io.StringIO):
    """A stderr that says when something is on it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@requirement("OPS-22", "OPS-435")
@pytest.mark.usefixtures("nothing_frozen")
async def test_an_application_of_given_settings_leaves_the_process_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.model_validate(
        {"upstreams": [{"name": "office", "python": "tests.support.python_tools:registry", "cwd": str(tmp_path)}]}
    )
    before = process()
    app = create_app(settings)
    async with asyncio.timeout(BOUND_S), app.router.lifespan_context(app):
        await app.state.gate.wait_settled()
        assert process() == before
        client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1))
        headers = {"authorization": f"Bearer {app.state.local_key}"}
        answer = await asyncio.to_thread(client.get, "/metrics", headers=headers)
    assert (process(), answer.status_code) == (before, 200)
    assert capfd.readouterr() == ("", "")


@requirement("OPS-22")
async def test_sighup_calls_us_only_while_it_is_free_and_is_given_back() -> None:
    heard, other = asyncio.Event(), asyncio.Event()
    before = signal.getsignal(signal.SIGHUP)
    async with asyncio.timeout(BOUND_S):
        with on_hangup(heard.set):
            os.kill(os.getpid(), signal.SIGHUP)
            await heard.wait()
        assert signal.getsignal(signal.SIGHUP) == before
        heard.clear()
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGHUP, lambda number, frame: loop.call_soon_threadsafe(other.set))
        try:
            with on_hangup(heard.set):
                os.kill(os.getpid(), signal.SIGHUP)
                await other.wait()
        finally:
            signal.signal(signal.SIGHUP, before)
    assert not heard.is_set()


@requirement("OPS-140")
async def test_sighup_during_the_start_is_heard_after_it() -> None:
    heard = asyncio.Event()
    before = signal.getsignal(signal.SIGHUP)
    with remembered_hangup():
        with remembered_hangup():  # the command, and what it calls
            os.kill(os.getpid(), signal.SIGHUP)
        with on_hangup(heard.set):
            async with asyncio.timeout(BOUND_S):
                await heard.wait()
        heard.clear()
    assert signal.getsignal(signal.SIGHUP) == before
    with remembered_hangup(), on_hangup(heard.set):
        await asyncio.sleep(0)
    assert not heard.is_set()


@requirement("OPS-22")
def test_folders_of_python_upstreams_are_searched_last_and_named_once(tmp_path: Path) -> None:
    entry = {"python": "tools:registry", "cwd": str(tmp_path)}
    off = {"name": "off", "python": "tools:registry", "cwd": str(tmp_path / "off"), "enabled": False}
    settings = Settings.model_validate({"upstreams": [{"name": "one", **entry}, {"name": "two", **entry}, off]})
    before = list(sys.path)
    try:
        search_python_folders(settings)
        search_python_folders(settings)
        assert sys.path == [*before, str(tmp_path)]
    finally:
        sys.path[:] = before


class Gone(Terminal):
    def write(self, text: str) -> int:
        super().write(text)
        raise BrokenPipeError


async def test_a_greeting_that_cannot_be_written_ends_nothing() -> None:
    app = create_app(Settings(), program=Program(Settings))
    with redirect_stderr(Gone()) as terminal:
        async with asyncio.timeout(BOUND_S), app.router.lifespan_context(app):
            await terminal.written.wait()
            await asyncio.sleep(0)
            assert app.state.gate.lifecycle.ready()
