import os
import socket
import sys

import pytest

from examples import orders
from tests.support.process import program
from tests.support.requirement import requirement


@requirement("OPS-135")
def test_a_port_that_is_taken_is_said_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sys, "argv", ["orders", "--port", str(port)])
        assert orders.main() == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"orders: port {port} is taken; choose another with --port, and write it in the configuration\n"


@requirement("OPS-135")
async def test_the_demo_says_how_make_takes_another_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with program("examples.demo", "--port", str(port)) as running:
            assert await running.ended(30) == 1
    assert f"demo: Cannot listen on 127.0.0.1 port {port}: {os.strerror(98)}. Choose another: make run PORT=8081" in (
        running.stderr
    )
