"""The lines of a start and of a stop in a terminal."""

import asyncio
import io
from collections.abc import Callable, Sequence
from functools import partial

import pytest

import app.start_lines
from app.logs import service_logs
from app.start_lines import say_start, say_stop
from tests.support.requirement import requirement
from tests.support.script import ScriptModel
from tests.support.service import BOUND_S
from tests.support.until import until
from wicketgate.config.settings import Settings
from wicketgate.gate import VERSION, Gate
from wicketgate.ports import Upstream, UpstreamStatus
from wicketgate.upstreams.embedded import StubUpstream


class Quiet(StubUpstream):
    """It is in one state, and stays there."""

    def __init__(self, name: str, status: UpstreamStatus) -> None:
        super().__init__([], name=name)
        self.status = status

    async def supervise(self, changed: Callable[[str], None]) -> None:
        await asyncio.Event().wait()


def made(upstreams: Sequence[Upstream]) -> Gate:
    return Gate(Settings(), upstreams=upstreams, provider=ScriptModel(), waits=False)


async def said_at_the_start(gate: Gate, act: Callable[[], None], awaited: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the text on the screen once it contains *awaited* and the time to name missing servers has passed."""
    monkeypatch.setattr(app.start_lines, "_STILL_CONNECTING_S", 0.0)
    screen = io.StringIO()
    with service_logs("error", str, screen, log_format="text") as out:
        async with asyncio.timeout(BOUND_S), gate:
            act()
            end = say_start(out, gate)
            passed = asyncio.Event()
            asyncio.get_running_loop().call_later(0.0, passed.set)
            await passed.wait()
            await until(lambda: awaited in screen.getvalue())
            end()
    return screen.getvalue()


@requirement("OPS-97", "OPS-98")
@pytest.mark.parametrize(
    ("names", "stops", "said"),
    [
        ([], False, "no upstreams are configured\n"),
        (["a", "b"], True, "connecting 2 upstreams ...\n"),
        (
            ["s\x1b[2J"],
            False,
            "connecting 1 upstream ...\nStill connecting: s\\u001b[2J (the start waits up to 10 s)\n",
        ),
    ],
)
async def test_a_start_says_what_it_does_and_then_who_is_awaited_unless_it_is_stopped(
    names: list[str], stops: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = made([Quiet(name, UpstreamStatus("connecting")) for name in names])
    act = partial(gate.drain.begin, BOUND_S) if stops else lambda: None
    found = await said_at_the_start(gate, act, said.splitlines()[-1], monkeypatch)
    assert found == f"Wicketgate {VERSION}: {said}"


@requirement("OPS-98")
async def test_a_stop_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.start_lines, "_STILL_RUNNING_S", 0.0)
    gate, screen = made([]), io.StringIO()
    with service_logs("info", str, screen, log_format="text") as out:
        end = say_stop(out, gate)
        end()  # nothing was begun
        async with asyncio.timeout(BOUND_S), gate:
            gate.drain.request_begun()
            gate.drain.request_begun()
            gate.drain.begin(1)
            await until(lambda: "waiting" in screen.getvalue())
            gate.drain.begin(0)
            end()
    assert screen.getvalue() == (
        "\rStopping ...\nwaiting up to 1 s for 2 requests; Ctrl-C again ends at once\nStopped\n"
    )
